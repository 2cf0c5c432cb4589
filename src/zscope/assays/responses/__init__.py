"""How a latent vector changes when it is decoded and encoded again."""

__all__: list[str] = []
