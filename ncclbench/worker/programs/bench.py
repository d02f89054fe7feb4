"""What a program has at hand on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.model import Arm
from ncclbench.worker import protocol
from ncclbench.worker.board import Gate, Place
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.device import Device
from ncclbench.worker.devices import Devices
from ncclbench.worker.fence import Fence, make_fence
from ncclbench.worker.groups import ArmGroup, kind_of, open_group, why_unavailable
from ncclbench.worker.link import Link
from ncclbench.worker.probe import first_line
from ncclbench.worker.protocol import WorkerTask


@dataclass(frozen=True, slots=True)
class Bench:
    """One rank's place, its devices, and its lines to the others and to its supervisor.

    Attributes:
        timeout_s: for process groups; longer than the supervisor's own deadline.
        gate: where one supervisor has forked all ranks.
        hosts: per rank, a number that is equal for ranks of one host.
    """

    task: WorkerTask
    control: ControlPlane
    devices: Devices
    link: Link
    place: Place
    timeout_s: float
    gate: Gate | None
    hosts: list[int]

    @property
    def rank(self) -> int:
        """This worker's rank."""
        return self.control.rank

    @property
    def nranks(self) -> int:
        """World size."""
        return self.control.nranks

    def fence(self) -> Fence:
        """The fence of a program that has one; collective."""
        self.control.synchronise_clocks(self.hosts)
        return make_fence(self.gate, self.control)

    def device(self, arm: Arm) -> Device:
        """Where the arm's tensors live."""
        return self.devices.get(kind_of(arm))

    def open(self, arm: Arm) -> ArmGroup | None:
        """The arm's group over all ranks; None on every rank where one cannot have it, which is told."""
        group: ArmGroup | None = None
        reason = why_unavailable(arm)
        if reason is None:
            try:
                group = open_group(arm, self.device(arm), self.timeout_s)
            except Exception as error:  # which types a missing backend raises differs by version
                reason = first_line(error)
            self.place.step()
        reason = self.control.first_reason(reason)
        if reason is not None or group is None:
            self.link.tell(protocol.ArmReady(arm.id, None, None, reason))
            return None
        self.link.tell(protocol.ArmReady(arm.id, kind_of(arm), group.implementation, None))
        return group

    def gather(self, values: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Shape (nranks, ...): every rank's values of one shape, on rank 0; None elsewhere."""
        parts = self.control.gather_array(values.view(np.int64))
        return None if parts is None else np.stack([part.view(np.float64) for part in parts])

    def tell(self, what: str, data: Any) -> None:
        """Rank 0: what has been found, to the supervisor."""
        self.link.tell(protocol.Found(what, data))
