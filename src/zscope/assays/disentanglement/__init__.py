"""Scores that compare codes with known factors (and, for UDR, models with each other).

All take plain arrays or tensors, `(codes, factors)`, row by row the same observations,
and return a frozen `Score`; see `scores.disentanglement_scores` for all at once.
"""
