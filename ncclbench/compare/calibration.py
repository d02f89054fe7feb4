"""From the runs of ``ncclbench calibrate`` to its document: false verdicts, and what can be found."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv

from ncclbench import __version__
from ncclbench.compare.advice import advise
from ncclbench.compare.components import components
from ncclbench.compare.paired import compare_run
from ncclbench.compare.verdict import geometric_mean
from ncclbench.plan.model import PlannedCase
from ncclbench.stats.intervals import Floats, LogMean, log_mean, log_ratio
from ncclbench.stats.power import smallest_effect
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
        epoch_s: by case key, what an epoch of ``equal`` takes; cases may be missing.
        process_s: what new processes take beyond their epochs; None where unknown.
    """

    equal: Run
    alone: Sequence[Run]
    beside: Sequence[Run]
    epoch_s: Mapping[str, float]
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
        "group_s": _group_s(run),
        "process_s": measured.process_s,
        "resolution": [
            _resolution(measured, entry, budget_s)
            for entry in run.plan.cases
            if all((entry.case.key, each.id) in run.units for each in run.plan.arms)
        ],
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


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate; all of 0 to 1 for no trials.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 1934, through the beta distribution.
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def _group_s(run: Run) -> float | None:
    """Seconds to make an arm's group and use it once: the slowest rank's, the median over arms and epochs."""
    slowest: dict[tuple[str, int], float] = {}
    for entry in run.cold:
        if entry["init_us"] is not None and entry["first_op_us"] is not None:
            key = entry["arm"], entry["epoch"]
            slowest[key] = max(slowest.get(key, 0.0), entry["init_us"] + entry["first_op_us"])
    return float(np.median(list(slowest.values()))) * 1e-6 if slowest else None


def _part(run: Run, entry: PlannedCase, epochs: Collection[int]) -> Run:
    """A run of one case and some of its epochs."""
    units = {
        key: [unit for unit in units if unit.epoch in epochs]
        for key, units in run.units.items()
        if key[0] == entry.case.key
    }
    return Run(run.folder, run.meta, replace(run.plan, cases=(entry,)), units, run.statuses)


def _resolution(measured: Measured, entry: PlannedCase, budget_s: float) -> dict[str, Any]:
    run, case = measured.equal, entry.case
    base, new = _side_by_side(run, case.key)
    statistic = run_statistic(run, base)
    quantile = STATISTICS[statistic].quantile
    base_us, new_us = _statistics(base, quantile), _statistics(new, quantile)
    ratio, typical = log_ratio(base_us, new_us), log_mean(base_us)
    over_epochs = series(new_us / base_us) if ratio else None
    of_time = series(base_us)
    epoch_s = measured.epoch_s.get(case.key)
    epochs = None if epoch_s is None else int(budget_s / epoch_s)
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
        "iters_in_epoch": base[0].total_us.shape[1],
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
