"""How often something happens, with its exact interval."""

from __future__ import annotations

from scipy.special import betaincinv


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval (low, high) of a rate, as fractions; all of 0 to 1 for no trials.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 1934, through the beta distribution. It holds the truth at least as often as ``confidence``
    says, with few trials more often.
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high
