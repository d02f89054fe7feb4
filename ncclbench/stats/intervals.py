"""t intervals and t tests on the log scale over epochs, Holm's correction, the equivalence margin.

scipy.special holds the t distribution; scipy.stats would cost half a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Floats = NDArray[np.float64]

ALPHA = 0.05

# Under this many epochs a t interval is so wide, and so much at the mercy of normality, that no word
# but "unclear" is honest.
FEWEST_EPOCHS = 6


@dataclass(frozen=True, slots=True)
class LogMean:
    """The mean of logarithms of independent values, and what Student's t says of the true one.

    Times vary by factors rather than by additions, so logarithms are nearer to normal, and
    differences of them are ratios. (Student, "The probable error of a mean", Biometrika 1908.)

    Attributes:
        n: how many values, at least 2; of two sides the smaller.
        mean: of their natural logarithms, or the difference of two such means.
        se: standard error of that mean, 0 where all values are equal.
        df: degrees of freedom of the t distribution.
    """

    n: int
    mean: float
    se: float
    df: float

    @property
    def estimate(self) -> float:
        """The geometric mean, in the values' unit."""
        return math.exp(self.mean)

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithms: 0.03 is a spread of about 3 %."""
        return self.se * math.sqrt(self.n)

    def half_width(self, confidence: float = 0.95) -> float:
        """Half of the two-sided t interval, on the log scale."""
        return float(stdtrit(self.df, 0.5 + confidence / 2)) * self.se

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided t interval of the geometric mean, in the values' unit."""
        half = self.half_width(confidence)
        return _exp(self.mean - half), _exp(self.mean + half)

    def p_different(self, value: float = 1.0) -> float:
        """p of the two-sided t test that the true geometric mean is ``value``."""
        return min(1.0, 2 * min(self.p_not_above(value), self.p_not_below(value)))

    def p_not_above(self, value: float) -> float:
        """p of the one-sided t test that the true geometric mean is ``value`` or less."""
        return self._tail(math.log(value) - self.mean)

    def p_not_below(self, value: float) -> float:
        """p of the one-sided t test that the true geometric mean is ``value`` or more."""
        return self._tail(self.mean - math.log(value))

    def _tail(self, difference: float) -> float:
        """P(t <= difference / se): small when the mean lies far on the side tested for."""
        if self.se == 0.0:
            return 0.0 if difference < 0 else 1.0
        return float(stdtr(self.df, difference / self.se))


def t_half_width(values: Floats) -> float:
    """Half of the 95 % t interval of the arithmetic mean of ``values``, shape (n,) with n at least 2."""
    se = float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(stdtrit(values.size - 1, 0.975)) * se


def log_mean(values: Sequence[float] | Floats) -> LogMean | None:
    """The mean of the logarithms of ``values``, shape (n,).

    None where it says nothing: fewer than two values, or one that is zero (a clock too coarse).
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2 or not bool((array > 0).all()):
        return None
    logs = np.log(array)
    # Equal values must give exactly zero, not the rounding of their mean.
    deviation = 0.0 if bool((logs == logs[0]).all()) else float(logs.std(ddof=1))
    se = deviation / math.sqrt(array.size)
    return LogMean(n=array.size, mean=float(logs.mean()), se=se, df=array.size - 1)


def log_ratio(base: Floats, new: Floats) -> LogMean | None:
    """new / base of values in pairs, both of shape (n,); None as for ``log_mean``, or beyond any number."""
    if not bool((base > 0).all() and (new > 0).all()):
        return None
    with np.errstate(over="ignore"):
        ratios = new / base
    return log_mean(ratios) if bool(np.isfinite(ratios).all()) else None


def log_ratio_of_two(base: Sequence[float] | Floats, new: Sequence[float] | Floats) -> LogMean | None:
    """new / base of two independent sets of values, shapes (n,) and (m,); None as for ``log_mean``.

    Neither set is supposed to vary as much as the other: Welch, "The generalization of 'Student's' problem
    when several different population variances are involved", Biometrika 1947, with the degrees of freedom
    of its eq. 28 (as Satterthwaite, Biometrics Bulletin 1946).
    """
    one, other = log_mean(base), log_mean(new)
    if one is None or other is None:
        return None
    squares = one.se**2 + other.se**2
    smaller = min(one.n, other.n)
    df = squares**2 / (one.se**4 / one.df + other.se**4 / other.df) if squares else smaller - 1
    return LogMean(n=smaller, mean=other.mean - one.mean, se=math.sqrt(squares), df=df)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for all being asked at once, in the order given.

    Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 1979: the k-th
    smallest of m is multiplied by m - k + 1, and none may be below a smaller one's.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


@dataclass(frozen=True, slots=True)
class Margin:
    """How far apart two times may be and still count as the same: the larger of the two.

    Attributes:
        ratio: as a fraction of the base time.
        us: in microseconds, for times so short that a fraction is below what a clock tells.
    """

    ratio: float
    us: float

    def of(self, base_us: float) -> float:
        """The margin as a fraction of ``base_us``."""
        return max(self.ratio, self.us / base_us) if base_us > 0 else math.inf


def is_equivalent(effect: LogMean, margin: float) -> bool:
    """Whether the ratio is shown to lie inside [1 / (1 + margin), 1 + margin].

    Two one-sided t tests (Schuirmann, J. Pharmacokinet. Biopharm. 1987), each at 2.5 %: then the answer
    is yes exactly where the 95 % interval that stands beside it lies inside. With the true ratio at the
    margin that happens in 2.5 % of cases, which leaves room below 5 % for epochs that are not normal.
    """
    low, high = effect.interval()
    return 1 / (1 + margin) < low and high < 1 + margin


def _exp(value: float) -> float:
    """e to ``value``; beyond what a float holds, the nearest it does."""
    return math.exp(min(max(value, -700.0), 700.0))
