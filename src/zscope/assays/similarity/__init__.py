"""How alike are two representations of the same samples?"""
