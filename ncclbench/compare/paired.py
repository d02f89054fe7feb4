"""Arms of one run against its base arm: the ``rows`` of compare, paired epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclbench.compare.rows import (
    FEWEST_FOR_TAILS,
    NEVER_MEANT,
    Subject,
    Times,
    comparison_row,
    thin_tails_left_out,
)
from ncclbench.compare.verdict import Question, Verdict, geometric_mean, judge, paired
from ncclbench.plan.model import Arm, PlannedCase
from ncclbench.stats.intervals import Floats, Margin, log_ratio
from ncclbench.stats.rows import outcome, run_margin, run_statistic, why_stopped
from ncclbench.stats.series import Series, series
from ncclbench.stats.shape import is_between_modes
from ncclbench.stats.shift import SHIFT, ratio_keys, shift_function
from ncclbench.stats.summary import epoch_quantiles, median_skew_us
from ncclbench.store.model import Run, Unit
from ncclbench.tables.modes import MODES
from ncclbench.tables.statistics import STATISTICS

APART = "measured in processes of their own, in turns epoch by epoch"
CORRELATED = "epochs follow their neighbours, so they are fewer facts than they seem: longer epochs, more -n"


@dataclass(frozen=True, slots=True)
class _Side:
    """One arm on one case, over the epochs that both arms have.

    Attributes:
        units: these epochs; none where the times cannot be compared.
        us: the statistic in each, shape (epochs,).
        shift_us: shape (epochs, len(SHIFT)).
        fastest_us: the statistic of the minimum over ranks, shape (epochs,).
    """

    units: list[Unit]
    us: Floats
    shift_us: Floats
    fastest_us: Floats

    @property
    def p90_us(self) -> Floats | None:
        """Shape (epochs,); None where an epoch has too few samples for it."""
        if self.fewest_samples < FEWEST_FOR_TAILS:
            return None
        p90s: Floats = self.shift_us[:, list(SHIFT).index("p90")]
        return p90s

    @property
    def fewest_samples(self) -> int:
        """In any of the epochs."""
        return min((unit.total_us.shape[1] for unit in self.units), default=0)

    @property
    def is_between_modes(self) -> bool:
        """Whether the statistic moves between two modes of the samples."""
        return is_between_modes(np.concatenate([unit.time_us for unit in self.units]), self.us)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One row to be: two arms on one case; ``over_epochs`` is the ratio's series.

    ``apart``: the arms cannot share a process, so that a few seconds lie between their parts of an epoch.
    """

    entry: PlannedCase
    base_id: str
    new_id: str
    base: _Side
    new: _Side
    statistic: str
    question: Question
    over_epochs: Series | None
    stopped: str | None
    apart: bool


def compare_run(run: Run) -> list[dict[str, Any]]:
    """Every arm against the base arm on every case: the effect with its interval, and the verdict.

    Only epochs that both arms have, measured by one attempt and on one clock, are paired. All cases and
    arms are one family for Holm's correction, which holds however the comparisons depend on each other:
    several arms share the base's epochs. A case that an arm was never to run is left out.
    """
    base = _arm(run, run.plan.base_arm)
    others = [arm for arm in run.plan.arms if arm.id != base.id]
    return _rows(run, base, others, None, None)


def compare_arms(
    run: Run, base_id: str, new_id: str, statistic: str | None = None, margin: Margin | None = None
) -> list[dict[str, Any]]:
    """One arm of a run against another, as ``compare_run`` does; these cases alone are the family.

    Args:
        run: what was measured.
        base_id, new_id: ids of two of its arms.
        statistic: name in STATISTICS; None for the run's.
        margin: of equivalence; None for the run's.
    """
    return _rows(run, _arm(run, base_id), [_arm(run, new_id)], statistic, margin)


def _arm(run: Run, arm_id: str) -> Arm:
    return next(arm for arm in run.plan.arms if arm.id == arm_id)


def _rows(
    run: Run, base: Arm, others: Sequence[Arm], statistic: str | None, margin: Margin | None
) -> list[dict[str, Any]]:
    comparisons = [
        _compared(run, entry, base, arm, statistic, margin or run_margin(run))
        for entry in run.plan.cases
        for arm in others
        if not {outcome(run, entry, base)[0], outcome(run, entry, arm)[0]} & NEVER_MEANT
    ]
    verdicts = judge([comparison.question for comparison in comparisons])
    return [_row(comparison, verdict) for comparison, verdict in zip(comparisons, verdicts, strict=True)]


def _compared(
    run: Run, entry: PlannedCase, base_arm: Arm, new_arm: Arm, statistic: str | None, margin: Margin
) -> _Comparison:
    obstacle = _obstacle(run, entry, base_arm) or _obstacle(run, entry, new_arm)
    key = entry.case.key
    matched = [] if obstacle else _matched(run.units[key, base_arm.id], run.units[key, new_arm.id])
    statistic = statistic or run_statistic(run, [pair[0] for pair in matched])
    quantile = STATISTICS[statistic].quantile
    base, new = (_side([pair[which] for pair in matched], quantile) for which in (0, 1))
    skew_us = None
    if matched and MODES[entry.case.mode].fenced:
        skew_us = max(median_skew_us(base.units), median_skew_us(new.units))
    ratios_known = bool((base.us > 0).all())
    over_epochs = series(new.us / base.us) if ratios_known else None
    correlated = CORRELATED if over_epochs is not None and over_epochs.correlated else None
    question = paired(base.us, new.us, margin, base.p90_us, new.p90_us, skew_us, obstacle or correlated)
    return _Comparison(
        entry,
        base_arm.id,
        new_arm.id,
        base,
        new,
        statistic,
        question,
        over_epochs,
        why_stopped(run, entry),
        base_arm.can_share != new_arm.can_share,
    )


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


def _side(units: list[Unit], quantile: float) -> _Side:
    if not units:
        return _Side([], np.empty(0), np.empty((0, len(SHIFT))), np.empty(0))
    rank_times = [unit.rank_time_us for unit in units]
    slowest = epoch_quantiles([times.max(axis=0) for times in rank_times], (quantile, *SHIFT.values()))
    fastest = epoch_quantiles([times.min(axis=0) for times in rank_times], (quantile,))
    return _Side(units, slowest[:, 0], slowest[:, 1:], fastest[:, 0])


def _row(comparison: _Comparison, verdict: Verdict) -> dict[str, Any]:
    base = comparison.base
    subject = Subject(
        case=comparison.entry.case,
        base=comparison.base_id,
        new=comparison.new_id,
        statistic=comparison.statistic,
        clock=base.units[0].clock if base.units else None,
        unit="epochs",
        epochs=len(base.units),
        stopped=comparison.stopped,
    )
    times = _times(comparison, verdict)
    return comparison_row(subject, times, comparison.question, verdict, _note(comparison, verdict))


def _times(comparison: _Comparison, verdict: Verdict) -> Times:
    base, new, effect = comparison.base, comparison.new, verdict.effect
    return Times(
        base_us=geometric_mean(base.us) if effect else None,
        new_us=geometric_mean(new.us) if effect else None,
        ratio=ratio_keys("", effect),
        p90=ratio_keys("", comparison.question.tail_effect),
        fastest=ratio_keys("", log_ratio(base.fastest_us, new.fastest_us)),
        shift=thin_tails_left_out(
            shift_function(base.shift_us, new.shift_us), min(base.fewest_samples, new.fewest_samples)
        )
        if base.units
        else [],
        between_modes=effect is not None and (base.is_between_modes or new.is_between_modes),
        over_epochs=comparison.over_epochs,
    )


def _note(comparison: _Comparison, verdict: Verdict) -> str | None:
    """Why the word is "unclear", and what to know of the ratio beside it; None where there is nothing."""
    notes = [verdict.note, APART if comparison.apart and comparison.base.units else None]
    over_epochs = comparison.over_epochs
    if over_epochs is not None and over_epochs.drifts:
        notes.append(f"the ratio drifts: {over_epochs.drift:.3g}x from the first to the last epoch")
    return "; ".join(note for note in notes if note) or None
