"""A drill: trial after trial, each with processes of its own, and nothing left of one before the next."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from ncclbench.faults.leftover import children, end_leftovers
from ncclbench.faults.model import DrillPlan, RunTrial, TrialRequest
from ncclbench.store.drills import DrillTrial
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import STRATEGIES


def run_drill(
    plan: DrillPlan,
    keep: Callable[[DrillTrial], None],
    signals: EndSignals,
    flight: Path | None = None,
) -> list[DrillTrial]:
    """All trials of all strategies; in each round of one trial each, strategies come in random order.

    Args:
        keep: told of each trial as it ends.
        signals: ending signals.
        flight: folder for the flight recorders' dumps of the first trial in which something breaks.

    Raises:
        MeasurementError: a trial did not come as far as its fault.
        Interrupted: an ending signal has come; nothing of the trial it broke is left.
    """
    order = random.Random(plan.seed)
    trials = []
    for number in range(plan.trials):
        for strategy in order.sample(plan.strategies, len(plan.strategies)):
            breaks = FAULTS[plan.fault].ends and STRATEGIES[strategy].detaches
            own, flight = (flight, None) if breaks else (None, flight)
            trial = _run_one(TrialRequest(plan, strategy, number, secrets.token_hex(8), signals, own))
            keep(trial)
            trials.append(trial)
    return trials


def _run_one(request: TrialRequest) -> DrillTrial:
    before = children()
    ended = False
    try:
        trial = _runner(request.strategy)(request)
        ended = True
    finally:
        if not ended:
            end_leftovers(before, request.token)
    left = end_leftovers(before, request.token)
    return msgspec.structs.replace(trial, leftover_processes=left)


def _runner(strategy: str) -> RunTrial:
    if STRATEGIES[strategy].needs == "elastic":
        from ncclbench.faults.restart import run_trial as restart

        return restart
    from ncclbench.faults.trial import run_trial

    return run_trial
