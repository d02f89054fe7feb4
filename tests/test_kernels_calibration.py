"""Kernels calibrated by several ranks: the same length everywhere, in few rounds, and nobody left waiting."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncclbench.kernels import Shape, calibrate
from ncclbench.kernels.calibration import CLOSE, MAX_ROUNDS
from ncclbench.kernels.kind import MAX_LENGTH

from ncclbench.errors import MeasurementError, RequestError

Measure = Callable[[Any], float]
# An agreement that not all ranks come to is a deadlock.
DEADLINE_S = 5.0


@dataclass
class FakeKernel:
    """A kernel that is only a length."""

    shape: Shape
    kind: str = "fake"

    def with_length(self, length: int) -> FakeKernel:
        assert 1 <= length <= MAX_LENGTH
        return replace(self, shape=replace(self.shape, length=length))


@dataclass
class Agreement:
    """The maximum over ranks that are threads; each rank's calls are counted."""

    nranks: int
    values: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values, self.calls = [0.0] * self.nranks, [0] * self.nranks
        self._barrier = threading.Barrier(self.nranks)

    def of(self, rank: int) -> Callable[[float], float]:
        def agree(value: float) -> float:
            self.calls[rank] += 1
            self.values[rank] = value
            self._barrier.wait(DEADLINE_S)
            agreed = max(self.values)
            self._barrier.wait(DEADLINE_S)
            return agreed

        return agree


@dataclass
class Outcome:
    """Per rank: the length it ended with or the error; and how often all of them agreed on something."""

    lengths: list[int | Exception]
    calls: list[int]


def calibrated(measures: list[Measure], targets_us: list[float], lengths: list[int] | None = None) -> Outcome:
    agreement = Agreement(len(measures))

    def one(rank: int) -> int | Exception:
        kernel: Any = FakeKernel(Shape(1, 1, lengths[rank] if lengths else 1_000))
        try:
            return calibrate(kernel, targets_us[rank], measures[rank], agreement.of(rank)).shape.length
        except (MeasurementError, RequestError, OSError) as error:
            return error

    with ThreadPoolExecutor(len(measures)) as pool:
        return Outcome(list(pool.map(one, range(len(measures)))), agreement.calls)


def linear(fixed_us: float, us_per_step: float, noise: float = 0.0, seed: int = 0) -> Measure:
    source = random.Random(seed)
    return lambda kernel: (fixed_us + us_per_step * kernel.shape.length) * (1 + noise * source.random())


@pytest.mark.parametrize("target_us", [5.0, 100.0, 20_000.0, 3e6])
@pytest.mark.parametrize("us_per_step", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("fixed_us", [0.0, 4.0])
def test_target_is_met(target_us: float, us_per_step: float, fixed_us: float) -> None:
    measure = linear(fixed_us, us_per_step)
    (length,) = calibrated([measure], [target_us]).lengths
    assert isinstance(length, int)
    reached_us = measure(FakeKernel(Shape(1, 1, length)))
    longest_us = fixed_us + us_per_step * MAX_LENGTH
    assert abs(reached_us - min(target_us, longest_us)) <= max(CLOSE * target_us, us_per_step)


@given(
    seed=st.integers(0, 2**32),
    nranks=st.integers(1, 4),
    noise=st.sampled_from([0.0, 0.1, 1.0, 20.0]),
    target_us=st.floats(1e-3, 1e9),
    us_per_step=st.floats(1e-6, 1e3),
)
@settings(max_examples=60, deadline=None)
def test_ranks_end_alike_whatever_they_measure(
    seed: int, nranks: int, noise: float, target_us: float, us_per_step: float
) -> None:
    """Also with other targets and first lengths on every rank, as from measurements of its own."""
    source = random.Random(seed)
    measures = [linear(3.0 * rank, us_per_step, noise, seed + rank) for rank in range(nranks)]
    targets_us = [target_us * source.uniform(0.5, 2.0) for _ in range(nranks)]
    lengths = [source.randint(1, 10**6) for _ in range(nranks)]
    outcome = calibrated(measures, targets_us, lengths)
    assert len(set(outcome.lengths)) == 1
    assert isinstance(outcome.lengths[0], int)
    assert len(set(outcome.calls)) == 1
    # Two more: on the target and on the first length.
    assert outcome.calls[0] <= MAX_ROUNDS + 2


def test_slowest_rank_decides() -> None:
    outcome = calibrated([linear(0, 0.01), linear(0, 0.1)], [1_000.0] * 2)
    assert outcome.lengths == [10_000, 10_000]


def test_a_clock_that_shows_nothing_at_first_is_no_end() -> None:
    """Its ticks are of 15 ms: short launches take 0."""
    coarse = [lambda kernel: kernel.shape.length * 1e-3 // 15_000 * 15_000.0] * 2
    (length, same) = calibrated(coarse, [60_000.0] * 2).lengths
    assert length == same
    assert isinstance(length, int)
    assert abs(length * 1e-3 - 60_000.0) <= 15_000


def test_a_clock_that_never_moves_ends_with_the_first_length() -> None:
    assert calibrated([lambda kernel: 0.0], [50.0]).lengths == [1_000]


def test_one_step_is_the_shortest() -> None:
    assert calibrated([linear(50.0, 1.0)] * 2, [10.0] * 2).lengths == [1, 1]


def test_a_rank_that_cannot_measure_leaves_nobody_waiting() -> None:
    def broken(kernel: Any) -> float:
        raise OSError("no clock")

    own, other = calibrated([broken, linear(0, 0.01)], [1_000.0] * 2).lengths
    assert isinstance(own, OSError)
    assert isinstance(other, MeasurementError)
    assert str(other) == "kernel fake: a rank could not time it; its own message says why"


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_no_time_at_all_ends_every_rank(nonsense: float) -> None:
    outcome = calibrated([lambda kernel: nonsense, linear(0, 0.01)], [1_000.0] * 2)
    assert [type(error) for error in outcome.lengths] == [MeasurementError] * 2


@pytest.mark.parametrize("target_us", [0.0, -5.0, math.nan, math.inf])
def test_a_target_that_is_no_time_is_refused_on_every_rank(target_us: float) -> None:
    outcome = calibrated([linear(0, 0.01)] * 2, [target_us, 100.0])
    assert [str(error) for error in outcome.lengths] == [
        "kernel fake: the duration wanted must be finite and more than 0 us"
    ] * 2


SCRIPT = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from ncclbench.kernels import KINDS, calibrate, make_kernel

rank, path = int(sys.argv[1]), sys.argv[2]
store = dist.FileStore(path, 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=20))

def agree(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.item()

def measure(kernel):
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        kernel.launch()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6 * (1 + rank)

lengths = {}
for kind in KINDS:
    kernel = make_kernel(kind, "cpu", elements=2**16 if kind == "triad" else None, seed=rank)
    kernel.compile()
    kernel = calibrate(kernel, 3_000.0, measure, agree)
    kernel.launch()
    assert kernel.check()
    lengths[kind] = kernel.shape.length
dist.destroy_process_group()
print(json.dumps(lengths))
"""


@pytest.mark.full
def test_two_processes_agree_over_gloo(tmp_path: Path) -> None:
    """Real kernels, and a rank whose clock says twice the time."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "store")],
            env={"GLOO_SOCKET_IFNAME": "lo", "PATH": ""},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0]
    one, other = map(json.loads, outputs)
    assert one == other
    assert set(one) == {"fma", "triad", "gemm"}
