"""Panel: groups that ran at once, and which of them was slower than the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncclbench.report.model import Report, Row, Source, good_rows
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, ranges_text, ratio_text, time_text
from ncclbench.stats.intervals import FEWEST_EPOCHS
from ncclbench.units import count_text, format_bytes

# Rows shown; of more the ones whose groups are furthest apart.
_MOST_ROWS = 20


def build(report: Report) -> Content | None:
    """Per arm, topology, operation and mode its largest size: the slowest group and the fastest."""
    rows = [(source, row) for source in report.sources for row in _largest(source)]
    if not rows:
        return None
    rows.sort(key=lambda entry: (not entry[1]["slow_groups"], -(entry[1]["groups_spread"] or 0.0)))
    slow = [row for _, row in rows if row["slow_groups"]]
    return {
        "rows": [_row(source, row) for source, row in rows[:_MOST_ROWS]],
        "left_out": len(rows) - _MOST_ROWS if len(rows) > _MOST_ROWS else 0,
        "several_runs": len(report.sources) > 1,
        "words": _words([row for _, row in rows], slow),
    }


PANEL = Panel(
    name="groups",
    order=35,
    title="Groups that ran at once",
    description=(
        "A topology cuts the ranks into groups that run at the same time. A group's time is that of its "
        "slowest rank; the time of a row elsewhere on this page is that of its slowest group."
    ),
    build=build,
    template="groups.html",
)


def _largest(source: Source) -> list[Row]:
    found: dict[tuple[Any, ...], Row] = {}
    for row in good_rows(source.rows):
        if (row.get("ngroups") or 1) > 1:
            key = tuple(row[name] for name in ("arm", "topology", "op", "dtype", "redop", "root", "mode"))
            if key not in found or row["nbytes"] > found[key]["nbytes"]:
                found[key] = row
    return list(found.values())


def _row(source: Source, row: Row) -> dict[str, Any]:
    slowest = row["groups"][0]
    interval = "–"
    if slowest["ci_low"] is not None and row["epochs"] >= FEWEST_EPOCHS:
        interval = f"{slowest['ci_low']:.2f} to {slowest['ci_high']:.2f}"
    return {
        "run": source.label,
        "arm": row["arm"],
        "topology": row["topology"],
        "op": row["op"],
        "mode": row["mode"],
        "size": format_bytes(row["nbytes"]),
        "count": f"{row['ngroups']} x {row['nranks']}",
        "slowest": ranges_text(slowest["ranks"]),
        "time": time_text(slowest["median_us"]),
        "ratio": "–" if slowest["ratio"] is None else ratio_text(slowest["ratio"]),
        "interval": interval,
        "spread": "–" if row["groups_spread"] is None else ratio_text(row["groups_spread"]),
        "is_slow": slowest["slow"],
    }


def _words(rows: Sequence[Row], slow: Sequence[Row]) -> str:
    """What was found, and never that no group is slower where too few epochs could not have told."""
    few = [row for row in rows if row["epochs"] < FEWEST_EPOCHS]
    if not slow and len(few) == len(rows):
        return f"Whether a group is slower cannot be told: that takes {FEWEST_EPOCHS} epochs or more."
    if not slow:
        of_few = (
            f" It cannot be told of {count_text(len(few), 'row')} with fewer than {FEWEST_EPOCHS} epochs."
        )
        return f"No group is slower than the others beyond chance and the margin.{of_few if few else ''}"
    worst = {
        f"ranks {ranges_text(row['groups'][0]['ranks'])} in {row['topology']} "
        f"({ratio_text(row['groups'][0]['ratio'])} the others' time, {row['op']})": None
        for row in slow
    }
    return f"Slower than the other groups: {list_text(list(worst))}, in {count_text(len(slow), 'row')}."
