"""Which latents a model uses, how much information they carry, and how that affects its codes."""
