"""Alpha-beta fits in words: what stands in the cells of their tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ncclbench.report.text import list_text, rate_text, three_digits, time_text
from ncclbench.stats.alphabeta import Estimate, Segment
from ncclbench.stats.fits import CurveFit
from ncclbench.units import format_bytes, format_percent

DESCRIPTION = (
    "Time = time at no size + size / bandwidth, fitted to the logarithms in up to three segments, since "
    "protocols change with the size. In brackets: 95 % intervals."
)

# What the columns are, for the page to say.
WORDS = {
    "at no size": "time of a message of no size, from the smallest sizes: a latency where each operation is "
    "waited for or follows in a graph, else the shortest time per operation in a row",
    "bandwidth": "bus bandwidth that the largest sizes come near to",
    "half bandwidth from": "size from which the curve stays above half of that bandwidth (n_1/2)",
    "twice as long at": "size at which it takes twice the time at no size; beyond it size counts more",
}

Line = dict[str, Any]


def fit_line(found: CurveFit) -> Line:
    """The cells of one curve in the order of ``WORDS``, and a ``note``."""
    figures = found.fit.figures
    bandwidth = figures["bandwidth_GBs"]
    if found.factor:
        bandwidth = _times(bandwidth, found.factor)
    return {
        "cells": [
            _cell(figures["latency_us"], time_text, found.alpha_is),
            _cell(bandwidth, rate_text),
            _cell(figures["half_bytes"], size_text),
            _cell(figures["latency_bound_bytes"], size_text),
        ],
        "note": note_text(found),
    }


def note_text(found: CurveFit) -> str:
    """Where the segments begin, how well they fit, and why figures or intervals are missing."""
    fit = found.fit
    if fit.why is not None:
        return fit.why
    parts = []
    if len(fit.segments) > 1:
        parts.append(f"changes between {list_text(_switches(fit.segments))}")
    if fit.misfit is not None:
        parts.append(f"fits to ±{format_percent(fit.misfit)}")
    if not found.factor:
        parts.append("bandwidth is bytes over time")
    by_reason: dict[str, list[str]] = {}
    for name, estimate in fit.figures.items():
        if estimate.why is not None:
            by_reason.setdefault(estimate.why, []).append(_NAMES[name])
    for why, names in by_reason.items():
        parts.append(why if len(names) == len(_NAMES) else f"{list_text(names)}: {why}")
    return "; ".join(parts)


_NAMES = {
    "latency_us": "at no size",
    "bandwidth_GBs": "bandwidth",
    "half_bytes": "half of it",
    "latency_bound_bytes": "twice as long",
}


def size_text(nbytes: float) -> str:
    """A size that need not be a whole number of anything, to three digits: "5.72M"."""
    for suffix, factor in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if nbytes >= factor:
            return f"{three_digits(nbytes / factor)}{suffix}"
    return three_digits(nbytes)


def _switches(segments: tuple[Segment, ...]) -> list[str]:
    return [
        f"{format_bytes(int(before.last_bytes))} and {format_bytes(int(after.first_bytes))}"
        for before, after in pairwise(segments)
    ]


def _times(estimate: Estimate, factor: float) -> Estimate:
    value, low, high = (
        None if each is None else each * factor for each in (estimate.value, estimate.low, estimate.high)
    )
    return Estimate(value, low, high, estimate.why)


def _cell(estimate: Estimate, text: Callable[[float], str], what: str = "") -> dict[str, str]:
    """A figure; ``what``: what it is, where the column does not tell."""
    if estimate.value is None:
        return {"value": "–", "interval": "", "what": "", "why": estimate.why or ""}
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f"[{text(estimate.low)}, {text(estimate.high)}]"
    return {"value": text(estimate.value), "interval": interval, "what": what, "why": estimate.why or ""}
