"""Which latents a model uses, how much they carry, and what that does to its codes."""
