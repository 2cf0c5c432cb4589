"""Alignment: do the axes of the latent space have a meaning, and why?"""

__all__: list[str] = []
