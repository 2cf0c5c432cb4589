"""Runs that several studies share, by the document they come from."""
