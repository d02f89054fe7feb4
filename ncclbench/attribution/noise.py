"""How large and how lasting a slowness must be before chance is no explanation for it.

Two things must each be shown, so the larger of both p values counts (an intersection-union test, Berger,
Technometrics 1982): that the element differs from its like by more than healthy ones differ among each other,
and that it does so round after round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, binom, chdtri

from ncclbench.stats.intervals import ALPHA, Floats

# What is known of healthy links before any is seen, and how many seen ones that is worth: they differ by 2 %,
# and one round in two hundred is slow. It keeps three or four links from looking alike to the last digit.
USUAL_SCATTER = 0.02
_WORTH_LINKS = 8
WORTH_ROUNDS = 100
_SLOW_AMONG_THEM = 0.5

# Shape of the tail where few values tell of it, and how many values beyond the threshold that is worth. 0 is
# exponential, which already is heavier than normal.
_USUAL_SHAPE = 1 / 16
_WORTH_BEYOND = 20
_LEAST_SHAPE = 0.01

# Upper shares of the healthy from which the tail is read, where they hold as many values as this; where the
# largest of them holds too few, the tail is read from the whole slow (or fast) half.
_SHARES = (0.25, 0.1, 0.03)
_FEWEST_IN_SHARE = 5


@dataclass(frozen=True, slots=True)
class Tail:
    """The upper tail beyond one threshold: a generalised Pareto distribution.

    Attributes:
        share: how much of the healthy lies beyond it.
        threshold: as a logarithm of a ratio.
        scale: how far beyond, likewise.
        shape: how heavy; above zero.
    """

    share: float
    threshold: float
    scale: float
    shape: float

    def p_beyond(self, slowness: float) -> float:
        """The chance that a healthy element is as slow as this."""
        beyond = max(0.0, slowness - self.threshold)
        return float(self.share * (1 + self.shape * beyond / self.scale) ** (-1 / self.shape))

    def slowness_at(self, p: float) -> float:
        """The slowness that a healthy element reaches with chance ``p``."""
        return float(self.threshold + self.scale / self.shape * (max(1.0, self.share / p) ** self.shape - 1))


class Scatter:
    """How healthy elements of one sort differ: peaks over thresholds with a generalised Pareto tail.

    (Pickands, "Statistical inference using extreme order statistics", Ann. Statist. 1975; Davison and Smith,
    "Models for exceedances over high thresholds", J. R. Statist. Soc. B 1990.) Faults only make slow, so the
    fast side shows how heavy tails are where no fault is: both sides, and several thresholds, are asked, and
    the least of them believed.
    """

    def __init__(self, deviations: Floats, usual: float = USUAL_SCATTER) -> None:
        """Of the healthy elements' slowness, logarithms of ratios, shape (n,); none will do.

        Args:
            usual: how much they differ as far as is known before any is seen.
        """
        shape = _shape(np.abs(deviations))
        self.tails = [*_tails(deviations, shape, usual), *_tails(-deviations, shape, usual)]

    def p_beyond(self, slowness: float) -> float:
        """The chance that a healthy element is as slow as this, or more."""
        return max(tail.p_beyond(slowness) for tail in self.tails)

    def slowness_at(self, p: float) -> float:
        """The slowness whose ``p_beyond`` is ``p``."""
        return max(tail.slowness_at(p) for tail in self.tails)


def scatter_of(
    healthy: Floats,
    suspected: Iterable[tuple[float, Floats]],
    family: int,
    usual: float = USUAL_SCATTER,
) -> Scatter:
    """How healthy readings differ, where of some it is asked whether they are healthy.

    Left out at once they would hide that such as they are common, and kept they would hide each other: so the
    least suspected is asked first, and joins the healthy where it is not too far out for one.

    Args:
        healthy: deviations of those that are, logarithms of ratios, shape (n,).
        suspected: how far out, and the deviations of its readings.
        family: how many are asked about in all.
        usual: as for ``Scatter``.
    """
    scatter = Scatter(healthy, usual)
    for size, deviations in sorted(suspected, key=lambda one: one[0]):
        if scatter.p_beyond(size) * family > ALPHA:
            healthy = np.append(healthy, deviations)
            scatter = Scatter(healthy, usual)
    return scatter


def usual_scatter(rounds: Floats) -> float:
    """How much healthy readings may be expected to differ, of shape (readings, rounds) in logarithms.

    Elements that are alike differ by chance alone as their rounds do, by the standard error of a median
    (1.25 / sqrt(rounds) of one round's standard deviation): few of them would hide that. A constant slowness
    does not count, and of readings that are unsteady the typical one. Few rounds of few readings may look
    steady by chance, so it is the upper end of the deviation's one-sided 95 % interval (chi squared).
    """
    made = np.isfinite(rounds).sum(axis=1)
    several = rounds[made > 1]
    if not several.size:
        return USUAL_SCATTER
    spread = float(np.median(np.nanstd(several, axis=1, ddof=1)))
    freedom = float((made[made > 1] - 1).sum())
    upper = spread * math.sqrt(freedom / chdtri(freedom, 0.95))
    return max(USUAL_SCATTER, 1.25 * upper / math.sqrt(float(np.median(made[made > 1]))))


def _tails(deviations: Floats, shape: float, usual: float) -> Iterator[Tail]:
    ordered = np.sort(deviations)[::-1]
    shares = [share for share in _SHARES if int(share * ordered.size) >= _FEWEST_IN_SHARE] or [0.5]
    for share in shares:
        count = int(share * ordered.size)
        # Half of the healthy are slower than their typical one, which is at zero.
        threshold = 0.0 if share == 0.5 else max(0.0, float(ordered[count]))
        beyond = np.maximum(0.0, ordered[:count] - threshold)
        weight = _WORTH_LINKS * share
        mean = (weight * usual + float(beyond.sum())) / (weight + count)
        yield Tail(share, threshold, mean * (1 - shape), shape)


def _shape(sizes: Floats) -> float:
    """How heavy the tail is, of the larger half of deviations on both sides.

    By probability-weighted moments: Hosking and Wallis, "Parameter and quantile estimation for the
    generalized Pareto distribution", Technometrics 1987. What is lighter than exponential is taken for that.
    """
    ordered = np.sort(sizes)
    half = ordered.size // 2
    beyond = ordered[-half:] - ordered[-half - 1] if half else ordered[:0]
    if half < 2 or not float(beyond.max()):
        return _USUAL_SHAPE
    below = (np.arange(half) + 0.65) / half
    first, second = float(beyond.mean()), float(((1 - below) * beyond).mean())
    # Less its standard error for a tail like the usual one (about one over the root of the number).
    seen = max(_LEAST_SHAPE, 2 - first / (first - 2 * second) - 1 / math.sqrt(half))
    return (_WORTH_BEYOND * _USUAL_SHAPE + half * seen) / (_WORTH_BEYOND + half)


def p_lasting(
    slow: int, rounds: int, healthy_slow: int, healthy_rounds: int, worth: int = WORTH_ROUNDS
) -> float:
    """The chance that so many rounds or more are slow where each is as often as among the healthy.

    How often that is, is itself known from few rounds: beta-binomial, the predictive distribution (Skellam,
    J. R. Statist. Soc. B 1948). A plain binomial test at the observed rate would give a thousandth of it for
    five slow rounds of five. ``worth`` rounds are known of before any is seen, half of one of them slow.
    """
    if not slow:
        return 1.0
    a = healthy_slow + _SLOW_AMONG_THEM
    b = healthy_rounds + worth - a
    k = np.arange(slow, rounds + 1)
    return min(1.0, float((binom(rounds, k) * np.exp(betaln(a + k, b + rounds - k) - betaln(a, b))).sum()))
