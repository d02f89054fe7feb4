"""How small an effect so many epochs can find, and how many epochs an effect needs.

Power of Student's t test by the noncentral t distribution (Johnson, Kotz and Balakrishnan, "Continuous
univariate distributions", vol. 2, 1995, ch. 31; Cohen, "Statistical power analysis for the behavioral
sciences", 1988, ch. 2). scipy.special has the distribution and its inverse in the noncentrality.
Everywhere an effect is ratio - 1, so 0.05 is 5 % slower; 5 % faster is found as easily.

A spread is itself estimated: from 8 epochs it is off by a quarter, from 32 by an eighth, either way, and
the effect with it.
"""

from __future__ import annotations

import math

from scipy.special import nctdtrinc, stdtrit

from ncclbench.stats.intervals import ALPHA, FEWEST_EPOCHS, LogMean

# More than anyone will measure.
_MOST_EPOCHS = 1 << 20


def smallest_effect(spread: float, epochs: int, family: int = 1, power: float = 0.9) -> float:
    """The smallest ratio - 1 that so many epochs call a difference with probability ``power``.

    Args:
        spread: standard deviation over epochs of the logarithm of the ratio.
        epochs: on both arms; under those that a verdict needs the answer is infinite.
        family: how many comparisons are judged together. Each is tested at 5 % / family (Bonferroni), as
            Holm's correction does where one of them only differs; it is milder the more of them do.
        power: probability of finding it.
    """
    if epochs < FEWEST_EPOCHS:
        return math.inf
    return _as_effect(_noncentrality(epochs - 1, family, power) * spread / math.sqrt(epochs))


def epochs_needed(spread: float, effect: float, family: int = 1, power: float = 0.9) -> int | None:
    """The fewest epochs whose ``smallest_effect`` is ``effect`` or less; None where no number will do.

    Args:
        spread, family, power: as for ``smallest_effect``.
        effect: ratio - 1; its sign does not matter in that 0.95 needs as many epochs as 1 / 0.95.
    """
    if effect <= -1 or effect == 0:
        return None
    wanted = _as_effect(abs(math.log1p(effect)))
    low, high = FEWEST_EPOCHS, FEWEST_EPOCHS
    while smallest_effect(spread, high, family, power) > wanted:
        low, high = high + 1, 2 * high
        if high > _MOST_EPOCHS:
            return None
    while low < high:
        middle = (low + high) // 2
        if smallest_effect(spread, middle, family, power) <= wanted:
            high = middle
        else:
            low = middle + 1
    return high


def detectable(effect: LogMean, family: int = 1, power: float = 0.9) -> float | None:
    """The smallest ratio - 1 that a comparison with this standard error would have found.

    It asks about the means of the measurement and not about its outcome: it is the same whatever the ratio
    came out as. None for a standard error of zero, which comes of a coarse clock and not of certainty.
    ``family`` and ``power`` as for ``smallest_effect``.
    """
    if effect.se == 0.0:
        return None
    return _as_effect(_noncentrality(effect.df, family, power) * effect.se)


def _noncentrality(df: float, family: int, power: float) -> float:
    """How many standard errors away from zero the truth must be for |t| to be significant so often.

    The chance to be significant on the wrong side, below 1e-6 at any power worth asking for, is left out.
    """
    critical = float(stdtrit(df, 1 - ALPHA / family / 2))
    return float(nctdtrinc(df, 1 - power, critical))


def _as_effect(log_ratio: float) -> float:
    return math.expm1(min(log_ratio, 700.0))


def spread_of(ci_low: float | None, ci_high: float | None, epochs: int) -> float | None:
    """The spread that a 95 % t interval over so many epochs was made of; None where there is no interval.

    The inverse of ``LogMean.interval`` and ``LogMean.spread``, for rows that carry the interval alone.
    """
    if ci_low is None or ci_high is None or epochs < 2 or not 0 < ci_low <= ci_high < math.inf:
        return None
    half = math.log(ci_high / ci_low) / 2
    return half / float(stdtrit(epochs - 1, 1 - ALPHA / 2)) * math.sqrt(epochs)
