"""Arms of one run against its base arm: the ``rows`` of compare, paired epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclbench.compare.verdict import Question, Verdict, judge, paired
from ncclbench.plan.model import Arm, PlannedCase
from ncclbench.stats.intervals import Floats, LogMean, log_ratio
from ncclbench.stats.rows import outcome, run_margin, run_statistic
from ncclbench.stats.summary import epoch_quantiles, median_skew_us
from ncclbench.store.model import Run, Unit
from ncclbench.tables.modes import MODES
from ncclbench.tables.statistics import STATISTICS

# A case that never could run on an arm is no comparison; one that failed is, and its answer is unclear.
_NEVER_MEANT = {"skipped", "unavailable"}


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One row to be: an arm against the base on one case, over the epochs both have.

    ``obstacle`` says why the times cannot be compared; then there are no units.
    """

    entry: PlannedCase
    new: Arm
    base_units: list[Unit]
    new_units: list[Unit]
    statistic: str
    question: Question
    obstacle: str | None


def compare_run(run: Run) -> list[dict[str, Any]]:
    """Every arm against the base arm on every case: the effect with its interval, and the verdict.

    Only epochs that both arms have, measured by one attempt and on one clock, are paired. All cases and
    arms are one family for Holm's correction. A case that an arm was never to run is left out.
    """
    base = next(arm for arm in run.plan.arms if arm.id == run.plan.base_arm)
    others = [arm for arm in run.plan.arms if arm.id != base.id]
    comparisons = [
        _compared(run, entry, base, arm)
        for entry in run.plan.cases
        for arm in others
        if not {outcome(run, entry, base)[0], outcome(run, entry, arm)[0]} & _NEVER_MEANT
    ]
    verdicts = judge([comparison.question for comparison in comparisons])
    return [
        _row(base, comparison, verdict) for comparison, verdict in zip(comparisons, verdicts, strict=True)
    ]


def _compared(run: Run, entry: PlannedCase, base: Arm, new: Arm) -> _Comparison:
    obstacle = _obstacle(run, entry, base) or _obstacle(run, entry, new)
    matched = (
        [] if obstacle else _matched(run.units[entry.case.key, base.id], run.units[entry.case.key, new.id])
    )
    base_units, new_units = [pair[0] for pair in matched], [pair[1] for pair in matched]
    statistic = run_statistic(run, base_units)
    quantiles = (STATISTICS[statistic].quantile, 0.9)
    base_us, base_p90_us = _quantiles([unit.time_us for unit in base_units], quantiles)
    new_us, new_p90_us = _quantiles([unit.time_us for unit in new_units], quantiles)
    skew_us = None
    if matched and MODES[entry.case.mode].fenced:
        skew_us = max(median_skew_us(base_units), median_skew_us(new_units))
    question = paired(base_us, new_us, run_margin(run), base_p90_us, new_p90_us, skew_us)
    return _Comparison(entry, new, base_units, new_units, statistic, question, obstacle)


def _obstacle(run: Run, entry: PlannedCase, arm: Arm) -> str | None:
    """Why an arm's times of a case cannot be compared; None where they can."""
    status, reason = outcome(run, entry, arm)
    if status != "ok":
        return f"{arm.id}: {reason}"
    if any(sum(unit.wrong or ()) for unit in run.units[entry.case.key, arm.id]):
        return f"{arm.id}: wrong data, so its times mean nothing"
    return None


def _matched(base_units: Sequence[Unit], new_units: Sequence[Unit]) -> list[tuple[Unit, Unit]]:
    """Units of the same epoch, measured side by side, in order of epoch."""
    by_epoch = {(unit.epoch, unit.attempt, unit.clock): unit for unit in base_units}
    keys = [(unit.epoch, unit.attempt, unit.clock) for unit in new_units]
    return [(by_epoch[key], unit) for key, unit in zip(keys, new_units, strict=True) if key in by_epoch]


def _quantiles(epochs: Sequence[Floats], quantiles: Sequence[float]) -> list[Floats]:
    """Each quantile over epochs, shape (epochs,), from one array of samples per epoch."""
    if not epochs:
        return [np.empty(0) for _ in quantiles]
    return list(epoch_quantiles(epochs, quantiles).T)


def _fastest(units: Sequence[Unit], quantile: float) -> Floats:
    """The quantile over epochs of the minimum over ranks, shape (epochs,)."""
    return _quantiles([unit.rank_time_us.min(axis=0) for unit in units], (quantile,))[0]


def _row(base: Arm, comparison: _Comparison, verdict: Verdict) -> dict[str, Any]:
    base_units, effect = comparison.base_units, verdict.effect
    quantile = STATISTICS[comparison.statistic].quantile
    fastest = log_ratio(_fastest(base_units, quantile), _fastest(comparison.new_units, quantile))
    simultaneous_low, simultaneous_high = verdict.simultaneous or (None, None)
    return {
        **comparison.entry.case.to_json(),
        "statistic": comparison.statistic,
        "clock": base_units[0].clock if base_units else None,
        "base": base.id,
        "new": comparison.new.id,
        "base_us": comparison.question.base_us if effect else None,
        **_ratio("", effect),
        "p": effect.p_different() if effect else None,
        "p_holm": verdict.p_holm,
        "simultaneous_low": simultaneous_low,
        "simultaneous_high": simultaneous_high,
        "verdict": verdict.word,
        "tail": verdict.tail,
        "beyond_margin": verdict.beyond_margin,
        "margin": verdict.margin,
        "epochs": len(base_units),
        "note": comparison.obstacle or verdict.note,
        **_ratio("p90_", comparison.question.tail_effect),
        **_ratio("fastest_", fastest),
    }


def _ratio(prefix: str, effect: LogMean | None) -> dict[str, float | None]:
    """A ratio of times and its 95 % interval, under keys with ``prefix``."""
    low, high = effect.interval() if effect else (None, None)
    return {
        f"{prefix}ratio": effect.estimate if effect else None,
        f"{prefix}ci_low": low,
        f"{prefix}ci_high": high,
    }
