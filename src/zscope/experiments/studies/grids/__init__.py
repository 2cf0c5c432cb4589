"""Runs that several studies share, by the document they come from."""

__all__: list[str] = []
