"""The shift function: how far apart two arms are at several quantiles of their times.

One location hides where a difference lies: an arm can be faster in its quick half and slower in its tail.
Doksum, "Empirical probability plots and statistical inference for nonlinear models in the two-sample case",
Ann. Statist. 1974; in use: Rousselet, Pernet, Wilcox, "Beyond differences in means", Eur. J. Neurosci. 2017.
Here the difference is a ratio of times, with Student's t over epochs at each quantile.
"""

from __future__ import annotations

from typing import Any

from ncclbench.stats.intervals import Floats, LogMean, log_ratio
from ncclbench.tables.statistics import STATISTICS

SHIFT = {name: STATISTICS[name].quantile for name in ("p10", "p25", "median", "p90")}


def shift_function(base_us: Floats, new_us: Floats) -> list[dict[str, Any]]:
    """new / base at each quantile of ``SHIFT`` with its 95 % interval, nulls where it cannot be said.

    Both arrays have shape (epochs, len(SHIFT)): the quantiles of every epoch.
    """
    return [
        {"quantile": name, **ratio_keys("", log_ratio(base, new))}
        for name, base, new in zip(SHIFT, base_us.T, new_us.T, strict=True)
    ]


def ratio_keys(prefix: str, effect: LogMean | None) -> dict[str, float | None]:
    """A ratio of times and its 95 % interval, under keys with ``prefix``."""
    low, high = effect.interval() if effect else (None, None)
    return {
        f"{prefix}ratio": effect.estimate if effect else None,
        f"{prefix}ci_low": low,
        f"{prefix}ci_high": high,
    }
