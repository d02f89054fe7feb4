"""Panel: point-to-point: which orders deadlock, how fast each way is, first messages, semantics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncclbench.plan.model import SHARED_GPU
from ncclbench.report.endings import ending_of
from ncclbench.report.messages import bandwidth_figure, host_figure, latency_figure
from ncclbench.report.model import Report, Row, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, rate_text, ratio_text, three_digits, time_text
from ncclbench.stats.p2p import P2p, by_arm, outcomes_of, p2p_of, quotable, size_words, way_words
from ncclbench.tables.semantics import SEMANTICS
from ncclbench.units import count_text, format_bytes

# Lines in the tables; samples.jsonl has all.
MOST_LINES = 400

_OUTCOMES = {"otherwise": "otherwise", "not-here": "not here", "unanswered": "unanswered"}
_SHORT = {"completed": "ends", "deadlocked": "deadlock", "raised": "raises"}


def build(report: Report) -> Content | None:
    """One block for each point-to-point run; nothing for other runs."""
    sources = [source for source in report.sources if source.run.meta.get("kind") == "p2p"]
    if not sources:
        return None
    blocks = [_block(source, number) for number, source in enumerate(sources)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="p2p",
    order=-7,
    title="Point-to-point",
    description="",
    build=build,
    template="p2p.html",
)


def _block(source: Source, number: int) -> dict[str, Any]:
    found = p2p_of(source.run.results_by_arm, source.run.plan.share_gpu)
    tone, headline = _headline(source, found)
    figures = (
        latency_figure(found.rows, f"p2p-latency-{number}"),
        bandwidth_figure(found.rows, f"p2p-bandwidth-{number}"),
        host_figure(found.rows, f"p2p-host-{number}"),
    )
    return {
        "run": source.label,
        "tone": tone,
        "headline": headline,
        "notes": _notes(source, found),
        "place": _place(source, found),
        "said": _said(found),
        "figures": [figure for figure in figures if figure is not None],
        "rows": [_way(row) for row in found.rows[:MOST_LINES]],
        "more": max(0, len(found.rows) - MOST_LINES),
        "first": [_first(row) for row in found.first_calls[:MOST_LINES]],
        "peers": [_peers(row) for row in found.peers[:MOST_LINES]],
        "matrices": _matrices(found.ordering),
        "semantics": _semantics(found),
        "unasked": not found.semantics,
    }


def _headline(source: Source, found: P2p) -> tuple[str, str]:
    """Tone, and the answer in a few words."""
    said = []
    if found.wrong:
        said.append(f"WRONG DATA in {count_text(found.wrong, 'message')}")
    if found.leftover_processes:
        said.append(f"{count_text(found.leftover_processes, 'process', 'processes')} left behind")
    stuck = [row for row in found.ordering if row["outcome"] != "completed"]
    unsafe = [row for row in stuck if row["safe"]]
    if stuck:
        orders = count_text(len(found.ordering), "order")
        said.append(f"{len(stuck)} of {orders} of calling {'do' if len(stuck) != 1 else 'does'} not end")
    elif found.ordering:
        said.append("every order of calling that was tried ends")
    told = outcomes_of(found.semantics)
    if told.asked:
        otherwise, asked = len(told.otherwise), count_text(len(told.asked), "question")
        said.append(f"torch does otherwise than one would think in {otherwise} of {asked}")
    if told.unanswered:
        said.append(f"{count_text(len(told.unanswered), 'question')} unanswered")
    if not (found.ordering or told.asked):
        said += _measured(source, found)
    if not said:
        said.append("nothing measured")
    ending = ending_of(source.run, "the run failed")
    if ending is not None:
        said.append(ending)
    tone = (
        "bad"
        if found.wrong or found.leftover_processes or unsafe
        else "warn"
        if ending or stuck or told.unanswered
        else "good"
    )
    headline = ", ".join(said)
    return tone, f"{headline[0].upper()}{headline[1:]}"


def _measured(source: Source, found: P2p) -> list[str]:
    """What there is where no question has an answer, and whether its data were right."""
    said = []
    if found.rows:
        said.append(f"{count_text(len(found.rows), 'row')} measured")
    said += [
        f"{words} measured"
        for words, rows in (("first messages", found.first_calls), ("several peers", found.peers))
        if rows and not found.rows
    ]
    if (found.rows or found.peers) and not found.wrong:
        asked = source.run.meta.get("asked")
        unchecked = isinstance(asked, dict) and asked.get("check") == 0
        said.append("data not checked" if unchecked else "data right")
    return said


def _notes(source: Source, found: P2p) -> list[str]:
    notes = [f"{SHARED_GPU[:1].upper()}{SHARED_GPU[1:]}."] if source.run.plan.share_gpu else []
    if source.run.meta.get("status") in ("failed", "interrupted") and source.run.meta.get("message"):
        notes.append(str(source.run.meta["message"]))
    notes += [f"{arm['arm']} is not here: {arm['reason']}" for arm in found.arms if arm["reason"]]
    for line in found.left_out:
        where = f" on {line['arm']}" if line["arm"] else ""
        notes.append(f"Left out: {line['part']}{where}: {line['reason']}")
    return notes


def _place(source: Source, found: P2p) -> str:
    arms = [f"{arm['arm']}: {arm['implementation']}" for arm in found.arms if arm["implementation"]]
    named = list_text(arms or [arm.id for arm in source.run.plan.arms])
    return f"{named}, {count_text(source.run.plan.nranks, 'rank')}"


def _said(found: P2p) -> list[str]:
    """The findings in sentences, the gravest first."""
    said = []
    for row in found.ordering:
        if row["outcome"] != "completed":
            smallest = ", the smallest that was tried" if row["completed_to_nbytes"] is None else ""
            what = row["description"] or row["order"]
            said.append(
                f"{row['order']} on {row['arm']} ({what}): {row['outcome']} from "
                f"{size_words(row['from_nbytes'])} on{smallest}."
            )
    for arm, own in by_arm(found.rows).items():
        quoted = quotable(own)
        if quoted is not None:
            said.append(f"{arm}: {_latency(quoted[0])}; {_bandwidth(quoted[1])}.")
    for row in sorted(found.first_calls, key=lambda row: -row["first_us"])[:1]:
        said.append(
            f"A first message takes {time_text(row['first_us'])}, at worst "
            f"{time_text(row['first_worst_us'])} (rank {row['dst']} on {row['arm']}), "
            f"later ones {time_text(row['later_us'])}."
        )
    return said


def _latency(row: Row) -> str:
    size = f"{row['way']} of {size_words(row['nbytes'])}"
    if row["round_trip"]:
        return f"latency {time_text(row['latency_us'])}{_interval(row)} (half of a {size})"
    return f"a {size} is there after {time_text(row['latency_us'])}{_interval(row)}"


def _interval(row: Row) -> str:
    if row["ci_low_us"] is None:
        return ""
    return f", 95 % interval {time_text(row['ci_low_us'])} – {time_text(row['ci_high_us'])}"


def _bandwidth(row: Row) -> str:
    what = f"{row['way']} of {size_words(row['nbytes'])}"
    return f"most bandwidth one way {rate_text(row['bandwidth_GBs'])} ({what})"


def _way(row: Row) -> dict[str, Any]:
    rate = row["bandwidth_GBs"]
    low, high = row["ci_low_us"], row["ci_high_us"]
    return {
        "way": way_words(row),
        "arm": row["arm"],
        "size": format_bytes(row["nbytes"]),
        "cells": [
            time_text(row["host_us"]),
            time_text(row["free_us"]),
            time_text(row["total_us"]),
            time_text(row["latency_us"]),
            "–" if low is None or high is None else f"{time_text(low)} – {time_text(high)}",
            "–" if rate is None else rate_text(rate),
            f"{row['n']:,}",
        ],
        "wrong": row["wrong"],
    }


def _first(row: Row) -> list[str]:
    return [
        row["arm"],
        f"rank {row['dst']}",
        time_text(row["first_us"]),
        time_text(row["first_worst_us"]),
        time_text(row["later_us"]),
        "–" if row["ratio"] is None else f"{three_digits(row['ratio'])}x",
        time_text(row["init_us"]),
        time_text(row["cold_us"]),
    ]


def _peers(row: Row) -> list[str]:
    return [
        row["arm"],
        f"{row['peers']}{' and ' + row['beside'] if row['beside'] else ''}",
        format_bytes(row["nbytes"]),
        time_text(row["total_us"]),
        time_text(row["one_us"]),
        "–" if row["beside_us"] is None else time_text(row["beside_us"]),
        "–" if row["ratio"] is None else ratio_text(row["ratio"]),
        "–" if row["ci_low"] is None else f"{ratio_text(row['ci_low'])} – {ratio_text(row['ci_high'])}",
        "–" if row["ratio_at_best"] is None else ratio_text(row["ratio_at_best"]),
    ]


def _matrices(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each arm the orders over the sizes that were tried on any of them."""
    matrices = []
    for arm, own in by_arm(rows).items():
        sizes = sorted({cell["nbytes"] for row in own for cell in row["cells"]})
        matrices.append(
            {
                "arm": arm,
                "sizes": [format_bytes(nbytes) for nbytes in sizes],
                "lines": [
                    {
                        "order": row["order"],
                        "description": row["description"] or "",
                        "safe": row["safe"],
                        "cells": [_cell(row, nbytes) for nbytes in sizes],
                        "stood": row["stood"],
                    }
                    for row in own
                ],
            }
        )
    return matrices


def _cell(row: Row, nbytes: int) -> dict[str, str]:
    """One size of an order: as it was seen, or as it follows from what was seen."""
    seen = next((cell for cell in row["cells"] if cell["nbytes"] == nbytes), None)
    if seen is not None:
        said = "; ".join(f"rank {rank} {words}" for rank, words in seen["said"].items())
        text = "WRONG" if seen["wrong"] else _SHORT[seen["outcome"]]
        return {"kind": "raised" if seen["wrong"] else seen["outcome"], "text": text, "title": said}
    start = row["from_nbytes"]
    follows = "completed" if start is None or nbytes < start else row["outcome"]
    return {"kind": "untried", "text": f"({_SHORT[follows]})", "title": "not tried: it follows from others"}


def _semantics(found: P2p) -> list[dict[str, Any]]:
    """Every question, with what was seen of it on each arm; also those that were not asked."""
    seen: dict[str, list[Row]] = {}
    for row in found.semantics:
        seen.setdefault(row["check"], []).append(row)
    entries = []
    for name in dict.fromkeys([*SEMANTICS, *seen]):
        question = SEMANTICS.get(name)
        expected = "as one would think" if question and question.silent else "as documented"
        entries.append(
            {
                "question": question.question if question else name,
                "documented": question.documented if question else "",
                "answers": [
                    {
                        "arm": row["arm"],
                        "outcome": _OUTCOMES.get(row["outcome"], expected),
                        "mark": row["outcome"] in ("otherwise", "unanswered"),
                        "said": row["said"],
                    }
                    for row in seen.get(name, [])
                ],
            }
        )
    return entries
