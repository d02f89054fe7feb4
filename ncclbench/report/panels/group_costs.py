"""Panel: what process groups cost, how groups at once disturb each other, which order of calling hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncclbench.report.communicators import costs_figure
from ncclbench.report.endings import ending_of
from ncclbench.report.model import Report, Row, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, ranges_text, ratio_text, time_text
from ncclbench.stats.group_costs import GroupsFound, groups_of, leaks
from ncclbench.stats.group_words import (
    at_once_said,
    compared_said,
    cost_said,
    crossed_said,
    headline,
    leaks_said,
    most_groups,
    wrong_said,
)
from ncclbench.units import count_text, format_bytes, format_memory

# Lines in the tables; samples.jsonl has all.
MOST_LINES = 400

NOTHING = "–"


def build(report: Report) -> Content | None:
    """One block for each run of groups; nothing for other runs."""
    sources = [source for source in report.sources if source.run.meta.get("kind") == "groups"]
    if not sources:
        return None
    blocks = [_block(source, number) for number, source in enumerate(sources)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="group-costs",
    order=-6,
    title="Process groups",
    description="",
    build=build,
    template="group-costs.html",
)


def _block(source: Source, number: int) -> dict[str, Any]:
    found = groups_of(source.run.results_by_arm)
    tone, words = _headline(source, found)
    figure = costs_figure(found.rows, f"group-costs-{number}")
    return {
        "run": source.label,
        "tone": tone,
        "headline": words,
        "notes": _notes(source, found),
        "place": _place(source, found),
        "said": _said(found),
        "figures": [] if figure is None else [figure],
        "rows": [_cost(row) for row in found.rows[:MOST_LINES]],
        "counted": list(dict.fromkeys(f"{row['arm']}: {row['counted']}" for row in found.rows)),
        "at_once": [_at_once(row) for row in found.at_once[:MOST_LINES]],
        "more": max(0, len(found.rows) - MOST_LINES, len(found.at_once) - MOST_LINES),
        "crossed": [_crossed(row) for row in found.crossed[:MOST_LINES]],
    }


def _headline(source: Source, found: GroupsFound) -> tuple[str, str]:
    """Tone, and the answer in a few words."""
    said = wrong_said(found)
    if found.leftover_processes:
        said.append(f"{count_text(found.leftover_processes, 'process', 'processes')} left behind")
    said.append(headline(found, time_text))
    ending = ending_of(source.run, "the run failed")
    if ending is not None:
        said.append(ending)
    stuck = [row for row in found.crossed if row["outcome"] != "completed"]
    if found.wrong or found.leftover_processes or any(row["safe"] for row in stuck):
        tone = "bad"
    else:
        leaking = any(leaks(row) for row in found.rows)
        tone = "warn" if ending or stuck or leaking or found.is_empty else "good"
    words = "; ".join(said)
    return tone, f"{words[0].upper()}{words[1:]}."


def _notes(source: Source, found: GroupsFound) -> list[str]:
    notes = []
    if source.run.meta.get("status") in ("failed", "interrupted") and source.run.meta.get("message"):
        notes.append(str(source.run.meta["message"]))
    notes += [f"{arm['arm']} is not here: {arm['reason']}" for arm in found.arms if arm["reason"]]
    notes += [
        f"Left out: {line['part']} on {line['arm'] or 'any arm'}: {line['reason']}" for line in found.left_out
    ]
    return notes


def _place(source: Source, found: GroupsFound) -> str:
    arms = [f"{arm['arm']}: {arm['implementation']}" for arm in found.arms if arm["implementation"]]
    named = list_text(arms or [arm.id for arm in source.run.plan.arms])
    return f"{named}, {count_text(source.run.plan.nranks, 'rank')}"


def _said(found: GroupsFound) -> list[str]:
    said = [cost_said(row, time_text) for row in most_groups(found.rows)]
    said += [*compared_said(found.rows), *leaks_said(found.rows)]
    said += [*at_once_said(found.at_once), *crossed_said(found.crossed)]
    return [f"{text[0].upper()}{text[1:]}." for text in said[:MOST_LINES]]


def _time(value: float | None) -> str:
    return NOTHING if value is None else time_text(value)


def _memory(value: float | None) -> str:
    return NOTHING if value is None else format_memory(value)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:g}"


def _range(low: float | None, high: float | None, text: Any) -> str:
    return NOTHING if low is None or high is None else f"{text(low)} – {text(high)}"


def _cost(row: Row) -> dict[str, Any]:
    return {
        "arm": row["arm"],
        "way": row["way"],
        "kind": f"{row['kind']}, {count_text(row['group_size'], 'rank')}",
        "leaks": bool(leaks(row)),
        "cells": [
            f"{row['groups']:,}",
            _time(row["total_us"]),
            _range(row["ci_low_us"], row["ci_high_us"], time_text),
            NOTHING if row["ratio"] is None else ratio_text(row["ratio"]),
            _range(row["ratio_ci_low"], row["ratio_ci_high"], ratio_text),
            *(_time(row[name]) for name in ("new_us", "first_us", "later_us", "p2p_us", "destroy_us")),
            *(_time(row[name]) for name in ("suspend_us", "resume_us")),
            _number(row["communicators"]),
            *(_memory(row[name]) for name in ("rss_bytes", "peak_bytes", "device_bytes", "backend_bytes")),
            *(_number(row[name]) for name in ("files", "threads")),
            *(_number(row[f"leaked_{name}"]) for name in ("files", "connections", "threads")),
            *(_memory(row[f"leaked_{name}"]) for name in ("rss_bytes", "device_bytes")),
        ],
    }


def _at_once(row: Row) -> dict[str, Any]:
    return {
        "arm": row["arm"],
        "group": f"{row['topology']} {row['group']}",
        "ranks": ranges_text(row["ranks"]),
        "op": row["op"],
        "size": format_bytes(row["nbytes"]),
        "cells": [
            f"{row['at_once']}",
            _time(row["alone_us"]),
            _time(row["together_us"]),
            NOTHING if row["slowdown"] is None else ratio_text(row["slowdown"]),
            _range(row["ci_low"], row["ci_high"], ratio_text),
            f"{row['n']:,}",
        ],
        "wrong": row["wrong"],
    }


def _crossed(row: Row) -> dict[str, Any]:
    bad = next((cell for cell in row["cells"] if cell["nbytes"] == row["from_nbytes"]), None)
    return {
        "order": row["order"],
        "arm": row["arm"],
        "description": row["description"] or "",
        "safe": row["safe"],
        "between": " and ".join(row["topologies"]),
        "crossing": ranges_text(row["crossing"]) if row["crossing"] else "none",
        "outcome": row["outcome"],
        "sizes": _sizes(row),
        "stood": _stood(bad["said"]) if bad else "",
        "cannot_end": row["cannot_end"],
    }


def _sizes(row: Row) -> str:
    done = row["completed_to_nbytes"]
    if row["outcome"] == "completed":
        return f"up to {format_bytes(done)}"
    told = f"from {format_bytes(row['from_nbytes'])} on"
    return told if done is None else f"{told}, ends up to {format_bytes(done)}"


def _stood(said: dict[str, str]) -> str:
    words: Sequence[str] = [f"rank {rank} {text}" for rank, text in said.items()]
    return "; ".join(words)
