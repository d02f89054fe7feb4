"""Latency and bandwidth of a curve of times over message sizes: the alpha-beta model, in segments.

The model is Hockney's: time = alpha + size / beta, with the latency alpha (of operations that follow each
other without a wait the shortest time per operation, which is no latency), the asymptotic bandwidth beta
(his r_inf) and the half-performance size n_1/2 = alpha * beta, at which half of beta is reached (R. W.
Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 20, 1994).
A library that changes its protocol or algorithm with the size has other parameters from there on, so that a
curve may be of up to three segments.

Times span decades and vary by factors, so residuals are of logarithms: in a fit of the times themselves the
largest sizes alone would decide. With r = 1 / n_1/2 the model is log(time) = log(alpha) + log(1 + r * size),
where for every r the best alpha is known; so a segment is a search over one number.

Breaks are chosen by the Bayesian information criterion with three parameters to a segment (alpha, beta and
where it begins; Yao, "Estimating the number of change-points via Schwarz' criterion", Stat. Probab. Lett.
1988), in which residuals below ``NEGLIGIBLE`` count as none: no model of two numbers is true to a percent.

Intervals are over epochs (or launches): with the breaks held fixed each epoch is fitted on its own, and a t
interval of the logarithms of what came out is put around the fit of all. Epochs share what their process
groups drew over all of their sizes, so that sizes are no independent observations: the delta method and the
profile likelihood of one curve, which take them for that, give intervals that are too narrow. Simulated
coverage stands in docs/performance.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from ncclbench.stats.intervals import Floats, log_mean
from ncclbench.units import format_bytes

MOST_SEGMENTS = 3
# Of a segment: two parameters, and as many points again that could contradict them.
FEWEST_POINTS = 4
FEWEST_SIZES = 6
# Largest over smallest size: less shows one end of the curve at best.
FEWEST_DECADES = 2.0
# Standard deviation of the logarithms that a fit is not improved for.
NEGLIGIBLE = 0.02
# Beyond it, over what the epochs' scatter explains, the curve is none of this model.
MOST_MISFIT = 0.12
# A limit of the curve is known where so many sizes lie beyond the half-way point to it.
FEWEST_BEYOND = 2

_GRID_PER_DECADE = 64
# Of a curve with more sizes, breaks are looked for at so many.
_MOST_BREAKS = 48

Curve = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One figure of a fit.

    Attributes:
        value: None where the curve does not show it.
        low, high: 95 % interval; None where there is none.
        why: in words, why there is no value, or else why there is no interval.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Sizes over which one pair of parameters holds.

    Attributes:
        first_bytes, last_bytes: measured sizes at its ends.
        alpha_us: time of a message of no size, by this segment.
        us_per_byte: 1 / beta.
    """

    first_bytes: float
    last_bytes: float
    alpha_us: float
    us_per_byte: float

    def time_us(self, nbytes: float) -> float:
        """Time of one operation."""
        return self.alpha_us + nbytes * self.us_per_byte

    @property
    def half_bytes(self) -> float:
        """n_1/2 of the segment: where both parts of the time are equal."""
        return self.alpha_us / self.us_per_byte


@dataclass(frozen=True, slots=True)
class Fit:
    """What a curve says in a few figures.

    Attributes:
        figures: by name in ``FIGURES``.
        segments: in order of size; none where nothing was fitted.
        misfit: standard deviation of the residuals' logarithms: 0.03 is 3 %. None where nothing was fitted.
        sizes, units: how many sizes, and epochs or launches.
        why: in words, why the curve has no figures at all; None where it has.
    """

    figures: dict[str, Estimate]
    segments: tuple[Segment, ...]
    misfit: float | None
    sizes: int
    units: int
    why: str | None = None

    def time_us(self, nbytes: float) -> float | None:
        """Time of one operation by the fit; None where nothing was fitted."""
        for segment in self.segments:
            if nbytes <= segment.last_bytes or segment is self.segments[-1]:
                return segment.time_us(nbytes)
        return None


def fit_curve(sizes: Sequence[float] | Curve, epochs_us: Sequence[Sequence[float]] | Curve) -> Fit:
    """The alpha-beta model of one curve.

    Args:
        sizes: in bytes, rising, all above 0, shape (sizes,).
        epochs_us: the time of one operation at each size in each epoch or launch, shape (epochs, sizes).
    """
    bytes_ = np.asarray(sizes, dtype=np.float64)
    times = np.atleast_2d(np.asarray(epochs_us, dtype=np.float64))
    units, count = times.shape
    if (why := _why_not(bytes_, times)) is not None:
        return _nothing(count, units, why)
    logs = np.log(times)
    curve = logs.mean(axis=0)
    bounds = _choose_bounds(bytes_, curve)
    segments = _segments(bytes_, curve, bounds)
    residuals = curve - _fitted_logs(segments, bytes_, bounds)
    freedom = max(1, count - 3 * len(segments) + 1)
    variance = float(residuals @ residuals) / freedom
    misfit = math.sqrt(variance)
    unexplained = math.sqrt(max(0.0, variance - _noise(logs)))
    if unexplained > MOST_MISFIT:
        why = _unlike(bytes_, residuals, unexplained)
        return _nothing(count, units, why, misfit)
    each = [_segments(bytes_, epoch, bounds) for epoch in logs] if units > 1 else []
    reasons = _reasons(bytes_, segments)
    found = {name: _estimate(name, segments, each, reasons.get(name)) for name in FIGURES}
    return Fit(found, segments, misfit, count, units)


def _why_not(sizes: Curve, times: Curve) -> str | None:
    if sizes.size < FEWEST_SIZES:
        return f"{sizes.size} sizes: a fit needs {FEWEST_SIZES}"
    if math.log10(sizes[-1] / sizes[0]) < FEWEST_DECADES:
        return f"sizes span a factor of {sizes[-1] / sizes[0]:.3g}: a fit needs {10**FEWEST_DECADES:g}"
    if not bool((times > 0).all()):
        return "some times are zero: the clock is too coarse"
    return None


def _nothing(sizes: int, units: int, why: str, misfit: float | None = None) -> Fit:
    return Fit(dict.fromkeys(FIGURES, Estimate(None, why=why)), (), misfit, sizes, units, why)


# --- segments


def _choose_bounds(sizes: Curve, curve: Curve) -> list[tuple[int, int]]:
    """First index and end of each segment, of as many segments as the criterion supports."""
    count = sizes.size
    breaks = np.unique(np.linspace(0, count, min(count, _MOST_BREAKS) + 1).round().astype(int))
    rss = _stretches(sizes, curve, breaks)
    best: tuple[float, list[tuple[int, int]]] | None = None
    for number in range(1, MOST_SEGMENTS + 1):
        for chosen in combinations(range(1, breaks.size - 1), number - 1):
            parts = list(pairwise((0, *chosen, breaks.size - 1)))
            bounds = [(int(breaks[first]), int(breaks[end])) for first, end in parts]
            if min(end - first for first, end in bounds) < FEWEST_POINTS:
                continue
            cost = sum(rss[part] for part in parts)
            criterion = count * math.log(cost / count + NEGLIGIBLE**2) + 3 * number * math.log(count)
            if best is None or criterion < best[0]:
                best = criterion, bounds
    assert best is not None  # one segment always holds enough points
    return best[1]


def _stretches(sizes: Curve, curve: Curve, breaks: NDArray[np.int_]) -> Curve:
    """Sum of squared residuals of the best fit between any two breaks, shape (breaks, breaks)."""
    low, high = _rate_range(sizes)
    rates = np.geomspace(low, high, math.ceil(_GRID_PER_DECADE * math.log10(high / low)) + 1)
    left = curve - np.log1p(rates[:, np.newaxis] * sizes)
    left -= left.mean(axis=1, keepdims=True)  # keeps the differences of sums below exact
    none = np.zeros((rates.size, 1))
    sums = np.hstack([none, np.cumsum(left, axis=1)])[:, breaks]
    squares = np.hstack([none, np.cumsum(left**2, axis=1)])[:, breaks]
    rss = np.full((breaks.size, breaks.size), np.inf)
    for first in range(breaks.size - 1):
        lengths = breaks[first + 1 :] - breaks[first]
        whole = sums[:, first + 1 :] - sums[:, [first]]
        over_rates = squares[:, first + 1 :] - squares[:, [first]] - whole**2 / lengths
        rss[first, first + 1 :] = np.maximum(over_rates.min(axis=0), 0.0)
    return rss


def _rate_range(sizes: Curve) -> tuple[float, float]:
    """Bounds of r: below the lower the curve is flat to 0.1 %, above the upper alpha is 0.1 % of any time."""
    return 1e-3 / float(sizes[-1]), 1e3 / float(sizes[0])


def _segments(sizes: Curve, curve: Curve, bounds: Sequence[tuple[int, int]]) -> tuple[Segment, ...]:
    return tuple(_segment(sizes[first:end], curve[first:end]) for first, end in bounds)


def _segment(sizes: Curve, curve: Curve) -> Segment:
    """Least squares of the logarithms, over r alone."""
    # Here, so that what only names a fit does not pay for it.
    from scipy.optimize import minimize_scalar

    def left(log_rate: float) -> Curve:
        residuals: Curve = curve - np.log1p(math.exp(log_rate) * sizes)
        return residuals

    # The sum of squares may have several minima; the grid finds the valley of the lowest.
    low, high = map(math.log, _rate_range(sizes))
    grid = np.linspace(low, high, 64)
    spreads = (curve - np.log1p(np.exp(grid)[:, np.newaxis] * sizes)).var(axis=1)
    valley, step = float(grid[int(spreads.argmin())]), float(grid[1] - grid[0])
    found = minimize_scalar(
        lambda log_rate: float(left(log_rate).var()),
        bounds=(max(low, valley - step), min(high, valley + step)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    alpha_us = math.exp(float(left(found.x).mean()))
    return Segment(float(sizes[0]), float(sizes[-1]), alpha_us, alpha_us * math.exp(found.x))


def _fitted_logs(segments: Sequence[Segment], sizes: Curve, bounds: Sequence[tuple[int, int]]) -> Curve:
    parts = [
        segment.alpha_us + sizes[first:end] * segment.us_per_byte
        for segment, (first, end) in zip(segments, bounds, strict=True)
    ]
    return np.log(np.concatenate(parts))


def _noise(logs: Floats) -> float:
    """Variance that the epochs' scatter leaves in their mean, without what all sizes of an epoch share."""
    units = len(logs)
    if units < 2:
        return 0.0
    apart = logs - logs.mean(axis=1, keepdims=True)
    return float(np.mean(apart.var(axis=0, ddof=1))) / units


def _unlike(sizes: Curve, residuals: Curve, unexplained: float) -> str:
    """Where a curve leaves the model most."""
    jumps = np.abs(np.diff(residuals))
    place = format_bytes(int(sizes[int(jumps.argmax()) + 1]))
    return (
        f"times are {100 * unexplained:.0f} % off alpha plus size over bandwidth, in up to "
        f"{MOST_SEGMENTS} segments: they go in steps, the largest at {place}"
    )


# --- figures


def _latency_us(segments: Sequence[Segment]) -> float | None:
    return segments[0].alpha_us


def _bandwidth_GBs(segments: Sequence[Segment]) -> float | None:
    return 1e-3 / segments[-1].us_per_byte


def _half_bytes(segments: Sequence[Segment]) -> float | None:
    """From the largest size down: where the rate first falls below half of the last segment's."""
    least = 2 * segments[-1].us_per_byte
    reached = None
    for index in range(len(segments) - 1, -1, -1):
        segment = segments[index]
        first = 0.0 if index == 0 else math.sqrt(segments[index - 1].last_bytes * segment.first_bytes)
        # time <= least * size from here on; never where the segment's own beta is under half.
        gain = least - segment.us_per_byte
        crossing = segment.alpha_us / gain if gain > 0 else math.inf
        if reached is not None and crossing > reached:
            return reached
        if crossing > first:
            return crossing
        reached = first
    return None


def _latency_bound_bytes(segments: Sequence[Segment]) -> float | None:
    """From the smallest size up: where a time first is twice the latency."""
    twice_us = 2 * segments[0].alpha_us
    for index, segment in enumerate(segments):
        first = 0.0 if index == 0 else math.sqrt(segments[index - 1].last_bytes * segment.first_bytes)
        crossing = max(first, (twice_us - segment.alpha_us) / segment.us_per_byte)
        if crossing <= segment.last_bytes:
            return crossing
    return None


_Figure = Callable[[Sequence[Segment]], float | None]

# latency_us: alpha of the first segment. bandwidth_GBs: beta of the last, of algorithm bandwidth in 1e9 bytes
# per second. half_bytes: the smallest size from which the curve stays above half of that bandwidth; with one
# segment alpha * beta. latency_bound_bytes: the size at which an operation takes twice the latency, so that
# from there on more of its time goes with the size than not; with one segment the same.
FIGURES: dict[str, _Figure] = {
    "latency_us": _latency_us,
    "bandwidth_GBs": _bandwidth_GBs,
    "half_bytes": _half_bytes,
    "latency_bound_bytes": _latency_bound_bytes,
}


def _reasons(sizes: Curve, segments: Sequence[Segment]) -> dict[str, str]:
    """Why a figure is not shown by the curve, by its name."""
    first, last = segments[0], segments[-1]
    own = sizes[sizes <= first.last_bytes]
    reasons: dict[str, str] = {}
    if (own <= first.half_bytes).sum() < FEWEST_BEYOND:
        why = f"at {format_bytes(int(sizes[0]))} the time already goes with the size: begin smaller (-b)"
        reasons |= {"latency_us": why, "latency_bound_bytes": why}
    elif _latency_bound_bytes(segments) is None:
        reasons["latency_bound_bytes"] = f"not yet at {format_bytes(int(sizes[-1]))}"
    own = sizes[sizes >= last.first_bytes]
    if (own >= last.half_bytes).sum() < FEWEST_BEYOND:
        why = f"not reached at {format_bytes(int(sizes[-1]))}: measure larger sizes (-e)"
        reasons |= {"bandwidth_GBs": why, "half_bytes": why}
    elif (half := _half_bytes(segments)) is None or half < sizes[0]:
        reasons["half_bytes"] = f"reached before {format_bytes(int(sizes[0]))}"
    return reasons


def _estimate(
    name: str, segments: Sequence[Segment], each: Sequence[Sequence[Segment]], why: str | None
) -> Estimate:
    """A figure with the interval over epochs, ``each`` of which has its segments."""
    figure = FIGURES[name]
    value = figure(segments)
    if why is not None or value is None:
        return Estimate(None, why=why)
    if not each:
        return Estimate(value, why="one time per size: no interval")
    mean = log_mean([figure(own) or 0.0 for own in each])
    if mean is None:
        return Estimate(value, why="not in every epoch: no interval")
    low, high = (value * end / mean.estimate for end in mean.interval())
    for before, after in pairwise(segments):
        # At a break: somewhere between two measured sizes, however alike the epochs are.
        if name.endswith("_bytes") and before.last_bytes < value < after.first_bytes:
            low, high = min(low, before.last_bytes), max(high, after.first_bytes)
    return Estimate(value, low, high)
