"""Shares: the interval of a share of independent cases.

Wilson, JASA 22, 1927: all shares whose own error explains the one that was seen. Unlike
share ± 1.96 errors it is not too short for few cases, nor empty where all of them agree.
"""

__all__ = ["wilson"]


def wilson(share: float, count: float) -> tuple[float, float]:
    """The centre of the 95 % interval of a share, and how far it reaches to either side."""
    z = 1.96
    scale = 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / scale
    return centre, z / scale * (share * (1 - share) / count + (z / (2 * count)) ** 2) ** 0.5
