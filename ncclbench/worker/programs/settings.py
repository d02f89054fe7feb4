"""Settings of arms, read back: each arm's group is made and used once, and nothing is timed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ncclbench.environ import unset
from ncclbench.plan.model import Arm
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.communicators import NcclLog
from ncclbench.worker.device import Device
from ncclbench.worker.groups import (
    ArmGroup,
    close_group,
    open_group,
    register_window,
    why_unavailable,
)
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.readback import algorithms, local_addresses, read_back
from ncclbench.worker.symmetric import SymmetricMemory

# Large enough for what a library does with large ones.
_NBYTES = 4 << 20


def run(bench: Bench, request: dict[str, Any]) -> None:
    """Read back the settings of every arm.

    Args:
        request: ``arms``: id, backend and settings of each.
    """
    unset("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
    log = NcclLog("INIT,ENV,TUNING")
    arms = {arm.id: arm for arm in (Arm(*each) for each in request["arms"])}
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(0, 0, NOWHERE)
        bench.tell(order["arm"], bench.control.gather(_one(bench, arms[order["arm"]], log)))


def _one(bench: Bench, arm: Arm, log: NcclLog) -> dict[str, Any]:
    """``reason`` why the arm is not here, or ``settings`` and ``algorithms``; of this rank. Collective."""
    before, began = local_addresses(), len(log.text())
    group, storage, reason = None, None, why_unavailable(arm)
    if reason is None:
        try:
            device = bench.device(arm)
            group = open_group(arm, device, bench.timeout_s)
            backend = group.group._get_backend(device.torch_device)
            if arm.is_symmetric:
                memory = SymmetricMemory(backend, _NBYTES, device.torch_device)
                register_window(group, memory, device)
                storage = memory.storage
        except Exception as error:  # which types a missing backend raises differs by version
            reason = first_line(error)
    reason = bench.control.first_reason(reason)
    if reason is None and group is not None:
        bench.place.step()
        # A value that the library takes for none is refused by the first operation at the latest.
        reason = bench.control.first_reason(_use(group, device, storage))
    if reason is not None or group is None:
        return {"reason": reason, "settings": [], "algorithms": None}
    settings = read_back(arm.settings, backend, log.text(), before, began)
    chosen = algorithms(log.text()[began:])
    close_group(group)
    return {"reason": None, "settings": settings, "algorithms": chosen}


def _use(group: ArmGroup, device: Device, storage: torch.Tensor | None) -> str | None:
    """Use the group once, in ``storage`` if there is one; why it cannot be."""
    try:
        if storage is None:
            storage = torch.empty(_NBYTES, dtype=torch.uint8, device=device.torch_device)
        dist.all_reduce(storage.view(torch.float32).fill_(1.0), group=group.group)
        device.synchronize()
    except (RuntimeError, ValueError) as error:
        return first_line(error)
    return None
