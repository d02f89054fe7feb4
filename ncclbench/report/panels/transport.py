"""Panel: weights from a trainer to generators: which way is faster, whom it holds up, what breaks."""

from __future__ import annotations

from typing import Any

from ncclbench.plan.model import SHARED_GPU
from ncclbench.report.endings import ending_of
from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import rate_text, ratio_text, time_text
from ncclbench.report.transferring import interval_text, latency_figure, times_figure
from ncclbench.stats.transport import (
    LatencyRow,
    OverEpochs,
    WayRow,
    latency_rows,
    transfer_faults,
    transfer_rows,
    way_name,
)
from ncclbench.stats.transport_words import (
    FROZEN,
    NOT_THE_SAME,
    TORN,
    fault_words,
    headline,
    sentence,
    why_not_twice,
)
from ncclbench.store.model import Run
from ncclbench.store.transfers import TRANSFER_LINES, TransferFault
from ncclbench.units import count_text, format_bytes

# Rows in the table; ``transport --json`` has all.
MOST_ROWS = 100


def build(report: Report) -> Content | None:
    """One block for each transport run; nothing for other runs."""
    found = [source for source in report.sources if source.run.meta.get("kind") == "transport"]
    if not found:
        return None
    blocks = [_block(source, number) for number, source in enumerate(found)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="transport",
    order=-9,
    title="Weights to generators",
    description="",
    build=build,
    template="transport.html",
)


def _block(source: Source, number: int) -> dict[str, Any]:
    run = source.run
    results = [result for result in run.results if isinstance(result, TRANSFER_LINES)]
    rows, latency, faults = (
        transfer_rows(results, run.plan.share_gpu),
        latency_rows(results),
        transfer_faults(results),
    )
    measured = [row for row in rows if row.total_us is not None]
    figures = (
        times_figure(measured[:MOST_ROWS], f"ways-{number}"),
        latency_figure(latency[: 4 * MOST_ROWS], f"messages-{number}"),
    )
    said = headline(rows, time_text)
    ending = ending_of(run, "the run failed")
    wrong = any(row.status == "wrong" for row in rows)
    kinds = {row.kind for row in measured}
    return {
        "run": source.label,
        "tone": "bad" if wrong else "good" if measured and not ending else "warn",
        "headline": f"{said[0].upper()}{said[1:]}",
        "ending": ": ".join(filter(None, (ending, run.meta.get("message")))) if ending else "",
        "place": _place(run, measured),
        "sentences": [sentence(row, time_text) for row in measured[:MOST_ROWS]],
        "words": [
            *([f"{SHARED_GPU[:1].upper()}{SHARED_GPU[1:]}."] if run.plan.share_gpu else []),
            *([NOT_THE_SAME] if len(kinds) == 2 else []),
            *([TORN] if any(row.torn for row in measured) else []),
            *([FROZEN] if "one-sided" in kinds else []),
        ],
        "why_not": why_not_twice(rows, _cores(run)) or "",
        "rows": [_row(row) for row in measured[:MOST_ROWS]],
        "missing": [f"{row.name}: {row.reason}" for row in rows if row.status == "unavailable"][:MOST_ROWS],
        "figures": [figure for figure in figures if figure is not None],
        "sizes": [format_bytes(size) for size in _sizes(latency)],
        "latency": _latency(latency),
        "faults": [_fault(fault) for fault in faults[: 4 * MOST_ROWS]],
    }


def _place(run: Run, rows: list[WayRow]) -> str:
    """What was moved where: "256M in 65 tensors, 1 trainer and 2 generators"."""
    if not rows:
        return ""
    first = rows[0]
    tensors, generators = (count_text(number or 0, noun) for number, noun in _counts(first))
    hosts = run.meta.get("environment", {}).get("hosts")
    where = f" on {count_text(len(hosts), 'host')}" if isinstance(hosts, list) and hosts else ""
    return f"{format_bytes(first.nbytes or 0)} of weights in {tensors}, 1 trainer and {generators}{where}"


def _counts(row: WayRow) -> tuple[tuple[int | None, str], tuple[int | None, str]]:
    return (row.tensors, "tensor"), (row.generators, "generator")


def _cores(run: Run) -> float | None:
    """Cores that the ranks may use together, where all are alike; None where that is not known."""
    environment = run.meta.get("environment")
    share = environment.get("common") if isinstance(environment, dict) else None
    cores = share.get("usable_cores") if isinstance(share, dict) else None
    return float(cores) if isinstance(cores, int | float) and not isinstance(cores, bool) else None


def _row(row: WayRow) -> dict[str, Any]:
    against = row.against
    interval = ""
    if against is not None and against.low is not None and against.high is not None:
        interval = f"{ratio_text(against.low)} – {ratio_text(against.high)}"
    return {
        "name": row.name,
        "kind": row.kind,
        "total": _time(row.total_us),
        "interval": "–" if row.total_us is None else interval_text(row.total_us),
        "rate": "–" if row.GBs is None else rate_text(row.GBs),
        "ratio": "–" if against is None else ratio_text(against.ratio),
        "ratio_interval": interval or "–",
        "verdict": "–" if against is None else against.verdict,
        "times": [_time(one) for one in (row.trainer_us, row.frozen_us, row.generator_us, row.stale_us)],
        "slowdown": "–" if row.slowdown is None else ratio_text(row.slowdown),
        "torn": f"{row.torn:,} of {row.steps:,}" if row.steps else "–",
        "wrong": f"{row.wrong:,}" if row.wrong is not None else "–",
        "is_wrong": row.status == "wrong",
        "n": f"{row.n:,} in {count_text(row.epochs, 'epoch')}",
    }


def _time(found: OverEpochs | None) -> str:
    return "–" if found is None else time_text(found.median)


def _sizes(latency: list[LatencyRow]) -> list[int]:
    return sorted({row.nbytes for row in latency})[:8]


def _latency(latency: list[LatencyRow]) -> list[dict[str, Any]]:
    by_way: dict[str, dict[int, LatencyRow]] = {}
    for row in latency:
        by_way.setdefault(way_name(row.way, row.arm), {})[row.nbytes] = row
    return [
        {
            "name": name,
            "times": [_time(own[size].total_us) if size in own else "–" for size in _sizes(latency)],
        }
        for name, own in list(by_way.items())[:MOST_ROWS]
    ]


def _fault(fault: TransferFault) -> dict[str, Any]:
    done, seen = fault_words(fault)
    return {
        "way": way_name(fault.way, fault.arm),
        "done": done,
        "seen": seen,
        "bad": fault.outcome in ("hung", "crashed", "not-made"),
        "after": time_text(1e6 * fault.seconds),
        "said": fault.said,
    }
