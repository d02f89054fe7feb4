"""What epochs come to: a median with the interval of Student's t, and ratios paired by epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from ncclbench.stats.intervals import log_mean, log_ratio

# Of fewer epochs a t interval says nothing: of two it is a factor of thousands wide.
FEWEST_EPOCHS = 3


def t_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 95 % t interval of the geometric mean of epochs, trials or rounds, in the values' unit.

    Nulls where it says nothing: fewer than ``FEWEST_EPOCHS``, or a value of zero.
    """
    mean = log_mean(values) if len(values) >= FEWEST_EPOCHS else None
    return (None, None) if mean is None else mean.interval()


def middle(values: Sequence[float]) -> dict[str, Any]:
    """The median of the epochs' values with ``ci_low``, ``ci_high`` (95 %) of their geometric mean."""
    low, high = t_interval(values)
    return {"median": median(values), "ci_low": low, "ci_high": high}


def ratio(base: Sequence[float], new: Sequence[float]) -> dict[str, Any]:
    """new over base, paired by epoch: the geometric mean as ``ratio`` with ``ci_low`` and ``ci_high``."""
    found = log_ratio(np.array(base, dtype=float), np.array(new, dtype=float)) if len(base) > 1 else None
    if found is None:
        alone = new[0] / base[0] if len(base) == 1 and base[0] > 0 else math.inf
        return {"ratio": alone if math.isfinite(alone) else None, "ci_low": None, "ci_high": None}
    low, high = found.interval() if len(base) >= FEWEST_EPOCHS else (None, None)
    return {"ratio": found.estimate, "ci_low": low, "ci_high": high}
