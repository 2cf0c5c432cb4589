"""Rules about the model itself."""

from collections.abc import Iterable

from zscope.report.findings import Facts, Finding

__all__ = ["not_a_function"]


def not_a_function(facts: Facts, threshold: float) -> Iterable[Finding]:
    if notes := facts.recording.notes:
        yield Finding(
            "The model is not a function of its input",
            " ".join(notes),
            "return the mean instead of a draw, use running statistics in batch norm, and measure "
            "again; until then every number contains this variation",
            "problem",
            0.98,
        )
