"""How similar are two representations of the same samples?"""
