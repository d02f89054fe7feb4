"""What an overlap run found in sentences, the same on the terminal and on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncclbench.stats.overlap import SERIAL, TOGETHER, overlap_rows
from ncclbench.stats.overlap_place import carrier
from ncclbench.store.model import Run
from ncclbench.units import format_bytes

Row = Mapping[str, Any]


def sentences(run: Run, rows: Sequence[Row] | None = None) -> list[str]:
    """A line for each backend and mode: how much is hidden, or why that is no figure here."""
    rows = overlap_rows(run) if rows is None else rows
    kinds = dict.fromkeys((row["backend"], row["mode"]) for row in rows)
    said = (
        _sentence(
            carrier(run, backend) + (" in a CUDA graph" if mode == "graph" else ""),
            [row for row in rows if (row["backend"], row["mode"]) == (backend, mode)],
        )
        for backend, mode in kinds
    )
    # Names come from a file, and may hold what ends a line.
    return [" ".join(sentence.split()) for sentence in said]


def with_controls(rows: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """Each row of both at once with the row of its serial control."""
    names = ("op", "dtype", "redop", "nbytes", "backend", "compute", "free_sms", "mode")
    controls = {tuple(row[name] for name in names): row for row in rows if row["arm"] == SERIAL}
    return [(row, controls.get(tuple(row[name] for name in names))) for row in rows if row["arm"] == TOGETHER]


def reasons(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    """Why cases are wrong, no figure or missing: what they are, why, and how many."""
    told = Counter((row["status"], row["reason"]) for row in rows if row["reason"] and row["arm"] == TOGETHER)
    words = {"ok": "no overlap figure", "wrong": "WRONG DATA"}
    return [(words.get(status, str(status)), reason, count) for (status, reason), count in told.items()]


def beside(row: Row, short: bool = False) -> str:
    """A row's case: "all_reduce of 1M beside fma"."""
    free = f" with {row['free_sms']} SMs free" if row["free_sms"] else ""
    of = " " if short else " of "
    return f"{row['op']}{of}{format_bytes(row['nbytes'])} beside {row['compute']}{free}"


def number(value: float | None) -> str:
    """An efficiency or a slowdown: two decimals, never -0.00; none where they would tell nothing."""
    if value is None:
        return "-"
    return f"{round(value, 2) + 0.0:.2f}" if abs(value) < 100 else f"{value:.0f}"


def interval(row: Row) -> str:
    """The interval of a row's efficiency; empty where there is none."""
    if row["ci_low"] is None:
        return ""
    return f"{number(row['ci_low'])} .. {number(row['ci_high'])}"


def _sentence(who: str, rows: Sequence[Row]) -> str:
    good = [row for row in rows if row["arm"] == TOGETHER and row["efficiency"] is not None]
    figures = [row for row in good if row["meaningful"]]
    if not figures:
        most_told = Counter(row["reason"] for row in rows if row["reason"]).most_common(1)
        return f"{who}: no overlap figure: {most_told[0][0] if most_told else 'nothing was measured'}"
    least, most = (choose(figures, key=lambda row: row["efficiency"]) for choose in (min, max))
    if least is most:
        within = f"; {interval(most)}" if interval(most) else ""
        said = f"{number(most['efficiency'])} of the shorter hidden ({beside(most)}{within})"
    else:
        said = (
            f"{number(least['efficiency'])} ({beside(least, short=True)}) to {number(most['efficiency'])} "
            f"({beside(most, short=True)}) of the shorter hidden"
        )
    controls = [row["efficiency"] for row in rows if row["arm"] == SERIAL and row["meaningful"]]
    ends = dict.fromkeys(map(number, (min(controls), max(controls))))
    said += f", serial control {' to '.join(ends)}"
    if least["efficiency"] < 0:
        said += "; below 0 both at once take longer than one after the other"
    if len(figures) < len(good):
        said += f"; {len(good) - len(figures)} of {len(good)} cases are no overlap figure"
    return f"{who}: {said}"
