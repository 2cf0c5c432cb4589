"""Where the documentation is read: one address, which reports and model cards link to."""

__all__ = ["SITE", "assay_page"]

SITE = "https://zscope.readthedocs.io/en/latest/"


def assay_page(name: str) -> str:
    """The page of an assay: its definition, how it is called and how to read it."""
    return f"{SITE}assays/{name}/"
