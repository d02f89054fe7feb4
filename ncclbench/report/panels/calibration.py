"""Panel: the calibrations of the machines the runs were made on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ncclbench.report.calibrations import Calibration, usable_calibration
from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import ratio_text
from ncclbench.store.calibrations import Resolution
from ncclbench.store.model import Run
from ncclbench.units import count_text, format_bytes, format_percent

DESCRIPTION = (
    "Equal arms compared on the same machine: how often they were called different, and how small a "
    "difference can be found alone with 90 % power."
)


def build(report: Report) -> Content | None:
    """One block per calibration; nothing where no run holds one."""
    return calibration_blocks((source.label, source.run) for source in report.sources)


def calibration_blocks(named: Iterable[tuple[str, Run]]) -> Content | None:
    """The calibrations of runs, each once, with the names of the runs that hold it."""
    found: dict[tuple[str, str], tuple[Calibration, list[str]]] = {}
    for label, run in named:
        calibration = usable_calibration(run.meta)
        if calibration is not None:
            key = (calibration.created, " ".join(calibration.hosts))
            found.setdefault(key, (calibration, []))[1].append(label)
    blocks = [_block(calibration, labels) for calibration, labels in found.values()]
    return {"blocks": blocks} if blocks else None


PANEL = Panel(
    name="calibration",
    order=65,
    title="Calibration",
    description=DESCRIPTION,
    build=build,
    template="calibration.html",
)


def _block(calibration: Calibration, labels: list[str]) -> dict[str, Any]:
    return {
        "labels": ", ".join(labels),
        "line": calibration.line,
        "place": f"On {', '.join(calibration.hosts)}: {count_text(calibration.nranks, 'rank')}, "
        f"{calibration.backend}, {calibration.device}; {calibration.same} of "
        f"{count_text(calibration.comparisons, 'pair')} called the same.",
        "budget": calibration.budget,
        "lines": [_line(entry) for entry in calibration.resolution],
        "advice": calibration.advice,
    }


def _line(entry: Resolution) -> list[str]:
    """The cells of one case."""
    flags = {"drifts": entry.drifts, "correlated": entry.correlated, "warming": entry.warming}
    beside = entry.beside_over_alone
    return [
        f"{entry.op} {entry.dtype}",
        format_bytes(entry.nbytes),
        entry.mode,
        entry.statistic,
        _percent(entry.smallest),
        "–" if entry.epochs is None else f"{entry.epochs:,}",
        _percent(entry.spread),
        *map(_percent, (entry.spread_process, entry.spread_group, entry.spread_iteration)),
        "–" if beside is None else ratio_text(beside.ratio),
        ", ".join(word for word, flagged in flags.items() if flagged),
    ]


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else format_percent(fraction)
