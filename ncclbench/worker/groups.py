"""Arms made real: which process group an arm is, and whether it can be had here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ncclbench.environ import set_defaults
from ncclbench.plan.model import Arm
from ncclbench.tables.backends import Backend, find_backend
from ncclbench.worker.compat import (
    backend_name,
    group_options,
    implementation_of,
    missing_feature,
    new_group_of,
    register_third_party,
    torch_version,
)
from ncclbench.worker.cuts import Part
from ncclbench.worker.device import Device
from ncclbench.worker.hierarchical import Tiers
from ncclbench.worker.symmetric import SymmetricMemory


@dataclass(slots=True)
class ArmGroup:
    """An arm's process group in one epoch.

    Attributes:
        group: made by ``new_group`` for this epoch alone.
        implementation: class and backend name of what it really is.
        init_us: what making it took.
        first_op_us: what its first operation took, a one-element all_reduce; 0 where none was made.
        window: memory that is registered with its communicator, and the communicator's backend.
    """

    group: Any
    implementation: str
    init_us: float
    first_op_us: float
    window: tuple[SymmetricMemory, Any] | None = None


def device_kind(backend: Backend) -> str:
    """Where the backend's tensors live on this machine."""
    if backend.device == "any":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return backend.device


def kind_of(arm: Arm) -> str:
    """Where the arm's tensors live on this machine."""
    return device_kind(find_backend(arm.backend))


def why_unavailable(arm: Arm) -> str | None:
    """Why the arm cannot be had here, known without building it; None where it may be.

    Asked before building, because some process groups abort the process where there is no GPU.
    """
    backend = find_backend(arm.backend)
    missing = missing_feature(backend)
    if missing is not None:
        return missing
    if device_kind(backend) == "cuda" and torch.cuda.device_count() == 0:
        return "needs a CUDA device, none is visible"
    return None


def prepare_environment(one_host: bool, share_gpu: bool, ranks_per_gpu: int) -> None:
    """Settings that libraries read once, before any group exists.

    What the user has set is left alone: sockets stay on the loopback only where nothing else is asked
    for and nobody is elsewhere.
    """
    if one_host:
        set_defaults({"GLOO_SOCKET_IFNAME": "lo"})
    if share_gpu:
        # NCCL 2.30 and later let ranks of one communicator share a GPU; their kernels must fit
        # beside each other, and NVLS does not work then (NVIDIA/nccl#1716).
        set_defaults(
            {
                "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                "NCCL_NVLS_ENABLE": "0",
                "NCCL_MAX_CTAS": str(max(1, 8 // ranks_per_gpu)),
            }
        )


def open_group(
    arm: Arm, device: Device, timeout_s: float, measure_first: bool = True, part: Part | None = None
) -> ArmGroup:
    """Make the arm's group, in the same order on every rank.

    Args:
        part: which ranks are in it; None for all. Every rank of the job makes the group that it is in.

    Raises:
        Exception: whatever the backend raises; which types differs by backend and version.
    """
    backend = find_backend(arm.backend)
    register_third_party(backend)
    options: dict[str, Any] = {
        "backend": backend_name(backend),
        "timeout": timedelta(seconds=timeout_s),
        "device_id": device.torch_device if backend.binds_device and device.kind == "cuda" else None,
        "group_desc": f"ncclbench:{arm.id}",
        "pg_options": group_options(arm.settings, timeout_s),
    }
    before = time.perf_counter_ns()
    if part is None or part.is_world:
        group: Any = dist.new_group(**options)
    else:
        group = new_group_of(part.ranks, part.groups, options)
    init_us = (time.perf_counter_ns() - before) / 1e3
    return _opened(group, init_us, device, measure_first)


def open_topologies(
    arm: Arm, device: Device, timeout_s: float, parts: Mapping[str, Part]
) -> dict[str, ArmGroup]:
    """The arm's groups in every topology, in the same order on every rank; the dimensions of a mesh at once.

    Raises:
        Exception: whatever the backend raises.
    """
    opened: dict[str, ArmGroup] = {}
    for name, part in parts.items():
        if name in opened:
            continue
        if not part.mesh:
            opened[name] = open_group(arm, device, timeout_s, part=part)
            continue
        opened |= _open_mesh(
            arm, device, timeout_s, [each for each in parts.values() if each.mesh == part.mesh]
        )
    return opened


def open_tiers(arm: Arm, device: Device, timeout_s: float, host: Part, leaders: Part) -> ArmGroup:
    """The two groups of a hierarchical arm as one.

    Raises:
        Exception: whatever the backend raises.
    """
    of_host = open_group(arm, device, timeout_s, measure_first=False, part=host)
    of_leaders = open_group(arm, device, timeout_s, measure_first=False, part=leaders)
    if leaders.number is None:
        close_group(of_leaders)
    tiers = Tiers(of_host.group, None if leaders.number is None else of_leaders.group)
    before = time.perf_counter_ns()
    tiers.all_reduce_one(device.torch_device)
    device.synchronize()
    first_op_us = (time.perf_counter_ns() - before) / 1e3
    return ArmGroup(tiers, of_host.implementation, of_host.init_us + of_leaders.init_us, first_op_us)


def _open_mesh(arm: Arm, device: Device, timeout_s: float, parts: Sequence[Part]) -> dict[str, ArmGroup]:
    """Groups of a torch DeviceMesh; left alone its dimensions would follow the default group's backend."""
    backend = find_backend(arm.backend)
    register_third_party(backend)
    names, shape = zip(*parts[0].mesh, strict=True)
    asked: Any = backend_name(backend)
    pg_options = group_options(arm.settings, timeout_s)
    if pg_options is not None:
        asked = (asked, pg_options)
    before = time.perf_counter_ns()
    # Before 2.15 there is no nccl2, and a default group with a device is what others are split from.
    binds = backend.binds_device and device.kind == "cuda" and torch_version() >= (2, 15)
    with _default_device(device.torch_device if binds else None):
        mesh = init_device_mesh(
            device.kind,
            shape,
            mesh_dim_names=names,
            backend_override=dict.fromkeys(names, asked),
        )
    # All dimensions are made in one call, so that each has its share of it.
    init_us = (time.perf_counter_ns() - before) / 1e3 / len(parts)
    opened = {}
    for part in parts:
        group = mesh.get_group(part.dimension)
        if tuple(dist.get_process_group_ranks(group)) != part.ranks:
            raise RuntimeError(
                f"torch's mesh has other ranks along {part.dimension} than the plan: {part.ranks}"
            )
        opened[part.topology] = _opened(group, init_us, device, measure_first=True)
    return opened


@contextlib.contextmanager
def _default_device(device: torch.device | None) -> Iterator[None]:
    """Let groups made without a device_id take this device, as that of the default group.

    A mesh passes none on, and nccl2 would take LOCAL_RANK, which only torchrun sets, or else the global rank
    as the number of its GPU (torch 2.15, _nccl2_device): on hosts after the first another one than ours.
    """
    default: Any = dist.group.WORLD
    bound = default.bound_device_id
    if device is not None:
        default.bound_device_id = device
    try:
        yield
    finally:
        default.bound_device_id = bound


def _opened(group: Any, init_us: float, device: Device, measure_first: bool) -> ArmGroup:
    made = ArmGroup(group, implementation_of(group, device.torch_device), init_us, 0.0)
    if not measure_first:
        return made
    before = time.perf_counter_ns()
    dist.all_reduce(torch.ones(1, device=device.torch_device), group=group)
    device.synchronize()
    return replace(made, first_op_us=(time.perf_counter_ns() - before) / 1e3)


def register_window(group: ArmGroup, memory: SymmetricMemory, device: Device) -> None:
    """Register memory with the group's communicator, until the group is closed. Collective.

    Raises:
        Exception: what the backend raises where it cannot.
    """
    backend = group.group._get_backend(device.torch_device)
    memory.register(backend)
    group.window = (memory, backend)


def close_group(group: ArmGroup) -> None:
    """End the arm's group."""
    if group.window is not None:
        memory, backend = group.window
        memory.deregister(backend)
    if isinstance(group.group, Tiers):
        group.group.close()
        return
    dist.destroy_process_group(group.group)
