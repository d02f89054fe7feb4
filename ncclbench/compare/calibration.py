"""From the runs of ``ncclbench calibrate`` to its document: false verdicts, and what can be found."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncclbench import __version__
from ncclbench.compare.advice import advise
from ncclbench.compare.components import components
from ncclbench.compare.paired import compare_run
from ncclbench.compare.verdict import geometric_mean
from ncclbench.plan.model import PlannedCase
from ncclbench.stats.intervals import Floats, LogMean, log_mean, log_ratio
from ncclbench.stats.power import smallest_effect
from ncclbench.stats.rates import clopper_pearson
from ncclbench.stats.rows import run_statistic
from ncclbench.stats.series import series, warming
from ncclbench.stats.summary import epoch_quantiles
from ncclbench.store.calibrations import CALIBRATION_SCHEMA
from ncclbench.store.model import Run, Unit
from ncclbench.tables.statistics import STATISTICS

# What one comparison of a sweep has by default, so that one here is what a user would see.
EPOCHS_OF_ONE = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """What a calibration is made of. All runs have the same cases and iterations in an epoch.

    Attributes:
        equal: two equal arms beside each other, many epochs in the same processes.
        alone: the first arm without the other; each run in new processes.
        beside: both arms, likewise.
        epoch_s: by case key, what it takes in an epoch of ``equal``, making groups not counted; cases may
            be missing.
        group_s: what an epoch takes beside its cases, for each arm; None where unknown.
        process_s: what new processes take beyond their epochs and groups; None where unknown.
    """

    equal: Run
    alone: Sequence[Run]
    beside: Sequence[Run]
    epoch_s: Mapping[str, float]
    group_s: float | None = None
    process_s: float | None = None


def calibration(measured: Measured, budget_s: float) -> dict[str, Any]:
    """The document, with the keys of docs/calibrating.md.

    Args:
        budget_s: seconds per case that ``smallest`` is said for.
    """
    run = measured.equal
    comparisons = single_comparisons(run)
    false = sum(row["verdict"] in ("faster", "slower") for row in comparisons)
    low, high = clopper_pearson(false, len(comparisons))
    arm = run.plan.arms[0]
    cases = [
        entry
        for entry in run.plan.cases
        if all((entry.case.key, each.id) in run.units for each in run.plan.arms)
    ]
    # A budget pays for the groups of an epoch too: each case for its share.
    share_s = len(run.plan.arms) * (measured.group_s or 0.0) / max(1, len(cases))
    document = {
        "schema": CALIBRATION_SCHEMA,
        "created": run.meta["created"],
        "ncclbench": __version__,
        "hosts": [host["name"] for host in run.meta["environment"]["hosts"]],
        "nranks": run.plan.nranks,
        "backend": arm.backend,
        "device": run.meta["arms"][arm.id]["device"],
        "comparisons": len(comparisons),
        "false_verdicts": false,
        "false_verdict_rate": false / len(comparisons) if comparisons else None,
        "rate_low": low,
        "rate_high": high,
        "same": sum(row["verdict"] == "same" for row in comparisons),
        "budget_s": budget_s,
        "group_s": measured.group_s,
        "process_s": measured.process_s,
        "resolution": [_resolution(measured, entry, budget_s, share_s) for entry in cases],
    }
    return document | {
        "advice": advise(document, run.meta["environment"], run.meta["preflight"], run.plan.margin_ratio)
    }


def single_comparisons(run: Run) -> list[dict[str, Any]]:
    """The comparison of each case in every ``EPOCHS_OF_ONE`` successive epochs, as if it were the whole run.

    So the verdicts are those that a sweep of one case would have given, and no correction is made between
    them: of equal arms, one in twenty may be called different.
    """
    rows = []
    for entry in run.plan.cases:
        keys = [(entry.case.key, arm.id) for arm in run.plan.arms]
        epochs = sorted(set.intersection(*({unit.epoch for unit in run.units.get(key, ())} for key in keys)))
        for first in range(0, len(epochs) - EPOCHS_OF_ONE + 1, EPOCHS_OF_ONE):
            rows += compare_run(_part(run, entry, set(epochs[first : first + EPOCHS_OF_ONE])))
    return rows


def starting_s(runs: Sequence[Run], outside_s: Sequence[float], group_s: float) -> float:
    """Seconds to start processes, the median over runs that each had new ones.

    Args:
        outside_s: of each run, what its cases did not take; the groups of its epochs are part of that.
        group_s: seconds for a group.
    """
    groups = [run.plan.epochs * len(run.plan.arms) for run in runs]
    each_s = [run_s - number * group_s for run_s, number in zip(outside_s, groups, strict=True)]
    return max(0.0, float(np.median(each_s)))


def _part(run: Run, entry: PlannedCase, epochs: Collection[int]) -> Run:
    """A run of one case and some of its epochs."""
    units = {
        key: [unit for unit in units if unit.epoch in epochs]
        for key, units in run.units.items()
        if key[0] == entry.case.key
    }
    return Run(run.folder, run.meta, replace(run.plan, cases=(entry,)), units, run.statuses)


def _resolution(measured: Measured, entry: PlannedCase, budget_s: float, share_s: float) -> dict[str, Any]:
    """One case; ``share_s``: of making an epoch's groups, on top of what its epochs take."""
    run, case = measured.equal, entry.case
    base, new = _side_by_side(run, case.key)
    statistic = run_statistic(run, base)
    quantile = STATISTICS[statistic].quantile
    base_us, new_us = _statistics(base, quantile), _statistics(new, quantile)
    ratio, typical = log_ratio(base_us, new_us), log_mean(base_us)
    over_epochs = series(new_us / base_us) if ratio else None
    of_time = series(base_us)
    epoch_s = measured.epoch_s.get(case.key)
    epochs = None if epoch_s is None else int(budget_s / (epoch_s + share_s))
    arm = run.plan.arms[0].id
    found = components([base, *(each.units.get((case.key, arm), []) for each in measured.beside)], quantile)
    warm = warming([unit.time_us for unit in base], [unit.visits for unit in base])
    timed_us = [
        one.total_us.max(axis=0).sum() + two.total_us.max(axis=0).sum()
        for one, two in zip(base, new, strict=True)
    ]
    return {
        "op": case.op,
        "dtype": case.dtype,
        "nbytes": case.nbytes,
        "mode": case.mode,
        "statistic": statistic,
        "time_us": typical.estimate if typical else float(np.median(base_us)),
        "spread": ratio.spread if ratio else None,
        "epoch_s": epoch_s,
        "timed_s": float(np.median(timed_us)) * 1e-6,
        # As asked for: samples of batches are fewer.
        "iters_in_epoch": run.plan.iters_in_epoch(0),
        "smallest": _smallest(ratio, epochs),
        "epochs": epochs,
        "drift": over_epochs.drift if over_epochs else None,
        "drifts": over_epochs.drifts if over_epochs else None,
        "autocorrelation": over_epochs.autocorrelation if over_epochs else None,
        "correlated": over_epochs.correlated if over_epochs else None,
        "time_drift": of_time.drift if of_time else None,
        "time_drifts": of_time.drifts if of_time else None,
        "warming": warm.warming if warm else None,
        "spread_process": found.process,
        "spread_group": found.group,
        "spread_iteration": found.iteration,
        "p_process": found.p_process,
        "beside_over_alone": _beside_over_alone(measured, (case.key, arm), quantile),
    }


def _side_by_side(run: Run, case: str) -> tuple[list[Unit], list[Unit]]:
    """The units of both arms in the epochs that both have."""
    base, new = (run.units[case, arm.id] for arm in run.plan.arms)
    by_epoch = {unit.epoch: unit for unit in new}
    pairs = [(unit, by_epoch[unit.epoch]) for unit in base if unit.epoch in by_epoch]
    return [one for one, _ in pairs], [two for _, two in pairs]


def _statistics(units: Sequence[Unit], quantile: float) -> Floats:
    """The statistic of each epoch, shape (epochs,)."""
    values: Floats = epoch_quantiles([unit.time_us for unit in units], (quantile,))[:, 0]
    return values


def _smallest(ratio: LogMean | None, epochs: int | None) -> float | None:
    """The smallest effect of one comparison alone; None where it is unknown or no number of epochs."""
    if ratio is None or epochs is None:
        return None
    effect = smallest_effect(ratio.spread, epochs)
    return effect if math.isfinite(effect) else None


def _beside_over_alone(measured: Measured, key: tuple[str, str], quantile: float) -> dict[str, float] | None:
    """The first arm's time beside the other over that alone, in pairs of runs one after the other."""
    pairs = [
        (
            geometric_mean(_statistics(alone.units[key], quantile)),
            geometric_mean(_statistics(beside.units[key], quantile)),
        )
        for alone, beside in zip(measured.alone, measured.beside, strict=False)
        if key in alone.units and key in beside.units
    ]
    ratio = log_ratio(np.array([alone for alone, _ in pairs]), np.array([beside for _, beside in pairs]))
    if ratio is None:
        return None
    low, high = ratio.interval()
    return {"ratio": ratio.estimate, "ci_low": low, "ci_high": high}
