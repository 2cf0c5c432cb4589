"""How many dimensions do the data have, and how many latents does a model need?"""

__all__: list[str] = []
