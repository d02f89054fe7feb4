"""What rank 0's supervisor keeps while a run is going does not grow with what all ranks have sent."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_terminal import ENVIRONMENT, FOLDER, plan_of, rows_of, unit

from ncclbench.compare.steering import Steering
from ncclbench.plan.model import Case, Plan
from ncclbench.store.model import Stop, Unit
from ncclbench.terminal.show import TerminalListener

NRANKS = 512
SAMPLES = 20
EPOCHS = 100
# Four times of eight bytes.
UNIT_BYTES = NRANKS * SAMPLES * 4 * 8


def of_many(case: Case, epoch: int, generator: np.random.Generator) -> Unit:
    """As a job of many ranks sends it, the slowest rank at 100 us and a bit."""
    times_us = generator.uniform(50, 99, (NRANKS, SAMPLES))
    times_us[epoch % NRANKS] = 100.0 + epoch
    return replace(
        unit(case, "gloo", epoch),
        start_us=times_us * 2,
        launch_us=times_us / 2,
        device_us=times_us + 0.0,
        total_us=times_us + 5.0,
        visits=(SAMPLES,),
        wrong=(0,) * (NRANKS - 1) + (1,),
    )


@pytest.fixture
def plan() -> Plan:
    return replace(plan_of(sizes=(1024,)), epochs=EPOCHS, nranks=NRANKS)


def grown_bytes(take: Any, plan: Plan) -> int:
    """How much more is held after epochs 2 to the last than after the first two."""
    generator = np.random.default_rng(1)
    (case,) = plan.planned
    tracemalloc.start()
    try:
        for epoch in range(EPOCHS):
            take(case, epoch, [of_many(case, epoch, generator)])
            if epoch == 1:
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_the_table_keeps_the_slowest_rank_alone(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    listener = TerminalListener()
    listener.started(FOLDER, plan, ENVIRONMENT, [])

    def take(case: Case, epoch: int, units: list[Unit]) -> None:
        listener.measured(case, epoch, units, 0.1)

    assert grown_bytes(take, plan) < 2 * UNIT_BYTES, "98 units were more than 32 MB"
    listener.stopped(plan.planned[0], Stop(EPOCHS, "epochs", None))
    (row,) = rows_of(capsys.readouterr().out)
    # Medians of 100, 101, ... 199 us of device time; a wrong element in each epoch.
    assert (row[5], row[-3:]) == ("149.50", [str(EPOCHS), "WRONG", "DATA"])


def test_steering_keeps_a_number_for_each_epoch(plan: Plan) -> None:
    steering = Steering(plan, None)
    steering.next_orders()

    def take(case: Case, epoch: int, units: list[Unit]) -> None:
        steering.take(case.key, units, 0.1)

    assert grown_bytes(take, plan) < UNIT_BYTES
