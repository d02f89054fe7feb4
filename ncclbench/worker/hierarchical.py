"""all_reduce in two tiers, as jobs do by hand where hosts are joined by slower links than their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.tables.collectives import Call
from ncclbench.worker.bound import Bound

# Reducing parts first and then the parts' results gives the same with these.
_COMPOSABLE = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT)


@dataclass(slots=True)
class Tiers:
    """The groups of a hierarchical arm on one rank.

    Attributes:
        host: ranks of this host; its first rank is group rank 0.
        leaders: the first ranks of all hosts; None on any other rank.
    """

    host: Any
    leaders: Any | None

    def bind(self, op: str, bound: Bound) -> Call:
        """The call for one slot.

        Raises:
            NotImplementedError: an operation that has no such form.
        """
        if op != "all_reduce":
            raise NotImplementedError(f"hierarchical is a form of all_reduce, {op} has none")
        if bound.async_op:
            raise NotImplementedError("hierarchical has no async form: its steps wait for each other")
        if bound.redop not in _COMPOSABLE:
            raise NotImplementedError("hierarchical takes sum, prod, min and max, which parts make up")
        tensor, redop, host, leaders = bound.send, bound.redop, self.host, self.leaders

        def call() -> None:
            dist.reduce(tensor, op=redop, group=host, group_dst=0)
            if leaders is not None:
                dist.all_reduce(tensor, op=redop, group=leaders)
            dist.broadcast(tensor, group=host, group_src=0)

        return call

    def all_reduce_one(self, device: torch.device) -> None:
        """The first operation, whose cost is told apart."""
        one = torch.ones(1, device=device)
        dist.reduce(one, group=self.host, group_dst=0)
        if self.leaders is not None:
            dist.all_reduce(one, group=self.leaders)
        dist.broadcast(one, group=self.host, group_src=0)

    def close(self) -> None:
        """End both groups."""
        for group in (self.host, self.leaders):
            if group is not None:
                dist.destroy_process_group(group)
