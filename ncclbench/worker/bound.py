"""What a call is bound to: one slot of buffers and the group to run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ncclbench.tables.collectives import Layout


@dataclass(slots=True)
class Bound:
    """What an entry of COLLECTIVES binds its call to (``tables.collectives.spec.Binding``)."""

    send: torch.Tensor
    recv: torch.Tensor
    layout: Layout
    group: Any
    rank: int
    nranks: int
    root: int
    redop: Any
    async_op: bool
    in_place: bool
    dist: Any
