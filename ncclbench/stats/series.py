"""What epochs in their order in time tell: drift, dependence between epochs, warm-up inside epochs.

Every flag is a test at 1 %: of sound measurements one in a hundred is flagged. What each finds is measured
by ``python benchmarks/intervals_hold.py``, with sampling noise on top of the epochs' levels:

* a steady drift of three times the spread of epochs is found in 96 % at 32 epochs, in 57 % at 16;
* a level that lasts for four or eight epochs (correlation exp(-1/4) or exp(-1/8) from one to the next) in
  96 % at 48 epochs, in 81 % at 32, in 29 % at 16: a few epochs cannot show it.

Both need eight epochs; warm-up needs three, and under six one in thirty may be flagged falsely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, ndtr, stdtr

from ncclbench.stats.intervals import Floats
from ncclbench.stats.shape import normal_scores

FEWEST_IN_SERIES = 8
_ALPHA = 0.01
# A trend over more epochs is told as well by every second or third of them; pairs grow with the square.
_MOST_FOR_TREND = 1000

# Warm-up: which samples of a visit are its first, and how much slower is worth telling.
_HEAD_SHARE = 8
_LONGEST_HEAD = 8
_SHORTEST_VISIT = 4
_FEWEST_WARMING = 3
_LEAST_WARMING = 1.05


@dataclass(frozen=True, slots=True)
class Series:
    """Epochs in their order.

    Attributes:
        drift: the last epoch's level over the first one's, by the trend (Theil-Sen) over all.
        drifts: that trend is none of chance.
        autocorrelation: between an epoch and the next, of normal scores, with the trend taken out.
        correlated: that is positive by more than chance, so these epochs are fewer facts than they seem and
            an interval over them is too narrow.
    """

    drift: float
    drifts: bool
    autocorrelation: float
    correlated: bool


def series(values: Floats) -> Series | None:
    """Trend and dependence of one positive number for each epoch, shape (epochs,), in order of time.

    None under eight epochs, where neither can be told, and where a value is not positive.
    """
    if values.size < FEWEST_IN_SERIES or not bool((values > 0).all()):
        return None
    logs = np.log(values)
    at = np.arange(0, logs.size, math.ceil(logs.size / _MOST_FOR_TREND), dtype=np.intp)
    rises = _pairwise_rises(logs[at])
    slope = float(np.median(rises / _pairwise_rises(at.astype(np.float64))))
    correlation, p_correlated = _serial_correlation(logs, slope)
    return Series(
        drift=math.exp(min(max(slope * (logs.size - 1), -700.0), 700.0)),
        drifts=_p_of_trend(logs[at], rises) < _ALPHA,
        autocorrelation=correlation,
        correlated=p_correlated < _ALPHA,
    )


def _pairwise_rises(values: Floats) -> Floats:
    """Later minus earlier of every pair, shape (n (n - 1) / 2,)."""
    earlier, later = np.triu_indices(values.size, 1)
    rises: Floats = values[later] - values[earlier]
    return rises


def _p_of_trend(values: Floats, rises: Floats) -> float:
    """Two-sided p of "no monotone trend": Mann, "Nonparametric tests against trend", Econometrica 1945.

    Normal approximation with Kendall's correction for ties and for continuity ("Rank correlation methods",
    1975); from eight values on it is close.
    """
    n = values.size
    ties = np.unique(values, return_counts=True)[1]
    variance = float(n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    if variance == 0.0:
        return 1.0
    score = max(0.0, abs(float(np.sign(rises).sum())) - 1)
    return 2 * float(ndtr(-score / math.sqrt(variance)))


def _serial_correlation(values: Floats, slope: float) -> tuple[float, float]:
    """Lag-1 correlation about the straight trend, and the one-sided p of "none or negative".

    The test is Durbin and Watson's ("Testing for serial correlation in least squares regression II",
    Biometrika 1951), with the beta distribution of their section 4, which fits the mean and variance that
    their d has about a fitted line. Both are of normal scores of what the trend leaves (as Bartels does the
    von Neumann ratio on ranks, "The rank version of von Neumann's ratio test for randomness", J. Am. Statist.
    Assoc. 1982), so that one epoch far out does not hide what the others say.
    """
    left = values - values.mean() - slope * (np.arange(values.size) - (values.size - 1) / 2)
    # What rounding leaves of a perfect line has an order of its own.
    scores = _about_line(normal_scores(np.round(left, 12)))
    total = float((scores**2).sum())
    if total == 0.0:
        return 0.0, 1.0
    mean, variance = _durbin_watson_moments(values.size)
    # d / 4 lies in [0, 1]; a beta distribution of its mean and variance.
    mean, variance = mean / 4, variance / 16
    size = mean * (1 - mean) / variance - 1
    steps = float((np.diff(scores) ** 2).sum())
    p = float(betainc(mean * size, (1 - mean) * size, steps / total / 4))
    return float((scores[1:] * scores[:-1]).sum()) / total, p


def _about_line(values: Floats) -> Floats:
    """Residuals of the least-squares line over positions 0, 1, 2 ..."""
    at = np.arange(values.size) - (values.size - 1) / 2
    centred = values - values.mean()
    residuals: Floats = centred - at * float((at * centred).sum() / (at**2).sum())
    return residuals


def _durbin_watson_moments(n: int) -> tuple[float, float]:
    """Mean and variance of d = sum of squared steps / sum of squares, for residuals about a straight line.

    With A the matrix of the squared steps, x the centred positions and s = x'x, Durbin and Watson (Biometrika
    1950) have E = P / (n - 2) and Var = 2 (Q - P E) / ((n - 2) n), where P = tr A - x'Ax / s and
    Q = tr A^2 - 2 x'A^2x / s + (x'Ax / s)^2. Here tr A = 2 (n - 1), tr A^2 = 2 (3 n - 4), x'Ax = n - 1,
    x'A^2x = 2, since positions step by one and A maps a constant to zero.
    """
    squares = n * (n**2 - 1) / 12
    p = 2 * (n - 1) - (n - 1) / squares
    q = 2 * (3 * n - 4) - 4 / squares + ((n - 1) / squares) ** 2
    mean = p / (n - 2)
    return mean, 2 * (q - p * mean) / ((n - 2) * n)


@dataclass(frozen=True, slots=True)
class Warming:
    """The first samples after a warm-up against the rest.

    Attributes:
        ratio: the first ones' time over the others', the median over visits.
        warming: the first are slower, by more than chance and by 5 % at least.
    """

    ratio: float
    warming: bool


def warming(epochs: Sequence[Floats], visits: Sequence[Sequence[int]]) -> Warming | None:
    """Whether the first samples of visits are slower than the rest, so that more warm-up is wanted.

    In each visit the first eighth of the samples (one at least, eight at most) is set against the rest by
    Cliff's delta ("Dominance statistics", Psychol. Bull. 1993): how much oftener one of the first is slower
    than one of the rest than faster. In a steady visit it is 0 on average, whatever the distribution of
    times and however neighbours resemble each other. Over epochs, which are independent, its mean is
    tested against 0 by Student's t, one-sided.

    Args:
        epochs: the samples of each, shape (n_i,), in order of time.
        visits: for each epoch the samples in each visit to the arm, summing to n_i.

    Returns:
        None under three epochs, and where no visit has four samples.
    """
    # Visits of one length at once: numpy spends far more on a call than on a few samples.
    by_length: dict[int, list[tuple[int, Floats]]] = {}
    for epoch, (samples, sizes) in enumerate(zip(epochs, visits, strict=True)):
        start = 0
        for size in sizes:
            if size >= _SHORTEST_VISIT:
                by_length.setdefault(size, []).append((epoch, samples[start : start + size]))
            start += size
    told = {epoch for members in by_length.values() for epoch, _ in members}
    if len(told) < _FEWEST_WARMING:
        return None
    ratios = []
    deltas: dict[int, list[float]] = {epoch: [] for epoch in told}
    for members in by_length.values():
        deltas_of_visits, ratios_of_visits = _first_against_rest(np.stack([part for _, part in members]))
        ratios.append(ratios_of_visits)
        for (epoch, _), delta in zip(members, deltas_of_visits.tolist(), strict=True):
            deltas[epoch].append(delta)
    ratio = float(np.median(np.concatenate(ratios)))
    over_epochs = np.array([sum(each) / len(each) for each in deltas.values()])
    return Warming(ratio, ratio >= _LEAST_WARMING and _p_not_positive(over_epochs) < _ALPHA)


def _first_against_rest(visits: Floats) -> tuple[Floats, Floats]:
    """Cliff's delta of the first samples against the rest, and the ratio of their medians (1 for zeros).

    ``visits`` has shape (visits, n), both results (visits,).
    """
    head = min(max(1, visits.shape[1] // _HEAD_SHARE), _LONGEST_HEAD)
    first, rest = visits[:, :head], visits[:, head:]
    above = (first[:, :, None] > rest[:, None, :]).mean(axis=(1, 2))
    below = (first[:, :, None] < rest[:, None, :]).mean(axis=(1, 2))
    usual = np.median(rest, axis=1)
    ratios: Floats = np.where(usual > 0, np.median(first, axis=1) / np.where(usual > 0, usual, 1.0), 1.0)
    return above - below, ratios


def _p_not_positive(values: Floats) -> float:
    """One-sided p of Student's t test that the true mean is zero or less."""
    mean, se = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)
    if se == 0.0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(values.size - 1, -mean / se))
