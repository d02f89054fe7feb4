"""What printed figures can mean: rounding, bandwidth from size and time, ranks from busbw over algbw.

A figure printed as 12.34 stands for anything from 12.335 to 12.345. What a tool printed agrees within that
rounding; what was typed again or changed may not, and beyond 1 % more it contradicts itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

# How far figures may be apart beyond their rounding, and the slack for printing the binary number itself.
TOLERANCE = 0.01
_SLACK = 1e-9

MOST_RANKS = 1 << 20

# How busbw follows from algbw: 2(n-1)/n, (n-1)/n, or not at all. Source: nccl-tests, src/*.cu, GetBw.
Factor = Literal["twice", "part", "one"]

_FIGURE = re.compile(r"(\d{1,20})(?:\.(\d{1,12}))?(?:[eE]([+-]?\d{1,2}))?", re.ASCII)


class Span(NamedTuple):
    """From ``low`` to ``high``, both included."""

    low: float
    high: float

    def meets(self, other: Span, tolerance: float) -> bool:
        """Whether they share a value when one of them may be ``tolerance`` (a fraction) off."""
        return self.low * (1 - tolerance) <= other.high * (1 + _SLACK) and other.low <= self.high * (
            1 + tolerance
        ) * (1 + _SLACK)


class Fit(IntEnum):
    """How well figures agree: not at all, within 1 % beyond their rounding, or within their rounding."""

    NO = 0
    NEARLY = 1
    EXACT = 2


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as printed: its value, half a unit of its last digit, and its digits after the point."""

    value: float
    half: float
    decimals: int

    @property
    def span(self) -> Span:
        """What it may stand for."""
        return Span(max(0.0, self.value - self.half), self.value + self.half)

    @property
    def is_sharp(self) -> bool:
        """Whether its digits hold it to 1 %."""
        return self.value > 0 and self.half <= TOLERANCE * self.value


def figure(text: str, scale: float = 1.0) -> Figure | None:
    """The number of that text in units of ``scale``; None for N/A, inf, nan, a sign or anything else."""
    match = _FIGURE.fullmatch(text)
    if match is None:
        return None
    fraction = match[2] or ""
    unit = 10.0 ** (int(match[3] or 0) - len(fraction)) * scale
    value = float(text) * scale
    return Figure(value, unit / 2, len(fraction))


def rate_GBs(nbytes: int, time_us: Figure) -> Span:
    """Bandwidths that a size over that time may be."""
    low, high = time_us.span
    return Span(nbytes / high / 1e3 if high else math.inf, nbytes / low / 1e3 if low else math.inf)


def agree(first: Span, second: Span) -> Fit:
    """How well two spans of one quantity agree."""
    if first.meets(second, 0.0):
        return Fit.EXACT
    return Fit.NEARLY if first.meets(second, TOLERANCE) else Fit.NO


def factor_of(kind: Factor, nranks: int) -> float:
    """busbw over algbw on that many ranks."""
    part = (nranks - 1) / nranks
    return {"twice": 2 * part, "part": part, "one": 1.0}[kind]


def ratio(algbw: Span, busbw: Span) -> Span:
    """What busbw over algbw may be."""
    return Span(
        busbw.low / algbw.high if algbw.high else 0.0, busbw.high / algbw.low if algbw.low else math.inf
    )


def ranks_between(kind: Factor, factor: Span) -> tuple[int, int]:
    """Fewest and most ranks whose factor lies in the span; (1, 0) if none, up to MOST_RANKS.

    n = 1/(1 - f) where f = (n-1)/n, which grows with n; for 2(n-1)/n likewise with half of it.
    """
    scale = 0.5 if kind == "twice" else 1.0
    low, high = factor.low * scale * (1 - _SLACK), factor.high * scale * (1 + _SLACK)
    if low >= 1:
        return 1, 0
    fewest = max(1, math.ceil(1 / (1 - low) - 1e-6))
    most = MOST_RANKS if high >= 1 else min(MOST_RANKS, math.floor(1 / (1 - high) + 1e-6))
    return fewest, most


class Votes(NamedTuple):
    """Ranks that most cells allow: from ``fewest`` to ``most``, by ``agreeing`` of ``cells``."""

    fewest: int
    most: int
    agreeing: int
    cells: int

    @property
    def nranks(self) -> int | None:
        """The number of ranks, where the cells leave one and all but a tenth of them (or one) allow it."""
        allowed = self.agreeing >= min(0.9 * self.cells, max(self.cells - 1, 0.5))
        return self.fewest if self.fewest == self.most and self.agreeing and allowed else None


def vote(ranges: Iterable[tuple[int, int]]) -> Votes:
    """The ranks that the most ranges hold."""
    cells = 0
    edges: list[tuple[int, int]] = []
    for fewest, most in ranges:
        cells += 1
        if fewest <= most:
            edges += ((fewest, 1), (most + 1, -1))
    edges.sort()
    best, depth, found = 0, 0, (1, 0)
    for index, (place, step) in enumerate(edges):
        depth += step
        following = edges[index + 1][0] if index + 1 < len(edges) else place
        if following > place and depth > best:
            best, found = depth, (place, following - 1)
    return Votes(*found, best, cells)
