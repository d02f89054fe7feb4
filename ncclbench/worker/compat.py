"""What differs between torch 2.11 and 2.15, resolved by feature, in this one file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.tables.backends import BACKENDS, TORCH_ENTRY_POINTS, Backend
from ncclbench.tables.settings import HIGH_PRIORITY, SETTINGS

# New name: the older one, used where the new one is missing.
_RENAMED = {
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
}


class CollectiveApi:
    """``torch.distributed`` under its newest names, whatever this torch calls them."""

    def __getattr__(self, name: str) -> Any:
        older = _RENAMED.get(name)
        if older is not None and not hasattr(dist, name):
            return getattr(dist, older)
        return getattr(dist, name)


def torch_version() -> tuple[int, int]:
    """(major, minor) of this torch."""
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if match is None:
        raise RuntimeError(f"torch has an unreadable version {torch.__version__!r}")
    return int(match[1]), int(match[2])


def backend_name(backend: Backend) -> str:
    """The string that ``new_group`` takes for this backend.

    Before 2.15 there was one NCCL process group, called "nccl": the one now called legacy.
    """
    if backend.torch_name == "nccl-legacy" and torch_version() < (2, 15):
        return "nccl"
    return backend.torch_name


def new_group_of(ranks: Sequence[int], groups: Sequence[Sequence[int]], options: Mapping[str, Any]) -> Any:
    """The process group of ``ranks``, to which the caller belongs, made as cheaply as this torch allows.

    Since 2.15 only its members take part, and each rank of the job must make one group at this point: a count
    of groups made is part of the name, by which members find each other. Before, the name came back when a
    group had ended, and with it what the store still held of it; there all ranks make all groups.

    Args:
        groups: all that are made at this point.
        options: for ``new_group``.
    """
    if torch_version() >= (2, 15):
        return dist.new_group(list(ranks), use_local_synchronization=True, **options)
    made = [dist.new_group(list(group), **options) for group in groups]
    mine = [group for group in made if group is not dist.GroupMember.NON_GROUP_MEMBER]
    # A rank in none of them: alone.
    rest = [rank for rank in range(dist.get_world_size()) if not any(rank in group for group in groups)]
    alone = [dist.new_group([rank], **options) for rank in rest]
    return mine[0] if mine else alone[rest.index(dist.get_rank())]


def group_options(settings: Mapping[str, str], timeout_s: float) -> Any:
    """What ``new_group`` takes as ``pg_options`` for an arm's settings; None where none is of the group.

    All NCCL process groups take the same class (torch 2.15, distributed_c10d.py, _nccl2_options).
    """
    named = [name for name in settings if name in SETTINGS and SETTINGS[name].scope == "group"]
    if not named:
        return None
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=HIGH_PRIORITY in named)
    # As the argument beside it, or torch warns of two.
    options._timeout = timedelta(seconds=timeout_s)
    for name in named:
        if SETTINGS[name].takes_number:
            setattr(options.config, name, int(settings[name]))
    return options


def check_splits(parent: Any, device: torch.device) -> None:
    """Whether groups can be split from one.

    Raises:
        RuntimeError: this torch or the parent's backend cannot.
    """
    backend = parent._get_backend(device)
    if not hasattr(dist, "split_group") or not getattr(backend, "supports_splitting", False):
        raise RuntimeError(f"{type(backend).__name__} of torch {torch.__version__} cannot split this group")


def split_group_of(parent: Any, groups: Sequence[Sequence[int]], timeout_s: float) -> Any:
    """The caller's group of ``groups``, split from a group of all ranks, in which all of them call this.

    Raises:
        Exception: whatever the backend raises.
    """
    # The ranks are those in the parent, which for a group of all are the global ones.
    ranks = [list(group) for group in groups]
    return dist.split_group(parent, ranks, timeout=timedelta(seconds=timeout_s))


def register_third_party(backend: Backend) -> None:
    """Let a process group of another package register itself, where this torch does not see to it.

    Raises:
        Exception: what the package raises when it cannot.
    """
    if backend.name in BACKENDS or hasattr(dist.Backend, "_ensure_backend_registered"):
        return
    for point in entry_points(group=TORCH_ENTRY_POINTS, name=backend.name):
        if not hasattr(dist.Backend, backend.name.upper()):
            point.load()()


def missing_feature(backend: Backend) -> str | None:
    """Why this torch does not have the backend; None where it has."""
    oldest = backend.oldest_torch
    if oldest is not None and torch_version() < oldest:
        return f"needs torch >= {oldest[0]}.{oldest[1]}, this is {torch.__version__}"
    return None


def implementation_of(group: Any, device: torch.device) -> str:
    """Class and backend name of what really runs: the string asked for may resolve to either NCCL group."""
    backend = group._get_backend(device)
    kind = type(backend)
    try:
        name = backend.name()
    except (AttributeError, RuntimeError):
        name = dist.get_backend(group)
    module = "" if kind.__module__.startswith("torch.") else f"{kind.__module__}."
    return f"{module}{kind.__name__} ({name})"
