"""What is said of comparisons in words: one of them, and all of a pair together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ncclbench.compare.overview import counted, counts
from ncclbench.report.calibrations import Calibration
from ncclbench.report.model import Row
from ncclbench.report.text import ratio_text
from ncclbench.units import count_text, format_bytes, format_percent

VERDICTS = ("faster", "same", "unclear", "slower")

# What a verdict looks like where there is no room for its word.
GLYPHS = {"faster": "▼", "slower": "▲", "same": "=", "unclear": ""}

# More reasons than this are summed up.
_MOST_REASONS = 3

BETWEEN_MODES = "sits between two modes"


def verdict_text(row: Row) -> str:
    """A comparison in words: "1.08x time, slower"; the tail's words where there are any."""
    words = row["verdict"] + (f", {row['tail']}" if row["tail"] else "")
    return f"{ratio_text(row['ratio'])} time, {words}" if row["ratio"] is not None else words


def case_text(row: Row) -> str:
    """The case of a comparison: "all_reduce float32, size 64K, isolated"."""
    return f"{row['op']} {row['dtype']}, size {format_bytes(row['nbytes'])}, {row['mode']}"


def interval_text(low: float | None, high: float | None) -> str:
    """An interval of ratios: "[1.02x, 1.14x]"; "" where there is none."""
    if low is None or high is None:
        return ""
    decimals = max(len(ratio_text(end).partition(".")[2]) for end in (low, high)) - len("x")
    return f"[{low:.{decimals}f}x, {high:.{decimals}f}x]"


def least_text(row: Row) -> str:
    """What an unclear comparison could have found at best: "4.1 %"; "" where that is no question."""
    return format_percent(row["detectable"]) if _is_lost_in_noise(row) else ""


def _is_lost_in_noise(row: Row) -> bool:
    """Whether a comparison is unclear for its scatter alone, so that the smallest difference tells why."""
    return row["verdict"] == "unclear" and row["detectable"] is not None and not row["doubt"]


def rests_on_text(row: Row) -> str:
    """How many observations a comparison rests on: "8 epochs", or of runs "6 and 5 launches"."""
    if row.get("base_launches") is None:
        return count_text(row["epochs"], "epoch")
    return f"{row['base_launches']} and {row['new_launches']} launches"


def detail_text(row: Row, calibration: Calibration | None = None) -> str:
    """A comparison with its interval, what it rests on and what is to be known of it, in one line."""
    interval = interval_text(row["ci_low"], row["ci_high"])
    parts = [f"{verdict_text(row)}{' ' if interval else ''}{interval}", rests_on_text(row)]
    if row["note"]:
        parts.append(str(row["note"]))
    if least := least_text(row):
        parts.append(f"only a difference of {least} or more could have been found")
    if row["between_modes"]:
        parts.append(f"the {row['statistic']} {BETWEEN_MODES}")
    # A calibration is of arms within one job, and knows nothing of how launches differ.
    if calibration is not None and row["unit"] == "epochs":
        smallest = calibration.smallest(row)
        if smallest is not None:
            parts.append(f"calibrated: {format_percent(smallest)} can be found in {calibration.budget}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Summary:
    """All comparisons of one pair.

    Attributes:
        title: "nccl2 against nccl-legacy".
        counts: by verdict, in the order of VERDICTS.
        words: the same in words: "2 slower, 10 same".
        total: comparisons.
        regressions: those that are slower beyond the margin.
        worst: the regression with the largest ratio.
        best: the gain beyond the margin with the smallest.
        lines: what is to be said beside the counts.
    """

    title: str
    counts: list[tuple[str, int]]
    words: str
    total: int
    regressions: int
    worst: Row | None
    best: Row | None
    lines: list[str]


def summarised(base: str, new: str, rows: Sequence[Row]) -> Summary:
    """What all comparisons of ``new`` with ``base`` say together."""
    found = counts(rows)
    beyond = [row for row in rows if row["beyond_margin"] and row["ratio"] is not None]
    regressions = [row for row in beyond if row["ratio"] > 1]
    worst = max(regressions, key=lambda row: float(row["ratio"]), default=None)
    best = min((row for row in beyond if row["ratio"] < 1), key=lambda row: float(row["ratio"]), default=None)
    tails = sum(row["verdict"] == "same" and "worse" in str(row["tail"] or "") for row in rows)
    lines = []
    if worst is not None:
        lines.append(
            f"{count_text(len(regressions), 'regression')} beyond the margin, the worst: {_named(worst)}."
        )
    elif found["slower"]:
        lines.append("No regression reaches beyond the margin.")
    if best is not None:
        lines.append(f"Largest gain: {_named(best)}.")
    if tails:
        lines.append(f"{count_text(tails, 'case')} same with a worse tail.")
    return Summary(
        title=f"{new} against {base}",
        counts=[(word, found[word]) for word in VERDICTS],
        words=counted(found),
        total=len(rows),
        regressions=len(regressions),
        worst=worst,
        best=best,
        lines=lines + _unclear(rows),
    )


def _unclear(rows: Sequence[Row]) -> list[str]:
    """Why cases are unclear, and what they could have found."""
    unclear = [row for row in rows if row["verdict"] == "unclear"]
    reasons = Counter(str(row["doubt"]) for row in unclear if row["doubt"])
    told = reasons.most_common(_MOST_REASONS)
    lines = [f"{number:,} unclear: {reason}." for reason, number in told]
    if len(reasons) > len(told):
        lines.append(f"{reasons.total() - sum(number for _, number in told):,} unclear for other reasons.")
    able = sorted(
        (row for row in unclear if _is_lost_in_noise(row)),
        key=lambda row: float(row["detectable"]),
    )
    if able:
        least, most = able[0], able[-1]
        reach = f"{format_percent(least['detectable'])} ({case_text(least)})"
        if len(able) > 1:
            reach += f" to {format_percent(most['detectable'])} ({case_text(most)})"
        subject = "In 1 unclear case" if len(able) == 1 else f"In {len(able):,} unclear cases"
        lines.append(f"{subject} no difference below {reach} could have been found.")
    return lines


def _named(row: Row) -> str:
    return f"{case_text(row)}: {verdict_text(row)}"
