"""Seeds: one number for each purpose, made from the seed of a run or a recording."""

import zlib
from operator import index
from typing import SupportsIndex

__all__ = ["named_seed", "seed_of"]

_WORD = 2**64 - 1


def seed_of(*parts: SupportsIndex) -> int:
    """One well-mixed 63-bit seed from several numbers (run seed, step, process).

    SplitMix64 (Steele, Lea & Flood, OOPSLA 2014) over the parts in turn; it is called at
    every training step, where NumPy's SeedSequence would take ten times as long.
    """
    state = 0
    for part in parts:
        state = (state ^ index(part)) + 0x9E3779B97F4A7C15 & _WORD
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _WORD
        state ^= state >> 31
    return state >> 1


def named_seed(seed: int, name: str) -> int:
    """The seed of one purpose: made from the seed and the name of the purpose alone."""
    return seed_of(seed, zlib.crc32(name.encode()))
