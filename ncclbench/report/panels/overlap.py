"""Panel: how much of communication hides behind compute, with the serial control and the slowdowns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncclbench.report.endings import ending_of
from ncclbench.report.model import Report, Row, Source
from ncclbench.report.overlapping import case_text, free_figure, hidden_figure, slowdown_figure
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import ratio_text, time_text
from ncclbench.stats.overlap import overlap_rows
from ncclbench.stats.overlap_words import interval, number, reasons, sentences, with_controls
from ncclbench.store.overlaps import OVERLAP_LINES
from ncclbench.units import count_text, format_bytes

# Rows in the table; ``overlap --json`` has all.
MOST_ROWS = 400


def build(report: Report) -> Content | None:
    """One block for each overlap run; nothing for other runs."""
    found = [source for source in report.sources if any(_is_own(each) for each in source.run.results)]
    if not found:
        return None
    blocks = [_block(source, number) for number, source in enumerate(found)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="overlap",
    order=-8,
    title="Overlap",
    description="How much of communication hides behind compute.",
    build=build,
    template="overlap.html",
)


def _is_own(result: object) -> bool:
    return isinstance(result, OVERLAP_LINES)


def _block(source: Source, index: int) -> dict[str, Any]:
    rows = overlap_rows(source.run)
    said = sentences(source.run, rows)
    wrong = sum(row["status"] == "wrong" for row in rows)
    failed = sum(row["status"] == "failed" for row in rows)
    ending = ending_of(source.run, "the run failed")
    if failed:
        said.insert(0, f"{count_text(failed, 'row')} failed")
    if wrong:
        said.insert(0, f"WRONG DATA in {count_text(wrong, 'row')}")
    meaningful = any(row["meaningful"] for row in rows)
    figures = (
        hidden_figure(rows, f"hidden-{index}"),
        free_figure(rows, f"free-{index}"),
        slowdown_figure(rows, f"slowdown-{index}"),
    )
    measured = [row for row in rows if row["n"]]
    return {
        "run": source.label,
        "tone": "bad" if wrong or failed else "good" if meaningful and not ending else "warn",
        "headline": said[0] if said else "Nothing was measured",
        "others": said[1:],
        "ending": ": ".join(filter(None, (ending, source.run.meta.get("message")))) if ending else "",
        "figures": [figure for figure in figures if figure is not None],
        "on_gpu": any(row["free_sms"] is not None for row in rows),
        "rows": _table(measured[: 2 * MOST_ROWS]),
        "more": max(0, len(measured) // 2 - MOST_ROWS),
        "reasons": [
            {"what": f"{count_text(count, 'case')}, {what}", "why": why}
            for what, why, count in reasons(rows)
            if not any(why in sentence for sentence in said)
        ],
    }


def _table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each case: both arms of it."""
    lines = []
    for row, control in with_controls(rows):
        times = (row[name] for name in ("comm_us", "compute_us", "together_us", "exposed_us"))
        void = {"wrong": "WRONG DATA", "failed": "failed"}.get(row["status"], "no figure")
        lines.append(
            {
                "case": case_text(row),
                "size": format_bytes(row["nbytes"]),
                "compute": row["compute"],
                "free": "–" if row["free_sms"] is None else str(row["free_sms"]),
                "times": [_time(time_us) for time_us in times],
                "hidden": _number(row["efficiency"]),
                # What is no figure needs no interval, but to be known where it is read.
                "interval": (interval(row).replace(" .. ", " to ") or "–") if row["meaningful"] else void,
                "is_figure": row["meaningful"],
                "control": _number(control["efficiency"] if control else None),
                "slowdowns": [_ratio(row["comm_slowdown"]), _ratio(row["compute_slowdown"])],
                "n": f"{row['n']} in {count_text(row['epochs'], 'epoch')}",
                "is_wrong": row["status"] == "wrong",
            }
        )
    return lines


def _time(time_us: float | None) -> str:
    if time_us is None:
        return "–"
    return time_text(time_us) if time_us >= 0 else f"−{time_text(-time_us)}"


def _number(value: float | None) -> str:
    return "–" if value is None else number(value)


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else ratio_text(ratio)
