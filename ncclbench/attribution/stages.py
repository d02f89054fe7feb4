"""The stages of a search: what the workers are asked to do, and how what they find becomes lines of a run.

Each function is a generator that yields orders for ``worker.programs.search`` and is sent the arrays that
rank 0 gathered; a line of samples.jsonl is made of every single test.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.attribution.model import FEWEST_ROUNDS
from ncclbench.plan.pairs import PairPlan
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest

Array = NDArray[np.float64]
Orders = Generator[dict[str, Any], Array, None]
Keep = Callable[[Sequence[Probe]], None]

# The stages in the order of a whole search, with the words for where a rank is.
STAGES = {
    "opening": "opening the process group",
    "compute": "the compute probe",
    "pairs": "the pair tests",
    "arrivals": "the free-running loop",
    "subsets": "the tests of subsets",
}

# With fewer passes noise cannot be told from a fault: a pass is a round of every pair that it measures.
FEWEST_PASSES = FEWEST_ROUNDS

# Passes that a quick search adds where somebody is named; others add as many as there were.
QUICK_MORE_PASSES = 2

# The operation of the free-running loop.
LOOP_OP = "all_reduce"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is sent and computed.

    Attributes:
        message_bytes: of a message; a test sends as many as its time takes.
        pair_s: how long one test of a link should take.
        compute_s: how long a compute probe should take.
        computes: passes of the compute probe before each of the pairs.
        loop_iterations, loop_work_s: of the free-running loop.
        subset_bytes, subset_iterations: of an operation on a subset.
    """

    message_bytes: int = 1 << 20
    pair_s: float = 0.2
    compute_s: float = 0.1
    computes: int = 3
    loop_iterations: int = 60
    loop_work_s: float = 0.004
    subset_bytes: int = 1 << 20
    subset_iterations: int = 3

    def quick(self) -> Size:
        """About half of it, or less."""
        return replace(
            self,
            message_bytes=self.message_bytes // 2,
            pair_s=0.4 * self.pair_s,
            compute_s=0.6 * self.compute_s,
            computes=2,
            loop_iterations=self.loop_iterations // 2,
            subset_bytes=self.subset_bytes // 2,
            subset_iterations=2,
        )


# A GPU's link moves in a millisecond what a CPU's network moves in a second.
GPU = Size(message_bytes=64 << 20, pair_s=0.05, subset_bytes=256 << 20)


def pair_passes(
    plan: PairPlan, size: Size, keep: Keep, first: int, passes: int, until_s: float | None = None
) -> Orders:
    """So many passes over all rounds, the first numbered ``first``.

    Args:
        until_s: of time.monotonic(): no pass beyond ``FEWEST_PASSES`` begins after it.
    """
    for turn in range(first, first + passes):
        if until_s is not None and turn >= FEWEST_PASSES and time.monotonic() > until_s:
            return
        # Another order in each pass, so that what drifts over the run does not fall on the same pairs.
        order = np.random.default_rng(turn).permutation(len(plan.rounds))
        rounds = [plan.rounds[index] for index in order]
        found = yield {
            "stage": "pairs",
            "turn": turn,
            "rounds": rounds,
            "message_bytes": size.message_bytes,
            "target_s": size.pair_s,
        }
        keep(
            [
                test
                for number, pairs in enumerate(rounds)
                for a, b in pairs
                for test in _both_ways(turn, a, b, found[:, number], size.message_bytes)
            ]
        )


def compute_passes(turns: Sequence[Sequence[int]], size: Size, keep: Keep, first: int, passes: int) -> Orders:
    """The compute probe, the first pass numbered ``first``: the ranks of each turn at the same time."""
    for turn in range(first, first + passes):
        found = yield {
            "stage": "compute",
            "turn": turn,
            "turns": [list(ranks) for ranks in turns],
            "target_s": size.compute_s,
        }
        keep(
            [
                RankTest(
                    turn=turn,
                    rank=rank,
                    compute_us=float(values[0]),
                    to_device_GBs=_number(values[1]),
                    from_device_GBs=_number(values[2]),
                )
                for rank, values in enumerate(found)
            ]
        )


def free_running(size: Size, keep: Keep) -> Orders:
    """The loop without a fence."""
    found = yield {
        "stage": "arrivals",
        "iterations": size.loop_iterations,
        "work_s": size.loop_work_s,
    }
    keep(
        [WaitTest(turn=0, rank=rank, op=LOOP_OP, waits_us=waits.tolist()) for rank, waits in enumerate(found)]
    )


def subsets(op: str, groups: Sequence[Sequence[int]], size: Size, keep: Keep, turn: int) -> Orders:
    """An operation on each of the groups."""
    found = yield {
        "stage": "subsets",
        "op": op,
        "groups": [list(ranks) for ranks in groups],
        "nbytes": size.subset_bytes,
        "iterations": size.subset_iterations,
    }
    keep(
        [
            SubsetTest(
                turn=turn,
                op=op,
                ranks=list(ranks),
                nbytes=size.subset_bytes,
                times_us=np.nanmax(found[:, number], axis=0).tolist(),
                iterations=size.subset_iterations,
            )
            for number, ranks in enumerate(groups)
        ]
    )


def compute_turns(host_of: Sequence[int], on_gpus: bool, one_at_a_time_up_to: int = 16) -> list[list[int]]:
    """Who computes at the same time: every GPU; of CPUs one rank of each host, or of few ranks one alone."""
    ranks = range(len(host_of))
    if on_gpus:
        return [list(ranks)]
    if len(host_of) <= one_at_a_time_up_to:
        return [[rank] for rank in ranks]
    members: dict[int, list[int]] = {}
    for rank in ranks:
        members.setdefault(host_of[rank], []).append(rank)
    most = max(len(group) for group in members.values())
    return [[group[turn] for group in members.values() if turn < len(group)] for turn in range(most)]


def _both_ways(turn: int, a: int, b: int, found: Array, nbytes: int) -> list[PairTest]:
    """The two directions of a pair, of what both ends say: latency, own way, wrong."""
    return [
        PairTest(
            turn=turn,
            src=src,
            dst=dst,
            nbytes=nbytes,
            latency_us=float(found[min(a, b)][0]),
            alone_GBs=float(found[src][1]),
            both_GBs=float(found[dst][2]),
            wrong=bool(found[dst][3]),
        )
        for src, dst in ((a, b), (b, a))
    ]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
