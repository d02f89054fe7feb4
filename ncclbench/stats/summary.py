"""The row of one case on one arm: every number of the ``rows`` contract, from all samples of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.model import MARGIN_RATIO, MARGIN_US, Arm, Case
from ncclbench.stats.groups import group_times, groups_keys, members_of, wrong_where
from ncclbench.stats.intervals import Floats, LogMean, Margin, log_mean
from ncclbench.stats.series import Series, series, warming
from ncclbench.stats.shape import effective_n, two_modes
from ncclbench.stats.stopping import finite_half_width
from ncclbench.stats.throttled import held_back
from ncclbench.store.model import Unit
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import MODES
from ncclbench.tables.statistics import STATISTICS
from ncclbench.tables.topologies import Groups

# Above a quantile q there must be one sample at least, or it is only the largest one under another name.
FEWEST_FOR_P99 = 100

# The measured keys of a row and what they hold where nothing was measured.
UNMEASURED: dict[str, Any] = {
    "n": 0,
    "epochs": 0,
    "clock": None,
    "p25_us": None,
    "median_us": None,
    "ci_low_us": None,
    "ci_high_us": None,
    "p25_ci_low_us": None,
    "p25_ci_high_us": None,
    "p95_us": None,
    "p99_us": None,
    "p99_reason": None,
    "fastest_us": None,
    "mean_rank_us": None,
    "launch_us": None,
    "skew_us": None,
    "algbw_GBs": None,
    "busbw_GBs": None,
    "wrong": None,
    "k": None,
    "epoch_spread": None,
    "effective_n": None,
    "bimodal": None,
    "mode_low_us": None,
    "mode_high_us": None,
    "drift": None,
    "drifts": None,
    "autocorrelation": None,
    "correlated": None,
    "warming": None,
    "warming_ratio": None,
    "half_width": None,
    "fence_bound": None,
    "throttled": None,
    "throttled_ranks": None,
    "ngroups": 1,
    "groups": None,
    "groups_spread": None,
    "slow_groups": None,
}


def summary_row(
    case: Case,
    arm: Arm,
    units: Sequence[Unit],
    *,
    implementation: str | None,
    statistic: str,
    status: str = "ok",
    reason: str | None = None,
    margin: Margin | None = None,
    share_gpu: bool = False,
    stopped: str | None = None,
    groups: Groups = (),
) -> dict[str, Any]:
    """One row of ``sweep --json``.

    Times are microseconds per operation. Per iteration ``time_us`` is the maximum over ranks;
    ``p25_us`` and ``median_us`` are medians over epochs of the epoch's quantile, with a 95 % t interval
    over epochs on the log scale, null for one epoch; ``p95_us`` and ``p99_us`` are of all samples.
    ``epoch_spread`` is the standard deviation over epochs of the log of the epoch's median (0.03: 3 %).
    ``half_width``, ``drift`` and ``autocorrelation`` are of the epochs' ``statistic``. ``throttled`` is what
    held GPUs back (a list of words), ``throttled_ranks`` whose; both null where no GPU was read.

    Args:
        case: the condition.
        arm: what it was measured on.
        units: its epochs; none where it was not measured.
        implementation: class and backend name of the group that ran, None where none did.
        statistic: what verdicts of this run compare.
        status: "ok" becomes "wrong" where the data check found wrong elements, which voids the bandwidth.
        reason: why the status is not "ok".
        margin: of equivalence, for ``fence_bound``; None leaves that null.
        share_gpu: ranks shared a GPU, so that bytes over time is no bandwidth.
        stopped: why no epoch was added: "precision", "budget" or "epochs"; None where that was not kept.
        groups: of the case's topology; ranks in none of them count for nothing. None given: the world.
    """
    row: dict[str, Any] = {**case.to_json(), "arm": arm.id, "implementation": implementation, **UNMEASURED}
    if units:
        row |= _times(units, STATISTICS[statistic].quantile, members_of(groups))
        row |= groups_keys(group_times(case, units, groups, margin or Margin(MARGIN_RATIO, MARGIN_US)))
        row["fence_bound"] = None if margin is None else is_fence_bound(case, row, margin)
        row["wrong"] = _wrong(units)
        row["throttled"], row["throttled_ranks"] = held_back(units) or (None, None)
    if row["wrong"]:
        status = "wrong" if status == "ok" else status
        reason = reason or f"{row['wrong']} wrong elements {wrong_where(row)}".rstrip()
    elif units and not share_gpu:
        row |= _bandwidths(case, row["median_us"])
    return row | {
        "statistic": statistic,
        "stopped": stopped,
        "shared_gpu": share_gpu,
        "status": status,
        "reason": reason,
    }


def epoch_quantiles(epochs: Sequence[Floats], quantiles: Sequence[float]) -> Floats:
    """Quantiles within each epoch, from arrays of shape (n_i,); the result is (epochs, quantiles)."""
    if len({samples.size for samples in epochs}) == 1:
        # The usual case, in one call: numpy spends far more on a call than on a few samples.
        together: Floats = np.quantile(np.stack(epochs), quantiles, axis=1)
        return together.T
    return np.array([np.quantile(samples, quantiles) for samples in epochs])


def median_skew_us(units: Sequence[Unit]) -> float:
    """Median over iterations of how far apart the ranks started."""
    spreads = [unit.start_us.max(axis=0) - unit.start_us.min(axis=0) for unit in units]
    return float(np.median(np.concatenate(spreads)))


def is_fence_bound(case: Case, row: dict[str, Any], margin: Margin) -> bool:
    """Whether the fence's skew hides differences as small as the margin."""
    skew_us: float = row["skew_us"]
    median_us: float = row["median_us"]
    return MODES[case.mode].fenced and skew_us > margin.of(median_us) * median_us


def _times(units: Sequence[Unit], quantile: float, members: NDArray[np.int64] | None) -> dict[str, Any]:
    chosen = slice(None) if members is None else members
    rank_times = [unit.rank_time_us[chosen] for unit in units]
    epochs = [times.max(axis=0) for times in rank_times]
    samples = np.concatenate(epochs)
    p25s, medians, compared = epoch_quantiles(epochs, (0.25, 0.5, quantile)).T
    fastest = epoch_quantiles([times.min(axis=0) for times in rank_times], (0.5,))
    p25_us, median_us = float(np.median(p25s)), float(np.median(medians))
    p95_us, p99_us = (float(value) for value in np.quantile(samples, (0.95, 0.99)))
    few = samples.size < FEWEST_FOR_P99
    over_medians = log_mean(medians)
    ci_low_us, ci_high_us = _interval(over_medians, median_us)
    p25_ci_low_us, p25_ci_high_us = _interval(log_mean(p25s), p25_us)
    launches = [unit.launch_us[chosen].max(axis=0) / unit.k for unit in units]
    batches = {unit.k for unit in units}
    modes = two_modes(samples)
    return {
        "n": int(samples.size),
        "epochs": len(units),
        "clock": units[0].clock,
        "p25_us": p25_us,
        "median_us": median_us,
        "ci_low_us": ci_low_us,
        "ci_high_us": ci_high_us,
        "p25_ci_low_us": p25_ci_low_us,
        "p25_ci_high_us": p25_ci_high_us,
        "p95_us": p95_us,
        "p99_us": None if few else p99_us,
        "p99_reason": f"needs {FEWEST_FOR_P99} samples, has {samples.size}" if few else None,
        "fastest_us": float(np.median(fastest)),
        "mean_rank_us": float(np.concatenate([times.ravel() for times in rank_times]).mean()),
        "launch_us": float(np.median(np.concatenate(launches))),
        "skew_us": median_skew_us(units),
        "k": batches.pop() if len(batches) == 1 else None,
        "epoch_spread": None if over_medians is None else over_medians.spread,
        "effective_n": effective_n(epochs),
        "bimodal": modes is not None,
        "mode_low_us": None if modes is None else modes[0],
        "mode_high_us": None if modes is None else modes[1],
        **series_keys(series(compared)),
        **_warming_keys(epochs, units),
        "half_width": finite_half_width(log_mean(compared)),
    }


def series_keys(found: Series | None) -> dict[str, float | bool | None]:
    """Drift and dependence over epochs, as rows carry them."""
    return {
        "drift": found.drift if found else None,
        "drifts": found.drifts if found else None,
        "autocorrelation": found.autocorrelation if found else None,
        "correlated": found.correlated if found else None,
    }


def _warming_keys(epochs: Sequence[Floats], units: Sequence[Unit]) -> dict[str, float | bool | None]:
    found = warming(epochs, [unit.visits for unit in units])
    return {"warming": found.warming if found else None, "warming_ratio": found.ratio if found else None}


def _interval(mean: LogMean | None, estimate_us: float) -> tuple[float | None, float | None]:
    """The 95 % interval around an estimate.

    The t interval is one around the geometric mean of the epochs, the estimate their median: where
    epochs are so lopsided that the median lies outside, the interval is widened to reach it, which
    can only raise its coverage.
    """
    if mean is None:
        return None, None
    low, high = mean.interval()
    return min(low, estimate_us), max(high, estimate_us)


def _wrong(units: Sequence[Unit]) -> int | None:
    checked = [sum(unit.wrong) for unit in units if unit.wrong is not None]
    return sum(checked) if checked else None


def _bandwidths(case: Case, median_us: float) -> dict[str, float | None]:
    """Bytes over time in GB/s (1e9 bytes); none for operations that move no data."""
    if not COLLECTIVES[case.op].has_data or median_us <= 0:
        return {"algbw_GBs": None, "busbw_GBs": None}
    algbw = case.nbytes / median_us / 1000
    return {"algbw_GBs": algbw, "busbw_GBs": algbw * case.busbw_factor}
