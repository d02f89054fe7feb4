"""The ordering matrix: two ranks that call in one order, and from which size on they deadlock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.cells.cell import COLD_GPU_S, MOST_DEADLINES, CellResult, NotHere, run_cell
from ncclbench.cells.rank import CellRank, CellTask
from ncclbench.faults.shortening import shortened
from ncclbench.plan.model import Arm
from ncclbench.store.p2p import OrderingCell
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.orderings import ORDERINGS

# Beyond the deadlines of a cell: what hangs is to be seen hanging, and not raising torch's own timeout.
TORCH_EXTRA_S = 60.0


def run_ordering(
    names: Sequence[str],
    arm: Arm,
    sizes: Sequence[int],
    deadline_s: float,
    share_gpu: bool,
    keep: Callable[[OrderingCell, CellResult], None],
    signals: EndSignals,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Each order on the smallest and the largest size, and where these differ on those between, bisected.

    Args:
        names: in ORDERINGS.
        sizes: bytes, rising.
        keep: gets each cell as it ends; ``before``: as in ``run_cell``.

    Raises:
        NotHere: the arm cannot be had.
        MeasurementError: the ranks of a cell could not be started.
        Interrupted: an ending signal came.
    """
    task = CellTask(arm, 2, COLD_GPU_S + MOST_DEADLINES * deadline_s + TORCH_EXTRA_S, share_gpu)

    def completes(name: str, nbytes: int) -> bool:
        result = run_cell(task, partial(play, name, nbytes), deadline_s, signals, before)
        if result.reason is not None:
            raise NotHere(result.reason)
        cell = _cell(name, arm, nbytes, result)
        keep(cell, result)
        return cell.outcome == "completed"

    for name in names:
        bisect(sizes, partial(completes, name))


def bisect(sizes: Sequence[int], completes: Callable[[int], bool]) -> int | None:
    """The smallest of the rising sizes that does not complete, as few as possible tried; None where all do.

    A message that hangs for its size hangs in any larger size too.
    """
    if not completes(sizes[0]):
        return sizes[0]
    if len(sizes) == 1 or completes(sizes[-1]):
        return None
    good, bad = 0, len(sizes) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if completes(sizes[middle]):
            good = middle
        else:
            bad = middle
    return sizes[bad]


def _cell(name: str, arm: Arm, nbytes: int, result: CellResult) -> OrderingCell:
    said = {rank: f"in {step}" for rank, step in result.standing.items()}
    said |= dict.fromkeys(result.values, "done")
    said |= result.errors
    return OrderingCell(
        order=name,
        arm=arm.id,
        nbytes=nbytes,
        outcome=result.outcome,  # type: ignore[arg-type]
        said={str(rank): shortened(text) for rank, text in sorted(said.items())},
        seconds=round(result.seconds, 6),
        wrong=sum(not right for right in result.values.values()),
        leftover_processes=result.leftover_processes,
    )


def play(name: str, nbytes: int, rank: CellRank) -> bool:
    """What one of the two ranks calls; whether what it received is right, also where it received nothing."""
    steps = ORDERINGS[name].steps[rank.rank]
    hand = Hand(rank, nbytes)
    for step in steps:
        rank.says(step)
        getattr(hand, step)()
    if rank.device.kind == "cuda":
        rank.says("synchronize")
    rank.device.synchronize()
    return hand.is_right()


class Hand:
    """The steps of the orderings, methods by their names in STEPS."""

    def __init__(self, rank: CellRank, nbytes: int) -> None:
        where = rank.device.torch_device
        self._rank = rank
        self._to = {"group": rank.group, "group_dst": rank.peer}
        self._from = {"group": rank.group, "group_src": rank.peer}
        self._out = torch.full((nbytes,), 1 + rank.rank, dtype=torch.uint8, device=where)
        self._into = torch.zeros(nbytes, dtype=torch.uint8, device=where)
        self._sum = torch.ones(1, device=where)
        self._works: list[Any] = []
        self._received = False
        rank.device.synchronize()

    def send(self) -> None:
        dist.send(self._out, **self._to)

    def recv(self) -> None:
        dist.recv(self._into, **self._from)
        self._received = True

    def isend(self) -> None:
        self._works.append(dist.isend(self._out, **self._to))

    def irecv(self) -> None:
        self._works.append(dist.irecv(self._into, **self._from))
        self._received = True

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def batch(self) -> None:
        group, peer = self._rank.group, self._rank.peer
        operations = [
            dist.P2POp(dist.isend, self._out, group=group, group_peer=peer),
            dist.P2POp(dist.irecv, self._into, group=group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self._received = True

    def all_reduce(self) -> None:
        dist.all_reduce(self._sum, group=self._rank.group)

    def is_right(self) -> bool:
        """Whether every byte is the peer's."""
        return not self._received or bool((self._into == 1 + self._rank.peer).all())
