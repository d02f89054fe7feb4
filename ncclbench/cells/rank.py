"""A rank of a cell: it opens its group, waits for the word to go, does its work, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ncclbench.plan.model import Arm
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.device import Device
from ncclbench.worker.devices import Devices
from ncclbench.worker.groups import ArmGroup, kind_of, open_group, prepare_environment, why_unavailable
from ncclbench.worker.probe import first_line


@dataclass(frozen=True, slots=True)
class Opened:
    """The group is there, or why not.

    Attributes:
        implementation, device: what it is, and where its tensors live; None where there is none.
        reason: why there is none.
    """

    implementation: str | None
    device: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Calling:
    """What the rank is about to call, in words."""

    step: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The work is done: with a value, plain data, or with an exception in one line."""

    value: Any
    error: str | None


class CellRank:
    """What the work of a cell has at hand on one rank.

    Attributes:
        rank, nranks: its place; ``group``: of all ranks of the cell, on the arm.
        control: a gloo group beside it, for agreeing and waiting.
    """

    def __init__(
        self, rank: int, control: ControlPlane, device: Device, group: Any, pipe: Connection
    ) -> None:
        self.rank = rank
        self.nranks = control.nranks
        self.control = control
        self.device = device
        self.group = group
        self._pipe = pipe

    @property
    def peer(self) -> int:
        """The other of two ranks."""
        return 1 - self.rank

    def says(self, step: str) -> None:
        """Tell what is called next, so that whoever waits for it knows where it stands."""
        self._pipe.send(Calling(step))

    def meet(self) -> None:
        """Wait for the other ranks."""
        self.control.maximum(0)


Work = Callable[[CellRank], Any]


@dataclass(frozen=True, slots=True)
class CellTask:
    """What a rank of a cell is forked to do.

    Attributes:
        arm: whose group it opens.
        nranks: of the cell.
        timeout_s: that torch is given for operations of the group; the control plane waits longer.
        share_gpu: ranks may share a GPU.
    """

    arm: Arm
    nranks: int
    timeout_s: float
    share_gpu: bool


# Beyond torch's own timeout: of the control plane, which waits for ranks that run into that.
_CONTROL_EXTRA_S = 60.0


def serve(task: CellTask, rank: int, store: Any, pipe: Connection, work: Work) -> None:
    """Run one rank to its end; then wait until the cell is ended, so that no peer sees it go."""
    prepare_environment(one_host=True, share_gpu=task.share_gpu, ranks_per_gpu=task.nranks)
    torch.set_num_threads(1)
    control = ControlPlane(store, rank, task.nranks, task.timeout_s + _CONTROL_EXTRA_S)
    device, group = _open(task, rank, control, pipe)
    if group is None:
        return
    pipe.recv()
    try:
        pipe.send(Ended(work(CellRank(rank, control, device, group.group, pipe)), None))
    except Exception as error:  # whatever torch raises is what the cell is about
        pipe.send(Ended(None, f"{type(error).__name__}: {first_line(error)}"))
    try:
        pipe.recv()
    except (EOFError, OSError):
        return


def _open(
    task: CellTask, rank: int, control: ControlPlane, pipe: Connection
) -> tuple[Device, ArmGroup | None]:
    group, devices, kind = None, Devices(rank), kind_of(task.arm)
    reason = why_unavailable(task.arm)
    if reason is None:
        try:
            group = open_group(task.arm, devices.get(kind), task.timeout_s)
        except Exception as error:  # which types a missing backend raises differs by version
            reason = first_line(error)
    reason = control.first_reason(reason)
    if reason is not None or group is None:
        pipe.send(Opened(None, None, reason))
        return devices.get("cpu"), None
    pipe.send(Opened(group.implementation, kind, None))
    return devices.get(kind), group
