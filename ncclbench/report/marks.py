"""What is marked on a row, why, and what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ncclbench.report.model import Report, Row
from ncclbench.report.text import list_text, percent_text, time_text
from ncclbench.units import format_bytes

# Epochs that differ by more than this (standard deviation of the log) make a number nobody can rely on.
UNSTABLE_SPREAD = 0.10

# From here on a percentage would mislead: 1.1 is a factor of 3, not 110 %.
LARGE_SPREAD = 0.5

# What to do about each mark, in the order of importance.
ADVICE = {
    "unstable": "Epochs differ by more than 10 %. Run more of them (--epochs 8) or on a quieter machine, "
    "and look at Spread.",
    "bimodal": "Samples pile up in two places, so the median sits on a cliff. Look at the samples under "
    "Spread; more iterations (-n 100) show which one is usual.",
    "one epoch": "One epoch gives no interval. Run at least three (--epochs 3).",
    "fence-bound": "The skew of the start hides differences as small as the margin. "
    "Compare these in back-to-back or graph mode.",
    "shared GPU": "Ranks share a GPU: times are real, but bytes over time is no bandwidth.",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark on a row.

    Attributes:
        word: a key of ADVICE.
        why: the number behind it, "" for none.
        step: what to do next, in a few words, "" for nothing.
    """

    word: str
    why: str
    step: str


def is_unstable(row: Row) -> bool:
    """Whether a measured row's epochs differ too much to rely on it."""
    return row["status"] == "ok" and row["epoch_spread"] is not None and row["epoch_spread"] > UNSTABLE_SPREAD


def row_marks(row: Row, compared: bool) -> list[Mark]:
    """The marks of a row.

    Args:
        row: a sweep row.
        compared: the row's run compares arms: only then does the fence's skew matter to a verdict.
    """
    marks = []
    if is_unstable(row):
        spread = row["epoch_spread"]
        marks.append(Mark("unstable", f"epochs {_spread_text(spread)}", "more epochs"))
    if row["bimodal"]:
        modes = f"{time_text(row['mode_low_us'])} and {time_text(row['mode_high_us'])}"
        marks.append(Mark("bimodal", modes, "see Spread"))
    if row["epochs"] == 1:
        marks.append(Mark("one epoch", "no interval", "more epochs"))
    if compared and row["fence_bound"]:
        marks.append(Mark("fence-bound", "", "compare back-to-back"))
    if row["shared_gpu"]:
        marks.append(Mark("shared GPU", "no bandwidth", ""))
    return marks


def _spread_text(spread: float) -> str:
    """A standard deviation of logarithms in words: ±14 %, or a factor where it is large."""
    return f"±{percent_text(spread)}" if spread < LARGE_SPREAD else f"vary {math.exp(spread):.1f}x"


def marked_rows(report: Report) -> list[tuple[Row, list[Mark]]]:
    """Every row of the report with its marks."""
    return [
        (row, row_marks(row, compared=bool(source.comparisons)))
        for source in report.sources
        for row in source.rows
    ]


def next_steps(report: Report) -> list[dict[str, Any]]:
    """Per mark that occurs: how many rows, what to do, and which operations and sizes."""
    rows: dict[str, list[Row]] = {}
    for row, marks in marked_rows(report):
        for mark in marks:
            rows.setdefault(mark.word, []).append(row)
    return [
        {"word": word, "count": len(rows[word]), "step": step, "which": where(rows[word])}
        for word, step in ADVICE.items()
        if word in rows
    ]


def where(rows: list[Row]) -> str:
    """Operations, arms and sizes of rows, in as few words as they take."""
    ops = list(dict.fromkeys(row["op"] for row in rows))
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    sizes = sorted({row["nbytes"] for row in rows})
    span = f"size {format_bytes(sizes[0])}"
    if len(sizes) > 1:
        span = f"sizes {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    return f"{list_text(ops)} on {list_text(arms)}, {span}"
