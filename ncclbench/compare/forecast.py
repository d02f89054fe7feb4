"""What a plan will cost and what it can find, foretold from a calibration: one row per case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ncclbench.plan.model import Case, Plan, PlannedCase
from ncclbench.stats.intervals import LogMean, Margin
from ncclbench.stats.power import epochs_needed, smallest_effect
from ncclbench.stats.stopping import is_look, is_precise

Entry = Mapping[str, Any]


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
    rows = [_row(plan, entry, calibration, family) for entry in plan.cases]
    planned = [row for row in rows if row["status"] == "planned"]
    seconds = [row["seconds"] for row in planned]
    return Forecast(
        rows=rows,
        seconds=None if None in seconds else sum(seconds) + _starting_s(plan, calibration, planned),
        at_most=any(row["seconds_from"] == "budget" for row in planned),
        family=family,
    )


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
    plan: Plan, entry: PlannedCase, calibration: Mapping[str, Any] | None, family: int
) -> dict[str, Any]:
    planned = entry.status == "planned"
    known = _known(plan, entry.case, calibration) if planned else None
    spread = known.spread if known and family else None
    epochs = _epochs(plan, known, spread) if planned else None
    seconds, seconds_from = None, None
    if known and known.epoch_s and epochs:
        seconds, seconds_from = epochs * known.epoch_s, "calibration"
    elif planned and plan.time_budget_s is not None:
        seconds, seconds_from = plan.time_budget_s, "budget"
    margin = Margin(plan.margin_ratio, plan.margin_us).of(known.time_us) if known else None
    smallest = needed = None
    if spread is not None and margin is not None and epochs:
        effect = smallest_effect(spread, epochs, family)
        smallest = effect if math.isfinite(effect) else None
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
        "smallest": smallest,
        "margin": margin,
        "resolves": None if spread is None else smallest is not None and smallest <= (margin or 0.0),
        "epochs_needed": needed,
        "calibrated_nbytes": known.nbytes if known else None,
    }


def _epochs(plan: Plan, known: _Known | None, spread: float | None) -> int:
    """The epochs a case will get: the plan's, fewer where the budget or the precision ends it before."""
    most = plan.epochs
    if known and known.epoch_s and plan.time_budget_s is not None:
        most = max(1, min(most, int(plan.time_budget_s / known.epoch_s)))
    if plan.precision is not None and spread:
        for epochs in _looks(most):
            if is_precise(LogMean(epochs, 0.0, spread / math.sqrt(epochs), epochs - 1), plan.precision):
                return epochs
    return most


@cache
def _looks(most: int) -> tuple[int, ...]:
    return tuple(filter(is_look, range(most + 1)))


def _known(plan: Plan, case: Case, calibration: Mapping[str, Any] | None) -> _Known | None:
    """What the calibration says of the operation and mode, at the size nearest to the case's."""
    entries = _alike(case, [] if calibration is None else calibration["resolution"])
    if not entries:
        return None
    nearest = min(entries, key=lambda entry: abs(_log_size(entry["nbytes"]) - _log_size(case.nbytes)))
    # Both arms of the calibration, and its iterations: what follows is per arm, for the plan's.
    iters = plan.iters_in_epoch(0) / nearest["iters_in_epoch"]
    timed_s = _at(case.nbytes, entries, [entry["timed_s"] for entry in entries])
    epoch_s = None
    if all(entry["epoch_s"] is not None for entry in entries):
        rest = [max(entry["epoch_s"] - entry["timed_s"], 0.0) for entry in entries]
        epoch_s = (_at(case.nbytes, entries, rest) + timed_s * iters) * len(plan.arms) / 2
    return _Known(
        nbytes=nearest["nbytes"],
        spread=_spread(nearest, iters),
        epoch_s=epoch_s or None,
        time_us=_at(case.nbytes, entries, [entry["time_us"] for entry in entries]),
    )


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


def _starting_s(
    plan: Plan, calibration: Mapping[str, Any] | None, planned: Sequence[Mapping[str, Any]]
) -> float:
    """Seconds to start processes and to make the groups of all epochs, as far as they are known."""
    if calibration is None:
        return 0.0
    epochs: int = max(row["epochs"] for row in planned)
    launches = epochs if plan.epoch_kind == "process" else 1
    group_s, process_s = (float(calibration[key] or 0.0) for key in ("group_s", "process_s"))
    return epochs * len(plan.arms) * group_s + launches * process_s


def _log_size(nbytes: int) -> float:
    return math.log(max(nbytes, 1))
