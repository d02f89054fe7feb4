"""One side of a transfer that is to break: it moves weights again and again, and says what comes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ncclbench.plan.model import Arm
from ncclbench.plan.model import Device as DeviceName
from ncclbench.plan.weights import split_weights
from ncclbench.tables.transfers import TRANSFERS
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.devices import Devices
from ncclbench.worker.groups import open_group, prepare_environment
from ncclbench.worker.one_sided import OneSided
from ncclbench.worker.probe import first_line
from ncclbench.worker.transfer_ways import ONE_SIDED_WAYS, Shared, Way
from ncclbench.worker.two_sided import TRAINER
from ncclbench.worker.weights import Weights

NRANKS = 2
# Of the control plane while both come up, whatever the transfers' own timeout is.
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class CellTask:
    """What both sides do.

    Attributes:
        way: name in TRANSFERS; ``arm``: id and backend of what carries it, None of a one-sided one.
        device: kind of memory that the weights are in.
        nbytes: of the weights.
        timeout_s: of the group or the transfers.
    """

    way: str
    arm: tuple[str, str] | None
    device: DeviceName
    nbytes: int
    timeout_s: float
    seed: int
    share_gpu: bool

    @property
    def acting(self) -> int:
        """Who calls: the trainer, or of a read the generator. The other one is the victim."""
        return 1 - TRAINER if TRANSFERS[self.way].verb == "read" else TRAINER


@dataclass(frozen=True, slots=True)
class Opened:
    """Both sides are up; or why they are not."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Moved:
    """A transfer is over, which began at ``began_s`` of time.monotonic()."""

    began_s: float


@dataclass(frozen=True, slots=True)
class Broke:
    """A transfer raised, at ``at_s``."""

    text: str
    at_s: float


def run_side(task: CellTask, rank: int, store: Any, pipe: Connection) -> None:
    """Open the way, then transfer after transfer; ends with what a transfer raises.

    The process ends by os._exit right behind it, with its endpoints still up: what there is to say was said.
    """
    prepare_environment(one_host=True, share_gpu=task.share_gpu, ranks_per_gpu=NRANKS)
    torch.set_num_threads(1)
    control = ControlPlane(store, rank, NRANKS, _START_S)
    way, reason = None, None
    try:
        way = _open(task, rank, control)
    except Exception as error:  # whatever a library raises
        reason = f"{type(error).__name__}: {first_line(error)}"
    reason = control.first_reason(reason)
    pipe.send(Opened(reason))
    if way is None or reason is not None:
        return
    act = _acts(task, rank, way)
    number = 0
    while True:
        number += 1
        began_s = time.monotonic()
        try:
            act(number)
        except Exception as error:
            pipe.send(Broke(f"{type(error).__name__}: {first_line(error)}", time.monotonic()))
            return
        pipe.send(Moved(began_s))


def _open(task: CellTask, rank: int, control: ControlPlane) -> Way:
    transfer = TRANSFERS[task.way]
    device = Devices(rank).get(task.device)
    weights = Weights(split_weights(task.nbytes), task.seed, device, lambda: None)
    if transfer.transport is None:
        assert task.arm is not None
        group = open_group(Arm(*task.arm), device, task.timeout_s)
        return Shared(transfer.verb, group.group, weights, device, rank, NRANKS)
    side = OneSided(transfer.transport, rank, NRANKS, weights.tensors, task.timeout_s)
    side.meet(control.share(control.gather(side.descriptors)))
    return ONE_SIDED_WAYS[transfer.verb](side, device.now_ns, task.timeout_s)


def _acts(task: CellTask, rank: int, way: Way) -> Callable[[int], Any]:
    """What this side does in each transfer; the other side of a one-sided way does nothing at all."""
    if isinstance(way, Shared):
        return way.give if rank == TRAINER else way.take
    if rank != task.acting:
        return _do_nothing
    # The trainer's stamp stands still: a generator that reads needs no new version.
    return way.give if rank == TRAINER else lambda number: way.look(0)


def _do_nothing(number: int) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
