"""What a plan will cost and what it can find, foretold from a calibration: one row per case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ncclbench.compare.split import Cost, operations_of, visits_of
from ncclbench.plan.model import Case, Plan, PlannedCase
from ncclbench.plan.schedule import usual_visits
from ncclbench.stats.intervals import LogMean, Margin
from ncclbench.stats.power import epochs_needed, smallest_effect
from ncclbench.stats.stopping import is_look, is_precise
from ncclbench.tables.modes import MODES

Entry = Mapping[str, Any]

# A calibration compares so many arms, and visits each so often in an epoch.
_ARMS = 2
_VISITS = usual_visits(_ARMS)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is foretold of a run.

    Attributes:
        rows: one per case of the plan, skipped ones included; keys as in docs/commands.md.
        seconds: all together; None where a case's are unknown.
        at_most: ``seconds`` is an upper bound, because a budget stands in for what is unknown.
        family: comparisons that the run will judge together.
    """

    rows: list[dict[str, Any]]
    seconds: float | None
    at_most: bool
    family: int


def forecast(plan: Plan, calibration: Mapping[str, Any] | None) -> Forecast:
    """The cost and the resolution of a plan, as far as a calibration of the same machine can tell."""
    family = len(plan.planned) * (len(plan.arms) - 1)
    overhead_s, process_s = _overhead_s(plan, calibration)
    share_s = overhead_s / max(1, len(plan.planned))
    rows = [_row(plan, entry, calibration, family, share_s) for entry in plan.cases]
    planned = [row for row in rows if row["status"] == "planned"]
    seconds = _seconds(plan, planned, share_s)
    return Forecast(
        rows=rows,
        seconds=None if seconds is None else seconds + process_s,
        at_most=any(row["seconds_from"] == "budget" for row in planned),
        family=family,
    )


def _overhead_s(plan: Plan, calibration: Mapping[str, Any] | None) -> tuple[float, float]:
    """Seconds that each epoch takes beside its cases, and those before the first; zero where unknown."""
    if calibration is None:
        return 0.0, 0.0
    group_s, process_s = (float(calibration[key] or 0.0) for key in ("group_s", "process_s"))
    groups_s, teams = len(plan.arms) * group_s, len(plan.teams)
    is_apart = plan.epoch_kind == "process" or teams > 1
    return (groups_s + teams * process_s, 0.0) if is_apart else (groups_s, process_s)


def _seconds(plan: Plan, planned: Sequence[Mapping[str, Any]], share_s: float) -> float | None:
    """Seconds of all epochs; None where a case's are unknown."""
    each_s: list[float | None] = [row["seconds"] for row in planned]
    known_s = [seconds for seconds in each_s if seconds is not None]
    if len(known_s) < len(each_s):
        return None
    epochs: list[int] = [row["epochs"] for row in planned if row["epochs"] is not None]
    # A case that has ended leaves its share of an epoch's groups to the others.
    left_s = share_s * (len(epochs) * max(epochs, default=0) - sum(epochs))
    # A budget holds that too; but a case has one epoch even where it takes longer.
    most_s = sum(max(plan.time_budget_s or math.inf, seconds) for seconds in known_s)
    return min(sum(known_s) + left_s, most_s)


@dataclass(frozen=True, slots=True)
class _Known:
    """A case as the calibration knows it, carried over to the plan's iterations and arms.

    Attributes:
        nbytes: size of the nearest calibrated case.
        spread: of the log ratio over epochs, None where unknown.
        epoch_s: seconds of an epoch with all arms, None where unknown.
        time_us: of the statistic.
    """

    nbytes: int
    spread: float | None
    epoch_s: float | None
    time_us: float


def _row(
    plan: Plan, entry: PlannedCase, calibration: Mapping[str, Any] | None, family: int, share_s: float
) -> dict[str, Any]:
    planned = entry.status == "planned"
    known = _known(plan, entry.case, calibration, share_s) if planned else None
    # Equal arms were calibrated side by side: of arms in processes of their own they tell the cost alone.
    spread = known.spread if known and family and len(plan.teams) == 1 else None
    cost_s = known.epoch_s + share_s if known and known.epoch_s else None
    epochs = _epochs(plan, cost_s, spread) if planned else None
    seconds, seconds_from = None, None
    if cost_s and epochs:
        seconds, seconds_from = epochs * cost_s, "calibration"
    elif planned and plan.time_budget_s is not None:
        seconds, seconds_from = plan.time_budget_s, "budget"
    margin = Margin(plan.margin_ratio, plan.margin_us).of(known.time_us) if known else None
    smallest = resolves = needed = None
    if spread is not None and margin is not None and epochs:
        effect = smallest_effect(spread, epochs, family)
        smallest = effect if math.isfinite(effect) else None
        resolves = smallest is not None and smallest <= margin
        needed = epochs_needed(spread, margin, family) if 0 < margin < math.inf else None
    return {
        **entry.case.to_json(),
        "status": entry.status,
        "reason": entry.reason,
        "bytes_per_rank": entry.bytes_per_rank,
        "seconds": seconds,
        "seconds_from": seconds_from,
        "epochs": epochs,
        "epoch_s": known.epoch_s if known else None,
        "overhead_s": share_s if planned and calibration is not None else None,
        "smallest": smallest,
        "margin": margin,
        "resolves": resolves,
        "epochs_needed": needed,
        "calibrated_nbytes": known.nbytes if known else None,
    }


def _epochs(plan: Plan, cost_s: float | None, spread: float | None) -> int | None:
    """The epochs a case will get: the plan's, fewer where the budget or the precision ends it before.

    None where that depends on what is unknown: ``cost_s`` of an epoch with its overhead, or the spread.
    """
    most = plan.epochs
    if plan.time_budget_s is not None:
        if cost_s is None:
            return None
        most = max(1, min(most, int(plan.time_budget_s / cost_s)))
    if plan.precision is None:
        return most
    if spread is None:
        return None
    for epochs in _looks(most):
        if is_precise(LogMean(epochs, 0.0, spread / math.sqrt(epochs), epochs - 1), plan.precision):
            return epochs
    return most


@cache
def _looks(most: int) -> tuple[int, ...]:
    return tuple(filter(is_look, range(most + 1)))


def _known(plan: Plan, case: Case, calibration: Mapping[str, Any] | None, share_s: float) -> _Known | None:
    """What the calibration says of the operation and mode, at the size nearest to the case's."""
    entries = _alike(case, [] if calibration is None else calibration["resolution"])
    if not entries:
        return None

    def at(key: str) -> float:
        return _at(case.nbytes, entries, [entry[key] for entry in entries])

    nearest = min(entries, key=lambda entry: abs(_log_size(entry["nbytes"]) - _log_size(case.nbytes)))
    # What is not timed (warm-up, checks) comes with each visit.
    rest_s = [max((entry["epoch_s"] or 0.0) - entry["timed_s"], 0.0) for entry in entries]
    visit = _Visit(
        operations=max(1.0, nearest["iters_in_epoch"] / _VISITS),
        rest_s=_at(case.nbytes, entries, rest_s) / (_ARMS * _VISITS),
        timed_s=at("timed_s") / (_ARMS * _VISITS),
        time_us=at("time_us"),
    )
    visits, length = _epoch(plan, visit, MODES[case.mode].fenced, share_s)
    epoch_s = len(plan.arms) * visits * (visit.rest_s + length * visit.timed_s)
    return _Known(
        nbytes=nearest["nbytes"],
        spread=_spread(nearest, visits * length / _VISITS),
        epoch_s=epoch_s if all(entry["epoch_s"] is not None for entry in entries) else None,
        time_us=visit.time_us,
    )


@dataclass(frozen=True, slots=True)
class _Visit:
    """A visit to one arm in the calibration.

    Attributes:
        operations: asked for; batches may hold more.
        rest_s: seconds beside those timed.
        timed_s: seconds of all timed operations.
        time_us: of one operation.
    """

    operations: float
    rest_s: float
    timed_s: float
    time_us: float


def _epoch(plan: Plan, visit: _Visit, fenced: bool, share_s: float) -> tuple[int, float]:
    """Visits to each arm in an epoch of the plan, and how many times as much as calibrated each measures."""
    narms = len(plan.arms)
    if plan.adapts and plan.time_budget_s is not None:
        # As the sweep itself will choose them. A batch is one sample, however many operations it has.
        in_visit = visit.operations if fenced else 1.0
        cost = Cost(share_s, visit.rest_s, visit.timed_s / in_visit)
        samples = float(operations_of(cost)) if fenced else 1.0
        return visits_of(cost, narms, samples, None, plan.time_budget_s, None), samples / in_visit
    visits = usual_visits(narms)
    asked = max(1.0, plan.iters_in_epoch(0) / visits) / visit.operations
    if fenced:
        return visits, asked
    # Batches are as long as the clock needs: operations count only where they alone take longer.
    share = min(1.0, visit.operations * visit.time_us * 1e-6 / visit.timed_s)
    return visits, max(1.0, asked * share)


def _alike(case: Case, entries: Sequence[Entry]) -> list[Entry]:
    """Entries of the case's operation and mode, by size; of its dtype where there are such."""
    same = [entry for entry in entries if (entry["op"], entry["mode"]) == (case.op, case.mode)]
    of_dtype = [entry for entry in same if entry["dtype"] == case.dtype]
    if not of_dtype and same:
        of_dtype = [entry for entry in same if entry["dtype"] == same[0]["dtype"]]
    return sorted(of_dtype, key=lambda entry: int(entry["nbytes"]))


def _at(nbytes: int, entries: Sequence[Entry], values: Sequence[float]) -> float:
    """A value at a size: between calibrated sizes a power law, below the smallest the same as there.

    Above the largest it grows with the bytes, the most that bandwidth asks for.
    """
    sizes = [_log_size(entry["nbytes"]) for entry in entries]
    logs = np.log([max(value, 1e-12) for value in values])
    beyond = max(0.0, _log_size(nbytes) - sizes[-1])
    return math.exp(float(np.interp(_log_size(nbytes), sizes, logs)) + beyond)


def _spread(entry: Entry, iters: float) -> float | None:
    """The spread of the ratio with ``iters`` times the iterations: only what they cause shrinks with them."""
    if not entry["spread"]:
        return None
    spread = float(entry["spread"])
    share = min(1.0, 2 * (entry["spread_iteration"] or 0.0) ** 2 / spread**2)
    return spread * math.sqrt(1 - share + share / iters)


def _log_size(nbytes: int) -> float:
    return math.log(max(nbytes, 1))
