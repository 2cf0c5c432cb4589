"""The report on a model: findings in words, every number, every figure, on one page."""

__all__: list[str] = []
