"""A rank that does what its orchestrator tells it, one order at a time, and answers what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import DebugLevel, set_debug_level  # type: ignore[attr-defined]

from ncclbench.worker.board import Place
from ncclbench.worker.groups import prepare_environment
from ncclbench.worker.probe import first_line

_ELEMENTS = 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What a rank is to do.

    Attributes:
        number: counts the orders of one rank, so that an answer that comes late is told from the next.
        action: name of a method of ``ContractRank``.
        given: its arguments.
    """

    number: int
    action: str
    given: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an order.

    Attributes:
        number: of the order.
        value: what the action returned; None where it raised.
        error: class and first line of what it raised; None where it returned.
        seconds: from the order's arrival to the answer.
        at_s: when that was, of the monotonic clock that all processes of a host share.
    """

    number: int
    value: Any
    error: str | None
    seconds: float
    at_s: float


class ContractRank:
    """One rank of a group on gloo whose membership changes."""

    def __init__(
        self, rank: int, nranks: int, connect: Callable[[], Any], place: Place, timeout_s: float
    ) -> None:
        """Get ready.

        Args:
            connect: gives a client of the store that the orchestrator holds.
            timeout_s: of operations and reconfigures, as torch is given it.
        """
        self._rank = rank
        self._nranks = nranks
        self._connect = connect
        self._place = place
        self._timeout = timedelta(seconds=timeout_s)

    def serve(self, pipe: Connection) -> None:
        """Do orders until the orchestrator closes the pipe."""
        prepare_environment(one_host=True, share_gpu=False, ranks_per_gpu=1)
        torch.set_num_threads(1)
        # A group that checks itself (TORCH_DISTRIBUTED_DEBUG=DETAIL) cannot reconfigure.
        set_debug_level(DebugLevel.OFF)
        while True:
            try:
                order: Order = pipe.recv()
            except (EOFError, OSError):
                return
            self._place.step()
            pipe.send(self._obey(order))

    def _obey(self, order: Order) -> Answer:
        began = time.monotonic()
        value, error = None, None
        try:
            value = getattr(self, order.action)(**order.given)
        except Exception as raised:  # whatever torch raises is what the case is about
            error = f"{type(raised).__name__}: {first_line(raised)}"
        ended = time.monotonic()
        return Answer(order.number, value, error, ended - began, ended)

    def join(self) -> str:
        """Make the default group, which has no communicator until it is reconfigured; returns its handle."""
        dist.init_process_group(
            "gloo",
            rank=self._rank,
            world_size=self._nranks,
            store=self._connect(),
            timeout=self._timeout,
            enable_reconfigure=True,
        )
        return self.handle()

    def handle(self) -> str:
        """The handle as it is now."""
        return str(dist._get_reconfigure_handle())  # type: ignore[attr-defined]

    def reconfigure(self, uuid: int, handles: Sequence[str] | set[str]) -> int:
        """Change the membership; returns the rank that this process has in the new group."""
        dist._reconfigure(uuid, handles, timeout=self._timeout).wait()  # type: ignore[attr-defined,arg-type]
        return int(dist.distributed_c10d._get_default_group().rank())

    def reduce(self, number: int) -> float:
        """One blocking all_reduce of ``number``; returns the sum, the same in every element.

        Raises:
            ValueError: elements differ, so the data is wrong.
        """
        data = torch.full((_ELEMENTS,), float(number))
        dist.all_reduce(data)
        if not bool((data == data[0]).all()):
            raise ValueError("elements of one sum differ")
        return float(data[0])

    def run(self) -> None:
        """Operation after operation until something ends this process or the operation."""
        while True:
            self.reduce(1)
            self._place.step()

    def pid(self) -> int:
        """Of this process."""
        return os.getpid()
