"""How a rank comes to be in a group, and into the next one: the strategies as torch calls.

One class per way; its entry in STRATEGIES says which one a strategy takes.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from ncclbench.faults.talk import Form, RankTask
from ncclbench.tables.backends import find_backend
from ncclbench.tables.strategies import Strategy
from ncclbench.worker.compat import backend_name
from ncclbench.worker.device import Device

# Ending a group may wait for operations that will never end; after so long it is left where it is.
_CLOSE_S = 1.0


class Membership(Protocol):
    """One rank's way from group to group. The group is always the default one."""

    def begin(self) -> str:
        """Get ready; the handle to be taken into a group by, empty where the strategy has none."""

    def handle(self) -> str:
        """The handle now: it changes with every group."""

    def form(self, order: Form) -> None:
        """Be in the group of the order's members; collective.

        Raises:
            RuntimeError: whatever torch raises where it cannot be made.
        """


class _Common:
    def __init__(self, task: RankTask, store: Any, device: Device) -> None:
        self._task = task
        self._store = store
        self._device = device
        self._timeout = timedelta(seconds=task.timeout_s)
        self._backend = find_backend(task.backend)

    def _initialise(self, rank: int, size: int, prefix: str, **options: Any) -> None:
        if self._backend.binds_device and self._device.kind == "cuda" and not options:
            options["device_id"] = self._device.torch_device
        dist.init_process_group(
            backend_name(self._backend),
            rank=rank,
            world_size=size,
            store=dist.PrefixStore(prefix, self._store),  # type: ignore[attr-defined]
            timeout=self._timeout,
            **options,
        )


class Reconfigured(_Common):
    """torch's reconfigure: the group stays, its communicator is made anew of the handles of its members.

    The list's order is the order of ranks; a set would be sorted by text.
    """

    def begin(self) -> str:
        # Without enable_reconfigure's binding nccl2 takes the current device, which the Device has set.
        self._initialise(self._task.rank, self._task.nranks, "group", enable_reconfigure=True)
        if not dist._supports_reconfigure():  # type: ignore[attr-defined]
            raise RuntimeError(f"this {self._task.backend} group does not support reconfigure")
        return self.handle()

    def handle(self) -> str:
        handle: str = dist._get_reconfigure_handle()  # type: ignore[attr-defined]
        return handle

    def form(self, order: Form) -> None:
        work = dist._reconfigure(order.uuid, list(order.handles), timeout=self._timeout)  # type: ignore[attr-defined]
        work.wait()


class Rebuilt(_Common):
    """The group is ended and another one initialised on a prefix of the store that nobody has used."""

    def begin(self) -> str:
        return ""

    def handle(self) -> str:
        return ""

    def form(self, order: Form) -> None:
        if dist.is_initialized():
            self._drop()
        self._initialise(order.members.index(self._task.rank), len(order.members), f"group{order.uuid}")

    def _drop(self) -> None:
        """Abort and destroy the group; gloo's abort does nothing, so its end may wait for what is pending."""
        dropped = threading.Thread(target=_destroy, args=(self._device,), daemon=True)
        dropped.start()
        dropped.join(_CLOSE_S)
        if dropped.is_alive() or dist.is_initialized():
            raise RuntimeError(f"destroy_process_group did not return within {_CLOSE_S:.0f} s")


def _destroy(device: Device) -> None:
    # A thread begins on GPU 0, whatever the rank's is, and torch asks for the current one.
    device.enter_thread()
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is not None:
        abort()
    if dist.is_initialized():
        dist.destroy_process_group()


class Shrunk(Rebuilt):
    """torch's shrink_group leaves the victim out; the group at the start is a plain one."""

    def form(self, order: Form) -> None:
        if order.stage == "start":
            super().form(order)
            return
        dist.shrink_group([self._task.victim], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)


def membership_of(strategy: Strategy) -> Callable[[RankTask, Any, Device], Membership]:
    """The class that a strategy's entry names."""
    module, _, name = strategy.membership.partition(":")
    made: Callable[[RankTask, Any, Device], Membership] = getattr(importlib.import_module(module), name)
    return made
