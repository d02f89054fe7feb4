"""What is marked on a row, why, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ncclbench.report.model import Report, Row
from ncclbench.report.text import list_text, ranges_text, ratio_text, time_text
from ncclbench.units import count_text, format_bytes, format_percent

# Epochs that differ by more than this (standard deviation of the log) make a number nobody can rely on.
UNSTABLE_SPREAD = 0.10

# From here on a percentage would mislead: 1.1 is a factor of 3, not 110 %.
LARGE_SPREAD = 0.5

# What to do about each mark of a row, in the order of importance; MORE is twice the epochs there are.
ADVICE = {
    "unstable": "Epochs differ by more than 10 %. Run more of them (--epochs MORE) or on a quieter machine, "
    "and look at Spread.",
    "warming": "The first samples of an epoch are slower than its rest: more warmup (-w 20, -w 50).",
    "drifting": "Times rise or fall over the run, as when clocks or temperature settle. Warm the machine up "
    "first, lock its clocks, or keep others off it; look at Spread, where epochs stand in their order.",
    "correlated": "Epochs that follow each other are alike, so they say less than their number. Make each "
    "longer (more -n) so that it covers what comes and goes.",
    "bimodal": "Samples pile up in two places, so the median sits on a cliff. Look at the samples under "
    "Spread; more iterations (-n 100) show which one is usual.",
    "one epoch": "One epoch gives no interval. Run at least three (--epochs 3).",
    "fence-bound": "The skew of the start hides differences as small as the margin. "
    "Compare these in back-to-back or graph mode.",
    "throttled": "GPUs were held back, or linked by less than they could be, while this was measured: the "
    "figures are of that state and not of the machine. Look after power, cooling and links; measure again.",
    "shared GPU": "Ranks share a GPU: times are real, but bytes over time is no bandwidth.",
}

# The same for a comparison.
COMPARISON_ADVICE = {
    "between modes": "The compared statistic of an arm sits between two modes, so it moves far when their "
    "shares move a little. Look at the ratio by quantile; compare one that lies inside a mode "
    "(--statistic), fixed before the next run.",
    "correlated": "The ratios of epochs that follow each other are alike, so no verdict is given. Make each "
    "epoch longer (more -n).",
    "drifting": "The ratio of the arms rises or falls over the run. Warm the machine up first or lock "
    "its clocks, and measure again.",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark on a row.

    Attributes:
        word: a key of ADVICE, or of COMPARISON_ADVICE.
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
    if row["warming"]:
        marks.append(Mark("warming", f"first samples {ratio_text(row['warming_ratio'])} time", "more -w"))
    if row["drifts"]:
        marks.append(
            Mark("drifting", f"{ratio_text(row['drift'])} from first to last epoch", "warm up first")
        )
    if row["correlated"]:
        marks.append(Mark("correlated", f"lag 1: {row['autocorrelation']:.2f}", "more -n"))
    if row["bimodal"]:
        modes = f"{time_text(row['mode_low_us'])} and {time_text(row['mode_high_us'])}"
        marks.append(Mark("bimodal", modes, "see Spread"))
    if row["epochs"] == 1:
        marks.append(Mark("one epoch", "no interval", "more epochs"))
    if compared and row["fence_bound"]:
        marks.append(Mark("fence-bound", "", "compare back-to-back"))
    if row.get("throttled"):
        ranks = row["throttled_ranks"]
        who = f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges_text(ranks)}"
        why = f"{list_text(row['throttled'], most=2)} on {who}"
        marks.append(Mark("throttled", why, "look after the GPU"))
    if row["shared_gpu"]:
        marks.append(Mark("shared GPU", "no bandwidth", ""))
    return marks


def comparison_marks(row: Row) -> list[Mark]:
    """The marks of a compare row."""
    marks = []
    if row["between_modes"]:
        marks.append(Mark("between modes", str(row["statistic"]), "see the ratio by quantile"))
    if row["correlated"]:
        marks.append(Mark("correlated", f"lag 1: {row['autocorrelation']:.2f}", "more -n"))
    if row["drifts"]:
        why = f"{ratio_text(row['drift'])} from first to last epoch"
        marks.append(Mark("drifting", why, "warm up first"))
    return marks


def _spread_text(spread: float) -> str:
    """A standard deviation of logarithms in words: ±14 %, or a factor where it is large."""
    return f"±{format_percent(spread)}" if spread < LARGE_SPREAD else f"vary {math.exp(spread):.1f}x"


def marked_rows(report: Report) -> list[tuple[Row, list[Mark]]]:
    """Every row of the report with its marks."""
    return [
        (row, row_marks(row, compared=bool(source.comparisons)))
        for source in report.sources
        for row in source.rows
    ]


def next_steps(marked: Iterable[tuple[Row, list[Mark]]]) -> list[dict[str, str]]:
    """Per mark that occurs on rows: how many, what to do, and which operations and sizes."""
    return _steps(marked, ADVICE, "row")


def comparison_steps(rows: Iterable[Row]) -> list[dict[str, str]]:
    """The same of compare rows."""
    return _steps([(row, comparison_marks(row)) for row in rows], COMPARISON_ADVICE, "comparison")


def _steps(
    marked: Iterable[tuple[Row, list[Mark]]], advice: Mapping[str, str], noun: str
) -> list[dict[str, str]]:
    rows: dict[str, list[Row]] = {}
    for row, marks in marked:
        for mark in marks:
            rows.setdefault(mark.word, []).append(row)
    steps = []
    for word, step in advice.items():
        if word in rows:
            more = max(8, *(2 * int(row["epochs"] or 1) for row in rows[word]))
            what = f"{count_text(len(rows[word]), noun)} {word}"
            steps.append({"what": what, "step": step.replace("MORE", str(more)), "which": where(rows[word])})
    return steps


def where(rows: list[Row]) -> str:
    """Operations, arms and sizes of rows, in as few words as they take; of a comparison the new arm."""
    ops = list(dict.fromkeys(row["op"] for row in rows))
    arms = list(dict.fromkeys(row["arm"] if "arm" in row else row["new"] for row in rows))
    sizes = sorted({row["nbytes"] for row in rows})
    span = f"size {format_bytes(sizes[0])}"
    if len(sizes) > 1:
        span = f"sizes {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    return f"{list_text(ops)} on {list_text(arms)}, {span}"
