"""The orders of a point-to-point run, and how what the workers find becomes lines of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ncclbench.errors import RequestError
from ncclbench.plan.model import Arm
from ncclbench.plan.schedule import creation_order, split_iterations, visit_order
from ncclbench.store.lines import Line
from ncclbench.store.p2p import ArmFound, FirstCalls, PeerTimes, WayTimes
from ncclbench.tables.ways import WAYS
from ncclbench.units import format_bytes
from ncclbench.worker.protocol import Program

Orders = Generator[dict[str, Any], Any, None]
Keep = Callable[[Sequence[Line]], None]

# The stages of the workers' program, with the words for where a rank is.
STAGES = {
    "opening": "opening the process groups",
    "first": "the first messages",
    "ways": "the ways of sending",
    "peers": "the messages to several peers",
}

# Of a first message and of those that follow it.
FIRST_BYTES = 8
_LATER = 10

# Each case is visited so often in an epoch.
_VISITS = 2

# The collective that runs beside messages.
BESIDE = "all_reduce"


@dataclass(frozen=True, slots=True)
class P2pPlan:
    """What a run measures.

    Attributes:
        parts: names in PARTS.
        arms: ids and backends.
        sizes: bytes of a message, rising.
        ways: names in WAYS.
        orders: names in ORDERINGS.
        peers: ranks that rank 0 sends to.
        iters: repetitions of each way and size, in all epochs together.
        warmup: untimed repetitions before each visit; ``check``: passes with checked data around it.
        epochs: fresh sets of process groups.
        deadline_s: of one cell.
        timeout_s: after so long without progress a rank is called hung.
        seed: of data and of the order of visits.
        share_gpu: ranks may share a GPU.
    """

    parts: tuple[str, ...]
    arms: tuple[Arm, ...]
    nranks: int
    sizes: tuple[int, ...]
    ways: tuple[str, ...]
    orders: tuple[str, ...]
    peers: tuple[int, ...]
    iters: int
    warmup: int
    check: int
    epochs: int
    deadline_s: float
    timeout_s: float
    seed: int
    share_gpu: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data, as run.json has it under ``asked``: lists as they are typed."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("arms", "nranks")}
        fields["sizes"] = [format_bytes(nbytes) for nbytes in self.sizes]
        lists = ("parts", "sizes", "ways", "orders", "peers")
        fields |= {name: ",".join(map(str, fields[name])) for name in lists}
        return fields | ({"peers": "all"} if self.peers == tuple(range(1, self.nranks)) else {})

    @property
    def program(self) -> Program:
        """What the workers run."""
        arms = [[arm.id, arm.backend] for arm in self.arms]
        request = {
            "arms": arms,
            "arm": arms[0],
            "stages": list(STAGES),
            "words": list(STAGES.values()),
            "seed": self.seed,
            "share_gpu": self.share_gpu,
        }
        return Program("p2p", request)

    @property
    def combinations(self) -> list[tuple[int, str, bool]]:
        """(index of the arm, way, whether as much goes each way): what takes turns on each size."""
        return [
            (index, name, both)
            for index in range(len(self.arms))
            for name in self.ways
            for both in ((False, True) if WAYS[name].exchange is not None else (False,))
        ]

    @property
    def fan_sizes(self) -> list[int]:
        """Sizes of messages to several peers: the smallest, the largest, and one in the middle."""
        return sorted({self.sizes[0], self.sizes[len(self.sizes) // 2], self.sizes[-1]})

    @property
    def fans(self) -> list[int]:
        """To how many peers at once: doubled up to all of them."""
        most = len(self.peers)
        return sorted({min(2**power, most) for power in range(most.bit_length() + 1)})


class P2pOrders:
    """What the workers of one run are asked to do, epoch by epoch."""

    def __init__(self, plan: P2pPlan, keep: Keep, tell: Callable[[str], None]) -> None:
        """``keep`` gets lines as they come; ``tell`` where the measurement is."""
        self._plan = plan
        self._keep = keep
        self._tell = tell
        self._here = list(range(len(plan.arms)))
        self._known: list[str] = []

    @property
    def known(self) -> list[str]:
        """Ids of the arms of which the run says what they are."""
        return self._known

    @property
    def available(self) -> list[Arm]:
        """Arms that can be had, as far as known."""
        return [self._plan.arms[index] for index in self._here]

    def orders(self) -> Orders:
        """All of it.

        Raises:
            RequestError: none of the arms can be had.
        """
        plan = self._plan
        if not {"ways", "first", "peers"} & set(plan.parts):
            return
        for epoch in range(plan.epochs):
            yield from self._open(epoch)
            self._tell(f"epoch {epoch + 1} of {plan.epochs}")
            if "ways" in plan.parts:
                yield from self._ways(epoch)
            if "peers" in plan.parts:
                yield from self._fan_out(epoch)
            if "first" in plan.parts:
                yield from self._first(epoch)

    def _open(self, epoch: int) -> Orders:
        plan = self._plan
        order = [self._here[index] for index in creation_order(len(self._here), plan.seed, epoch)]
        found = yield {"stage": "opening", "epoch": epoch, "arms": order}
        if epoch == 0:
            self._known = [arm.id for arm in plan.arms]
            self._keep(
                [
                    ArmFound(
                        arm=plan.arms[index].id,
                        implementation=found[index][0],
                        device=found[index][1],
                        reason=found[index][2],
                    )
                    for index in self._here
                ]
            )
        reasons = {index: entry[2] for index, entry in found.items() if entry[2] is not None}
        self._here = [index for index in self._here if index not in reasons]
        if not self._here:
            told = "; ".join(f"{plan.arms[index].id}: {reason}" for index, reason in sorted(reasons.items()))
            raise RequestError(f"nothing can be measured here: {told} (--backends gloo runs anywhere)")

    def _ways(self, epoch: int) -> Orders:
        plan = self._plan
        combinations = [each for each in plan.combinations if each[0] in self._here]
        share = split_iterations(plan.iters, plan.epochs)[epoch]
        iterations = max(1, math.ceil(share / _VISITS))
        for nbytes in plan.sizes:
            numbers = visit_order(len(combinations), plan.seed, epoch, str(nbytes), _VISITS)
            visits = [combinations[number] for number in numbers]
            found = yield {
                "stage": "ways",
                "epoch": epoch,
                "nbytes": nbytes,
                "visits": visits,
                "iterations": iterations,
                "warmup": plan.warmup,
                "check": plan.check,
            }
            times, wrong = found
            self._keep(
                [
                    self._line(epoch, nbytes, each, times[:, own], sum(wrong[index] for index in own))
                    for each in combinations
                    for own in [[index for index, visit in enumerate(visits) if visit == each]]
                ]
            )

    def _line(self, epoch: int, nbytes: int, each: tuple[int, str, bool], times: Any, wrong: int) -> WayTimes:
        """``times``: of the combination's visits, shape (2, visits, iterations, 2)."""
        index, name, both = each
        host, total = times[0, :, :, 0].ravel(), times[0, :, :, 1].ravel()
        other = times[1, :, :, 1].ravel()
        there = total if WAYS[name].round_trip else np.maximum(total, other) if both else other
        return WayTimes(
            way=name,
            arm=self._plan.arms[index].id,
            nbytes=nbytes,
            both=both,
            epoch=epoch,
            messages=WAYS[name].messages,
            host_us=_rounded(host),
            total_us=_rounded(total),
            free_us=_rounded(total - host),
            there_us=_rounded(there),
            wrong=wrong,
        )

    def _fan_out(self, epoch: int) -> Orders:
        plan = self._plan
        iterations = split_iterations(plan.iters, plan.epochs)[epoch]
        cases = [
            (index, nbytes, fan, beside)
            for index in self._here
            for nbytes in plan.fan_sizes
            for fan in plan.fans
            for beside in (False, True)
            # One message is held against itself only where a collective makes the difference.
            if beside or fan > 1
        ]
        for number in creation_order(len(cases), plan.seed, epoch):
            index, nbytes, fan, beside = cases[number]
            times, wrong = yield {
                "stage": "peers",
                "epoch": epoch,
                "arm": index,
                "nbytes": nbytes,
                "peers": list(plan.peers[:fan]),
                "beside": beside,
                "iterations": iterations,
                "check": plan.check,
            }
            self._keep(
                [
                    PeerTimes(
                        arm=plan.arms[index].id,
                        epoch=epoch,
                        nbytes=nbytes,
                        peers=fan,
                        beside=BESIDE if beside else None,
                        total_us=_rounded(times[0]),
                        one_us=_rounded(times[1]),
                        beside_us=_rounded(times[2]) if beside else None,
                        wrong=wrong,
                    )
                ]
            )

    def _first(self, epoch: int) -> Orders:
        plan = self._plan
        for place in creation_order(len(self._here), plan.seed, epoch):
            index = self._here[place]
            # Another peer is first in each epoch: whoever is first pays what all pay once.
            turn = epoch % len(plan.peers)
            peers = [*plan.peers[turn:], *plan.peers[:turn]]
            init_us, times = yield {
                "stage": "first",
                "epoch": epoch,
                "arm": index,
                "peers": peers,
                "nbytes": FIRST_BYTES,
                "later": _LATER,
            }
            self._keep(
                [
                    FirstCalls(
                        arm=plan.arms[index].id,
                        epoch=epoch,
                        src=0,
                        dst=peer,
                        nbytes=FIRST_BYTES,
                        init_us=round(init_us, 3),
                        first_us=round(float(own[0]), 3),
                        later_us=_rounded(own[1:]),
                    )
                    for peer, own in zip(peers, times, strict=True)
                ]
            )


def _rounded(times_us: Any) -> list[float]:
    """To 1 ns, finer than any clock read here."""
    rounded: list[float] = np.round(times_us, 3).tolist()
    return rounded
