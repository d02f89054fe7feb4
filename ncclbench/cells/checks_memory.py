"""Checks of memory: what scatter, gather and all_to_all hold of it while their Work lives, and afterwards."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.cells.cell import CellResult
from ncclbench.cells.question import Answer, Check, Values, answer
from ncclbench.cells.rank import CellRank
from ncclbench.units import format_memory

# Of one tensor. On the CPU above the largest size that glibc keeps for later in place of giving it back
# (M_MMAP_THRESHOLD adapts up to 32 MiB, mallopt(3)): so what is resident is what is held.
_NBYTES = 48 << 20
_SOURCE = 0

# Memory of threads and pages besides: this share of one tensor is nothing.
_NOTHING = 0.1
_SETTLE_S = 1.0

_STATM = Path("/proc/self/statm")


def _allocated(rank: CellRank) -> int:
    """Bytes that this process holds: allocated on its GPU, or resident on the host."""
    if rank.device.kind == "cuda":
        return int(torch.cuda.memory_allocated(rank.device.torch_device))
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _settled(rank: CellRank) -> int:
    """The same once it has stopped falling: threads let go of the last operation a little later."""
    gc.collect()
    rank.device.synchronize()
    lowest = _allocated(rank)
    still_since = time.monotonic()
    while time.monotonic() < still_since + _SETTLE_S / 5:
        time.sleep(0.02)
        now = _allocated(rank)
        if now < lowest - _NOTHING * _NBYTES:
            still_since = time.monotonic()
        lowest = min(lowest, now)
    return lowest


def _tensors(rank: CellRank, count: int) -> list[torch.Tensor]:
    where = rank.device.torch_device
    return [torch.ones(_NBYTES, dtype=torch.uint8, device=where) for _ in range(count)]


def _scatter(rank: CellRank, async_op: bool) -> tuple[Any, list[torch.Tensor]]:
    sources = _tensors(rank, rank.nranks) if rank.rank == _SOURCE else None
    (into,) = _tensors(rank, 1)
    work = dist.scatter(into, sources, group=rank.group, group_src=_SOURCE, async_op=async_op)
    return work, [*(sources or ()), into]


def _gather(rank: CellRank, async_op: bool) -> tuple[Any, list[torch.Tensor]]:
    (source,) = _tensors(rank, 1)
    into = _tensors(rank, rank.nranks) if rank.rank == _SOURCE else None
    work = dist.gather(source, into, group=rank.group, group_dst=_SOURCE, async_op=async_op)
    return work, [source, *(into or ())]


def _all_to_all(rank: CellRank, async_op: bool) -> tuple[Any, list[torch.Tensor]]:
    sources, into = _tensors(rank, rank.nranks), _tensors(rank, rank.nranks)
    work = dist.all_to_all(into, sources, group=rank.group, async_op=async_op)
    return work, [*sources, *into]


Issue = Callable[[CellRank, bool], tuple[Any, list[torch.Tensor]]]


def _held(issue: Issue, rank: CellRank) -> dict[str, int]:
    """Bytes above what there was before, at each moment of the operation's life."""
    work, tensors = issue(rank, True)
    work.wait()
    del work, tensors
    rank.meet()
    before = _settled(rank)

    def held() -> int:
        return _settled(rank) - before

    work, tensors = issue(rank, True)
    made = sum(tensor.numel() for tensor in tensors)
    work.wait()
    found = {"made": made, "waited": held()}
    del tensors
    found["deleted"] = held()
    del work
    found["released"] = held()
    _, tensors = issue(rank, False)
    found["blocking"] = held()
    del tensors, _
    found["blocking, deleted"] = held()
    rank.meet()
    return found


def _judge(values: Values, result: CellResult) -> Answer:
    source = values[_SOURCE]
    rest = max(0, source["released"], source["blocking, deleted"])
    return answer(
        rest < _NOTHING * _NBYTES,
        f"on the source, {_mib(source['made'])} of tensors: {_mib(source['waited'])} held after wait(), "
        f"{_mib(source['deleted'])} once they are deleted and the Work is kept, {_mib(source['released'])} "
        f"once it is gone too; {_mib(source['blocking'])} after the blocking call, "
        f"{_mib(source['blocking, deleted'])} with the tensors deleted",
        float(rest),
    )


def _mib(nbytes: int) -> str:
    return format_memory(max(0, round(nbytes / (1 << 20))) << 20)


CHECKS = {
    f"memory-{name}": Check(partial(_held, issue), _judge, deadline_s=40.0)
    for name, issue in (("scatter", _scatter), ("gather", _gather), ("all_to_all", _all_to_all))
}
