"""The two-sided ways: weights over a process group, in which every generator takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

TRAINER = 0

# Issues everything; what is to be waited for.
Issue = Callable[[Sequence[torch.Tensor], Any, int, int], list[Any]]


def broadcast(tensors: Sequence[torch.Tensor], group: Any, rank: int, nranks: int) -> list[Any]:
    """A broadcast of each tensor."""
    return [dist.broadcast(tensor, TRAINER, group=group, async_op=True) for tensor in tensors]


def send(tensors: Sequence[torch.Tensor], group: Any, rank: int, nranks: int) -> list[Any]:
    """isend of each tensor to each generator; irecv on the other side."""
    if rank == TRAINER:
        peers = range(1, nranks)
        return [dist.isend(tensor, peer, group=group) for tensor in tensors for peer in peers]
    return [dist.irecv(tensor, TRAINER, group=group) for tensor in tensors]


# By verb in TRANSFERS; those that name "flat" get one tensor.
ISSUES: dict[str, Issue] = {"broadcast": broadcast, "broadcast-flat": broadcast, "send": send}
