"""Which latents a model uses, how much information they carry, and how that affects its codes."""

__all__: list[str] = []
