"""How similar are two representations of the same samples?"""

__all__: list[str] = []
