"""Panel: the calls of a job that cases came from, how often it made each, and what they take here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncclbench.report.model import Report, Row, Source, good_rows
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, time_text
from ncclbench.tables.modes import BANDWIDTH_MODES
from ncclbench.units import count_text, format_bytes, format_percent

# No run of ncclbench has more.
_MOST_CALLS = 64
_MOST_LEFT = 20


def build(report: Report) -> Content | None:
    """Of each run that has some: a line per call with its time on every arm, and what was left out."""
    blocks = [block for source in report.sources if (block := _block(source)) is not None]
    return {"blocks": blocks, "several_runs": len(report.sources) > 1} if blocks else None


PANEL = Panel(
    name="calls",
    order=48,
    title="Calls of the job",
    description=(
        "What the flight recorders of a job had recorded, and what each of these calls takes here. The share "
        "is of the bytes that a rank moved in all calls that could be taken."
    ),
    build=build,
    template="calls.html",
)


def cases_text(cases_from: Mapping[str, Any] | None) -> str:
    """Which dumps the cases of a run came from, in a line; empty where from none."""
    if not cases_from:
        return ""
    names = [str(entry["file"]) for entry in cases_from["files"]]
    more = cases_from["nfiles"] - len(names)
    told = f"{list_text(names)}{f' and {more:,} more' if more > 0 else ''}"
    dumps = count_text(cases_from["nfiles"], "dump")
    return f"{dumps} of a job of {cases_from['nranks']:,} ranks: {told} (sha256 {cases_from['sha256']})"


def _block(source: Source) -> dict[str, Any] | None:
    cases_from = source.run.meta.get("cases_from")
    if not cases_from:
        return None
    rows = list(good_rows(source.rows))
    # A job does not wait for all ranks before each call.
    mode = next((mode for mode in BANDWIDTH_MODES if any(row["mode"] == mode for row in rows)), "")
    arms = [arm.id for arm in source.run.plan.arms]
    totals = dict.fromkeys(arms, 0.0)
    unmeasured = 0
    lines = []
    for call in cases_from["calls"][:_MOST_CALLS]:
        times = {arm: _time_us(rows, call, mode, arm) for arm in arms}
        unmeasured += any(time is None for time in times.values())
        for arm, time in times.items():
            totals[arm] += (time or 0.0) * call["calls"]
        lines.append(
            {
                "topology": call["topology"],
                "op": call["op"],
                "dtype": call["dtype"],
                "size": format_bytes(call["nbytes"]),
                "calls": f"{call['calls']:,}",
                "share": format_percent(call["share"]),
                "times": ["–" if time is None else time_text(time) for time in times.values()],
            }
        )
    left = [str(text) for text in cases_from["left"]]
    return {
        "run": source.label,
        "from": cases_text(cases_from),
        "mode": mode,
        "arms": arms,
        "lines": lines,
        "totals": [time_text(total) if total else "–" for total in totals.values()],
        "unmeasured": unmeasured,
        "left": left[:_MOST_LEFT],
        "left_more": max(0, len(left) - _MOST_LEFT),
    }


def _time_us(rows: list[Row], call: Mapping[str, Any], mode: str, arm: str) -> float | None:
    """Of the row that was measured for a call: its size, in whole elements per rank."""
    wanted = (call["topology"], call["op"], mode, arm)
    found = [
        row
        for row in rows
        if (row["topology"], row["op"], row["mode"], row["arm"]) == wanted
        and (row["dtype"] == call["dtype"] or not call["nbytes"])
        and row["nbytes"] <= call["nbytes"]
    ]
    row = max(found, key=lambda row: int(row["nbytes"]), default=None)
    return None if row is None else float(row["median_us"])
