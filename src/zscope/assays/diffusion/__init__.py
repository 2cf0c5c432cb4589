"""Diffusion: is a latent space with channels and places ready for a diffusion model?"""

__all__: list[str] = []
