"""When a case has been measured precisely enough: at which epochs to look, and how narrow is enough.

Only the width of the interval decides, never a p value or which arm is ahead: then the estimate itself has
no part in the decision, and for normal values it is independent of it (mean and variance of a normal sample
are). What remains is that a t interval is narrow most easily where chance made the spread look small. Three
things keep that small: there are few looks, each at a third or half more epochs than the one before
(group-sequential, against one look an epoch); none comes before 8 epochs; and early looks ask for more than
the width itself. ``python benchmarks/intervals_hold.py`` shows what is left of the nominal 95 %.
"""

from __future__ import annotations

import math

from ncclbench.plan.model import FIRST_LOOK
from ncclbench.stats.intervals import LogMean


def is_look(epochs: int) -> bool:
    """Whether precision is looked at after so many whole epochs: 8, 12, 16, 24, 32, 48, 64, 96, ..."""
    if epochs < FIRST_LOOK:
        return False
    odd = epochs // (epochs & -epochs)
    return odd in (1, 3)


def half_width(mean: LogMean) -> float:
    """Half the 95 % interval as a fraction of the estimate: 0.02 is an interval of about +- 2 %.

    It is sqrt(high / low) - 1, since the interval is symmetric on the log scale; infinite where that is
    beyond what a float holds.
    """
    low, high = mean.interval()
    return math.sqrt(high / low) - 1 if low > 0 and math.isfinite(high / low) else math.inf


def finite_half_width(mean: LogMean | None) -> float | None:
    """``half_width`` as rows carry it: None where there is no mean, or nothing is known of it."""
    width = math.inf if mean is None else half_width(mean)
    return width if math.isfinite(width) else None


def is_precise(mean: LogMean, precision: float) -> bool:
    """Whether measuring may end, at a look: the half-width times 1 + 8 / epochs is at most ``precision``.

    To stop at the first n where the width itself is small enough (Chow and Robbins, "On the asymptotic theory
    of fixed-width sequential confidence intervals for the mean", Ann. Math. Statist. 1965) covers at its
    nominal rate for large n only, and less before, since it stops where the spread is underestimated
    (Starr, "The performance of a sequential procedure for the fixed-width interval estimation of the mean",
    Ann. Math. Statist. 1966). The remedy is to ask early looks for more: Chow and Robbins add 1 / n to the
    variance; Kelley, Darku and Chattopadhyay, "Accuracy in parameter estimation for a general class of effect
    sizes: a sequential approach", Psychol. Methods 2018, start from a pilot sample. Here it is a factor, so
    that no scale enters.

    With normal values and these looks the bare width covers 93.3 % at worst, this 93.7 %. Its price is known:
    an interval narrower than asked for, by a half at 8 epochs, a third at 16, a fifth at 32, a tenth at 80.
    """
    return half_width(mean) * (1 + FIRST_LOOK / mean.n) <= precision
