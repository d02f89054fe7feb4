"""Ranks in two groups: what becomes of them when all call in one order, and when some call in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.cells.cell import COLD_GPU_S, MOST_DEADLINES, CellResult, NotHere, run_cell
from ncclbench.cells.ordering import TORCH_EXTRA_S, bisect
from ncclbench.cells.rank import CellRank, CellTask
from ncclbench.faults.shortening import shortened
from ncclbench.plan.model import Arm
from ncclbench.store.groups import CrossedCell
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.groups import ISSUE_ORDERS
from ncclbench.tables.topologies import Groups

# Processes of a cell on one host.
MOST_RANKS = 16


def run_crossing(
    names: Sequence[str],
    arm: Arm,
    cuts: dict[str, Groups],
    nranks: int,
    sizes: Sequence[int],
    deadline_s: float,
    share_gpu: bool,
    keep: Callable[[CrossedCell, CellResult], None],
    signals: EndSignals,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Each order on the smallest and the largest size, and where these differ on those between, bisected.

    Args:
        names: in ISSUE_ORDERS.
        cuts: by name, in the usual order of calling; of a single one every group is made twice.
        sizes: bytes, rising.
        keep: gets each cell as it ends; ``before``: as in ``run_cell``.

    Raises:
        NotHere: the arm cannot be had.
        MeasurementError: the ranks of a cell could not be started.
        Interrupted: an ending signal came.
    """
    named = list(cuts.items())
    if len(named) == 1:
        named = [named[0], (f"{named[0][0]} again", named[0][1])]
    titles, groups = [name for name, _ in named], tuple(groups for _, groups in named)
    task = CellTask(arm, nranks, COLD_GPU_S + MOST_DEADLINES * deadline_s + TORCH_EXTRA_S, share_gpu, groups)
    crossing = who_crosses(groups, nranks)

    def completes(name: str, nbytes: int) -> bool:
        others = crossing if ISSUE_ORDERS[name].crossed else frozenset()
        work = partial(play, ISSUE_ORDERS[name].async_op, titles, groups, others, nbytes)
        result = run_cell(task, work, deadline_s, signals, before)
        if result.reason is not None:
            raise NotHere(result.reason)
        said = {rank: f"in {step}" for rank, step in result.standing.items()}
        said |= dict.fromkeys(result.values, "done")
        said |= result.errors
        cell = CrossedCell(
            order=name,
            arm=arm.id,
            topologies=titles,
            nbytes=nbytes,
            crossing=sorted(others),
            cannot_end=cannot_end(groups, others, nranks) and not ISSUE_ORDERS[name].async_op,
            outcome=result.outcome,  # type: ignore[arg-type]
            said={str(rank): shortened(text) for rank, text in sorted(said.items())},
            seconds=round(result.seconds, 6),
            wrong=sum(not right for right in result.values.values()),
            leftover_processes=result.leftover_processes,
        )
        keep(cell, result)
        return cell.outcome == "completed"

    for name in names:
        bisect(sizes, partial(completes, name))


def play(
    async_op: bool,
    titles: Sequence[str],
    cuts: Sequence[Groups],
    crossing: frozenset[int],
    nbytes: int,
    rank: CellRank,
) -> bool:
    """What one rank calls, the cuts in their order or, where it crosses, backwards; whether all is right."""
    calls = []
    for title, groups, group in zip(titles, cuts, rank.groups, strict=True):
        own = next((ranks for ranks in groups if rank.rank in ranks), None)
        if own is not None:
            value = torch.full((max(1, nbytes // 4),), float(1 + rank.rank), device=rank.device.torch_device)
            calls.append((title, group, value, float(sum(1 + member for member in own))))
    if rank.rank in crossing:
        calls.reverse()
    rank.device.synchronize()
    works: list[tuple[str, Any]] = []
    for title, group, value, _ in calls:
        rank.says(f"all_reduce in {title}")
        work = dist.all_reduce(value, group=group, async_op=async_op)
        works += [(title, work)] if async_op else []
    for title, work in works:
        rank.says(f"wait() for all_reduce in {title}")
        work.wait()
    if rank.device.kind == "cuda":
        rank.says("synchronize")
    rank.device.synchronize()
    return all(bool((value == expected).all()) for _, _, value, expected in calls)


def who_crosses(cuts: Sequence[Groups], nranks: int) -> frozenset[int]:
    """Ranks that call in the other order, chosen so that calls that block cannot end, where that can be.

    Every second rank of each group, of the world, or along the diagonal of a mesh: one of these makes ranks
    wait for each other in a circle, over as many of them as the groups join.
    """

    def places(groups: Groups) -> dict[int, int]:
        return {rank: place for ranks in groups for place, rank in enumerate(ranks)}

    within = [places(groups) for groups in dict.fromkeys(cuts)]
    ranks = range(nranks)
    choices = [
        frozenset(rank for rank in ranks if sum(place.get(rank, 0) for place in within) % 2),
        frozenset(rank for rank in ranks if rank % 2),
        *(frozenset(rank for rank in ranks if place.get(rank, 0) % 2) for place in within),
        *(frozenset((rank,)) for rank in ranks),
    ]
    return next((choice for choice in choices if cannot_end(cuts, choice, nranks)), choices[0] or choices[1])


def cannot_end(cuts: Sequence[Groups], crossing: frozenset[int], nranks: int) -> bool:
    """Whether calls that block leave ranks waiting for ever: each waits until its whole group has called."""
    queues: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for rank in range(nranks):
        own = [(number, ranks) for number, groups in enumerate(cuts) for ranks in groups if rank in ranks]
        queues[rank] = own[::-1] if rank in crossing else own
    moved = True
    while moved:
        ready = {queue[0] for queue in queues.values() if queue}
        ready = {call for call in ready if all(queues[rank][:1] == [call] for rank in call[1])}
        for _, ranks in ready:
            for rank in ranks:
                del queues[rank][0]
        moved = bool(ready)
    return any(queues.values())
