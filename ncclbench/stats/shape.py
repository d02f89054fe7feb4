"""What a set of samples looks like beyond its location: how many facts it holds, one mode or two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri

Floats = NDArray[np.float64]

# Autocorrelation of fewer samples in a row than this is only noise.
_SHORTEST_CHAIN = 4

# A second mode that holds less than this is a tail, which p95 and p99 tell of.
_LEAST_SHARE = 0.1
# Modes nearer than this are as likely two ticks of a clock, and move no verdict by much.
_LEAST_APART = 1.1
_DIP_ALPHA = 0.01
# How far around its middle samples count to a mode, in distances between the modes (of logarithms).
_MODE_HALF_WIDTH = 1 / 6
# Left out at either end while looking for the split, which single outliers would draw to them.
_TRIMMED = 0.05
_FEWEST_FOR_MODES = 20


def effective_n(epochs: Sequence[Floats]) -> float | None:
    """How many independent samples are worth as much as these, at most as many as there are.

    Each element of ``epochs``, shape (n_i,), holds an epoch's samples in time order. Samples that follow
    each other are alike and so are those of one epoch, so 1,000 iterations can be worth 5. None where an
    epoch has fewer than four samples.

    Rank-normalised effective sample size over several chains (here: epochs): Vehtari, Gelman, Simpson,
    Carpenter, Bürkner, "Rank-normalization, folding, and localization: an improved R-hat", Bayesian
    Analysis 2021, eq. 10 to 13 and 14, with Geyer's initial monotone sequence (Statist. Sci. 1992).
    """
    n = min((len(samples) for samples in epochs), default=0)
    if n < _SHORTEST_CHAIN:
        return None
    total = sum(len(samples) for samples in epochs)
    chains = normal_scores(np.stack([samples[:n] for samples in epochs]))
    covariance = _autocovariance(chains)
    within = float(covariance[:, 0].mean()) * n / (n - 1)
    between = float(chains.mean(axis=1).var(ddof=1)) if len(chains) > 1 else 0.0
    variance = within * (n - 1) / n + between
    if variance == 0.0:
        return float(total)
    # Eq. 10, with the unbiased within-chain variance in front of every lag.
    correlation = 1 - (within - covariance.mean(axis=0) * n / (n - 1)) / variance
    correlation[0] = 1.0
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    kept = pairs[: negative[0]] if negative.size else pairs
    lag_sum = -1 + 2 * float(np.minimum.accumulate(kept).sum())
    return total / max(1.0, lag_sum)


def normal_scores(values: Floats) -> Floats:
    """Values replaced by the normal quantiles of their ranks (Blom, 1958), ties sharing one; shape kept."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(count) - (count - 1) / 2
    scores: Floats = ndtri((mean_rank[place.reshape(-1)] - 3 / 8) / (values.size + 1 / 4))
    return scores.reshape(values.shape)


def _autocovariance(chains: Floats) -> Floats:
    """Biased autocovariance of each row at every lag, shape (chains, n), through the power spectrum."""
    n = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance: Floats = np.fft.irfft(spectrum * spectrum.conj(), 2 * n, axis=1)[:, :n] / n
    return covariance


def two_modes(samples: Floats) -> tuple[float, float] | None:
    """The two places where times pile up, in the samples' unit, or None where one is enough.

    ``samples`` has shape (n,) and holds no negative value. A density with one mode is nowhere lower than
    at both of two points around (that is what one mode means: Hartigan and Hartigan, "The dip test of
    unimodality", Ann. Statist. 1985). So the logarithms are split in two where the variance between
    the parts is largest (Otsu, IEEE Trans. Syst. Man Cybern. 1979), and the samples around the middle
    between the two parts' medians are counted against those around each median, in windows of one width.
    Two modes are told where the middle holds so many fewer than the lesser of both that a binomial sign
    test gives it 1 % (log-normal, exponential, uniform times: seen in fewer than 1 of 200), where the
    lesser holds a tenth of the samples, and where they lie 10 % apart.
    """
    if samples.size < _FEWEST_FOR_MODES or float(samples.min()) <= 0:
        return None
    logs = np.sort(np.log(samples))
    cut = int(_TRIMMED * logs.size)
    split = _best_split(logs[cut : logs.size - cut]) + cut
    low, high = float(np.median(logs[:split])), float(np.median(logs[split:]))
    if high - low < math.log(_LEAST_APART):
        return None
    half = (high - low) * _MODE_HALF_WIDTH
    at_low, between, at_high = (_count(logs, at - half, at + half) for at in (low, (low + high) / 2, high))
    lesser = min(at_low, at_high)
    if lesser < _LEAST_SHARE * logs.size or float(bdtr(between, between + lesser, 0.5)) >= _DIP_ALPHA:
        return None
    return math.exp(low), math.exp(high)


def is_between_modes(samples: Floats, locations: Floats) -> bool:
    """Whether a statistic of epochs, shape (epochs,), lies between two modes of their samples, shape (n,).

    It does where in some epoch it is in neither mode, or in some in the lower and in others in the higher:
    then it tells how the samples happened to fall to either, and moves by much for little. A mode ends a
    sixth of the distance between the two (of logarithms) from where ``two_modes`` puts it, as it counts them.
    """
    modes = two_modes(samples)
    if modes is None:
        return False
    width = (modes[1] / modes[0]) ** _MODE_HALF_WIDTH
    in_lower, in_higher = locations < modes[0] * width, locations > modes[1] / width
    return not bool(in_lower.all() or in_higher.all())


def _best_split(logs: Floats) -> int:
    """How many of the sorted values make the lower of two parts with the largest variance between them."""
    n = logs.size
    least = max(1, math.ceil(_LEAST_SHARE * n))
    sizes = np.arange(least, n - least + 1)
    below = np.cumsum(logs)[sizes - 1]
    apart = (logs.sum() - below) / (n - sizes) - below / sizes
    return int(sizes[np.argmax(sizes * (n - sizes) * apart**2)])


def _count(ordered: Floats, low: float, high: float) -> int:
    first, last = np.searchsorted(ordered, (low, high))
    return int(last - first)
