"""BACKENDS: the process groups an arm can be, and what each needs before it can be built.

What a name really resolved to is read from the group itself (class and backend name) and stands on
every row: ``nccl`` is nccl2 since torch 2.15 unless TORCH_DIST_USE_NCCL2=0 was set in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Literal

from ncclbench.names import unknown

# Packages with process groups of their own register them under this entry-point group; torch 2.15 looks
# there itself (distributed_c10d.py, Backend._ensure_backend_registered).
TORCH_ENTRY_POINTS = "torch.distributed.backends"


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to build a process group.

    Attributes:
        name: the arm's name on the command line.
        torch_name: the string given to ``new_group(backend=...)``.
        device: where its tensors live; "any" is the GPU where there is one, else the CPU.
        description: what it is, for ``ncclbench list``.
        binds_device: whether ``device_id`` is given, so that the communicator is made eagerly.
        oldest_torch: first (major, minor) that has it, or None.
        copies: by operation, how many copies of the larger buffer it holds at most while that runs, as seen
            in the most memory that a process had (tests/test_operating_memory.py).
    """

    name: str
    torch_name: str
    device: Literal["cpu", "cuda", "any"]
    description: str
    binds_device: bool = False
    oldest_torch: tuple[int, int] | None = None
    copies: Mapping[str, int] = field(default_factory=dict, hash=False)


_ENTRIES = (
    Backend(
        "gloo",
        "gloo",
        "cpu",
        "gloo over TCP, on the CPU: what runs anywhere",
        copies={
            "all_gather": 1,
            "all_gather_list": 1,
            "gather": 1,
            "reduce_scatter": 1,
            "reduce_scatter_list": 1,
            "all_to_all_list": 2,
        },
    ),
    Backend(
        "nccl2", "nccl2", "cuda", "the rewritten NCCL process group", binds_device=True, oldest_torch=(2, 15)
    ),
    Backend(
        "nccl-legacy",
        "nccl-legacy",
        "cuda",
        "the old NCCL process group as people have it: lazy, a communicator per pair for point-to-point",
    ),
    Backend(
        "nccl-legacy-eager",
        "nccl-legacy",
        "cuda",
        "the old NCCL process group bound to its device: one communicator, made at once",
        binds_device=True,
    ),
    Backend(
        "nccl-lazy",
        "nccl-lazy",
        "cuda",
        "nccl2 with a communicator per pair for unbatched point-to-point",
        binds_device=True,
        oldest_torch=(2, 15),
    ),
    Backend("nccl", "nccl", "cuda", "whatever this torch means by nccl", binds_device=True),
    Backend("ucc", "ucc", "any", "UCC, where torch was built with it"),
)

BACKENDS: dict[str, Backend] = {entry.name: entry for entry in _ENTRIES}


def third_party_backends() -> dict[str, Backend]:
    """Process groups that other installed packages register with torch, by name."""
    found = {}
    for point in entry_points(group=TORCH_ENTRY_POINTS):
        name = point.name.lower()
        package = point.dist.name if point.dist is not None else point.value
        if name not in BACKENDS and package != "torch":
            found[name] = Backend(name, name, "any", f"third-party process group from {package}")
    return found


def find_backend(name: str) -> Backend:
    """The entry of that name, ours or a third party's.

    Raises:
        RequestError: neither ncclbench nor an installed package has it.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    others = third_party_backends()
    if name in others:
        return others[name]
    raise unknown("backend", name, [*BACKENDS, *others])
