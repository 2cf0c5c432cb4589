"""Rules about the model itself."""

from collections.abc import Iterable

from zscope.determinism import NO_NUMBERS
from zscope.report.findings import Facts, Finding

__all__ = ["no_numbers", "not_a_function"]


def no_numbers(facts: Facts, threshold: float) -> Iterable[Finding]:
    if notes := [note for note in facts.recording.notes if note.startswith(NO_NUMBERS)]:
        yield Finding(
            NO_NUMBERS,
            " ".join(notes),
            "check its weights, and divisions and logarithms in it; nothing that decodes can be "
            "measured until then",
            "problem",
            1.0,
        )


def not_a_function(facts: Facts, threshold: float) -> Iterable[Finding]:
    if notes := [note for note in facts.recording.notes if not note.startswith(NO_NUMBERS)]:
        yield Finding(
            "The model is not a function of its input",
            " ".join(notes),
            "return the mean instead of a draw, use running statistics in batch norm, and measure "
            "again; until then every number contains this variation",
            "problem",
            0.98,
        )
