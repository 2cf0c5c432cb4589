"""How close are generated observations to real ones?"""

__all__: list[str] = []
