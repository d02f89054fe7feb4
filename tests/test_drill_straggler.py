"""The straggler policy on the waits of real ranks in a free-running loop, and on waits that are made up."""

from __future__ import annotations

import time
from datetime import timedelta
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch
import torch.distributed as dist
from drilling import assert_recovered, trials

from ncclbench.faults.model import LEAST_RATIO, Spared
from ncclbench.faults.straggler import WINDOWS, StragglerPolicy
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Slots
from ncclbench.worker.board import Board
from ncclbench.worker.groups import prepare_environment

COMPUTE_S = 0.002
WINDOW, LONGER = WINDOWS
NRANKS = 4
KEPT = 64


def waits_of(steps: int, slow: dict[int, float], slow_from: int) -> dict[int, list[float]]:
    """Real ranks: each sleeps and then waits in an all_reduce; microseconds in it, step by step."""
    meeting = meet_alone()
    board = Board(NRANKS)

    def work(slot: int, pipe: Connection) -> None:
        prepare_environment(one_host=True, share_gpu=False, ranks_per_gpu=1)
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            rank=slot,
            world_size=NRANKS,
            store=meeting.worker_store(0),
            timeout=timedelta(seconds=20),
        )
        data, waits = torch.ones(256), []
        for step in range(steps):
            time.sleep(COMPUTE_S * (slow.get(slot, 1.0) if step >= slow_from else 1.0))
            began = time.perf_counter_ns()
            dist.all_reduce(data, op=dist.ReduceOp.MAX)
            waits.append((time.perf_counter_ns() - began) / 1e3)
        pipe.send(waits)

    found: dict[int, list[float]] = {}
    with EndSignals() as signals, Slots() as slots:
        slots.start(range(NRANKS), board, work)
        deadline = time.monotonic() + 100
        while slots.running and time.monotonic() < deadline:
            for happening in slots.happenings(0.2, signals.wakeup):
                if isinstance(happening.message, list):
                    found[happening.slot.rank] = happening.message
    assert sorted(found) == list(range(NRANKS))
    return found


def first_named(waits: dict[int, list[float]]) -> tuple[int, int] | None:
    """The step after which a rank is named, and which: a look after every step, as a drill looks."""
    policy = StragglerPolicy(COMPUTE_S)
    for step in range(1, len(waits[0]) + 1):
        named = policy.look({rank: row[max(0, step - KEPT) : step] for rank, row in waits.items()})
        if named is not None:
            return step, named
    return None


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_four_times_as_slow_is_named_and_no_other(victim: int) -> None:
    named = first_named(waits_of(30 + 2 * WINDOW, {victim: 4.0}, slow_from=30))
    assert named is not None
    step, rank = named
    assert rank == victim
    assert 30 < step <= 30 + 2 * WINDOW


def test_a_drill_detaches_it_and_takes_in_another() -> None:
    (trial,) = trials(fault="slow", slow_factor=4.0, victim=1)
    assert_recovered(trial)
    first, last = trial.phases_ms["first_notice"], trial.phases_ms["last_notice"]
    assert first is not None
    assert last is not None
    # No sooner than the window can show it: its slow steps alone take that long.
    assert first > 1000 * (WINDOW // 2) * 4 * COMPUTE_S
    assert set(trial.notices_ms) == {"0", "2", "3"}


def test_of_a_healthy_run_nobody_is_named() -> None:
    assert first_named(waits_of(300, {}, slow_from=0)) is None


@pytest.mark.full
def test_of_a_long_healthy_run_nobody_is_named() -> None:
    assert first_named(waits_of(3000, {}, slow_from=0)) is None


def made_up(lateness_us: float, steps: int = KEPT, nranks: int = NRANKS, seed: int = 0) -> np.ndarray:
    """Waits, shape (nranks, steps), of ranks of whom the last is so much later than the others."""
    rng = np.random.default_rng(seed)
    arrivals = rng.normal(0, 50, (nranks, steps))
    arrivals[-1] += lateness_us
    return arrivals.max(axis=0) - arrivals + 80


def look(waits: np.ndarray, ranks: tuple[int, ...] | None = None) -> int | None:
    numbers = ranks or tuple(range(len(waits)))
    return StragglerPolicy(COMPUTE_S).look(
        {rank: list(row) for rank, row in zip(numbers, waits, strict=True)}
    )


def test_ranks_keep_their_numbers_where_one_is_missing() -> None:
    assert look(made_up(6000.0), ranks=(0, 1, 3, 7)) == 7


@pytest.mark.parametrize("ratio", [1.2, 1.5, 0.97 * LEAST_RATIO])
def test_what_costs_less_than_a_recovery_is_left_alone(ratio: float) -> None:
    assert look(made_up((ratio - 1) * COMPUTE_S * 1e6)) is None


def test_what_costs_more_is_named() -> None:
    assert look(made_up((1.1 * LEAST_RATIO - 1) * COMPUTE_S * 1e6)) == NRANKS - 1


def test_too_few_steps_say_nothing() -> None:
    assert look(made_up(1e5, steps=WINDOW - 1)) is None


def test_one_disturbance_is_no_straggler() -> None:
    waits = made_up(0.0)
    waits[:, -WINDOW // 2 :] = made_up(20_000.0, steps=WINDOW // 2)
    assert look(waits) is None


def test_noise_only_takes_longer() -> None:
    """One rank late in five steps of six: too few of the shorter window, enough of the longer."""
    waits = made_up(6000.0)
    waits[[0, -1], ::6] = waits[[-1, 0], ::6]
    assert look(waits[:, :WINDOW]) is None
    assert look(waits[:, :LONGER]) == NRANKS - 1


def test_two_that_are_slow_in_turn_are_not_told_apart() -> None:
    waits = made_up(6000.0)
    waits[[0, -1], ::2] = waits[[-1, 0], ::2]
    assert look(waits) is None


def test_alike_ranks_are_never_named() -> None:
    assert not any(look(made_up(0.0, seed=seed)) for seed in range(500))


def why_not(waits: np.ndarray, steps: int) -> Spared | None:
    return StragglerPolicy(COMPUTE_S).why_not({rank: list(row) for rank, row in enumerate(waits)}, steps)


def test_who_is_late_by_less_is_told_with_the_reason() -> None:
    waits = made_up(0.5 * COMPUTE_S * 1e6)
    assert why_not(waits, LONGER) is None, "too soon to say for good"
    spared = why_not(waits, 3 * LONGER)
    assert spared is not None
    assert spared.rank == NRANKS - 1
    assert f"a step takes rank {NRANKS - 1} 1." in spared.words
    assert "a recovery pays from 2 times on" in spared.words


def test_of_alike_ranks_nobody_is_looked_for_without_end() -> None:
    assert why_not(made_up(0.0), 3 * LONGER) is None
    spared = why_not(made_up(0.0), 10 * LONGER)
    assert spared is not None
    assert spared.rank is None


def test_who_is_late_enough_is_not_spared() -> None:
    assert why_not(made_up(1.1 * LEAST_RATIO * COMPUTE_S * 1e6), 10 * LONGER) is None
