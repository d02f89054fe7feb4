"""SETTINGS: what may stand behind an arm's backend, so that it is another arm.

Beside the names in this table that is a variable of a library, ``NCCL_ALGO=Ring``, and ``@NAME``, an
environment that ``--arm-env`` has named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ncclbench.errors import RequestError
from ncclbench.names import unknown
from ncclbench.tables.topologies import Groups, Placement

HIERARCHICAL = "hierarchical"
SYMM = "symm"
HIGH_PRIORITY = "high_priority"
# Names in a plan's ``groups`` of the two tiers; no topology is called so.
TIER_OF_HOST, TIER_OF_LEADERS = "hierarchical@host", "hierarchical@leaders"

# Which interface gloo takes; it reads this anew for each group.
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"

# What stands before the name of an environment.
ENVIRONMENT_MARK = "@"

# Variables that a library reads when its first group is made, in a process that has made none yet, and which
# backends they are for. Others are read as a process starts, or by nobody that is known.
VARIABLES: dict[str, tuple[str, ...]] = {
    "NCCL_": ("nccl",),
    "TORCH_NCCL_": ("nccl",),
    "TORCH_SYMM_": ("nccl",),
    "NVSHMEM_": ("nccl",),
    "FI_": ("nccl",),
    "TORCH_GLOO_": ("gloo",),
    "GLOO_": ("gloo",),
    "UCC_": ("ucc",),
    "UCX_": ("ucc", "nccl"),
}
# Kept for telling what the others have done, on all arms alike.
_OURS = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
# Those that name code to load: plans and runs are files, and no file says which code is run.
_LOADS_CODE = re.compile(r"PLUGIN|_PATH|_LIB|_FILE|_DIR|_MODULE")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_LONGEST_VALUE = 200
_LARGEST_NUMBER = 1024
_LONGEST_SHORT = 32

Scope = Literal["form", "group"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of an arm.

    Attributes:
        name: as typed behind the backend.
        description: what it changes, for ``ncclbench list``.
        scope: "form" where operations or their buffers are others; "group" where the process group is made
            with it. Both can stand beside other arms in one process.
        takes_number: typed as ``name=N``.
        nccl_only: no other backend has it.
        config_field: of ncclConfig_t, as NCCL's log names it where a variable overrides it; "" for none.
        config_words: as NCCL's log names it where it is given.
    """

    name: str
    description: str
    scope: Scope
    takes_number: bool = False
    nccl_only: bool = False
    config_field: str = ""
    config_words: str = ""


_ENTRIES = (
    Setting(
        HIERARCHICAL,
        "all_reduce in two tiers: reduce in each host, all_reduce over their first ranks, broadcast in each",
        "form",
    ),
    Setting(
        SYMM,
        "buffers from NCCL's own allocator, registered as symmetric windows of the communicator",
        "form",
        nccl_only=True,
    ),
    Setting(
        "min_ctas",
        "least thread blocks that NCCL takes for an operation (ncclConfig_t.minCTAs)",
        "group",
        takes_number=True,
        nccl_only=True,
        config_field="minCTAs",
        config_words="Min CTAs",
    ),
    Setting(
        "max_ctas",
        "most thread blocks that NCCL takes for an operation (ncclConfig_t.maxCTAs)",
        "group",
        takes_number=True,
        nccl_only=True,
        config_field="maxCTAs",
        config_words="Max CTAs",
    ),
    Setting(
        "cga_cluster_size",
        "thread blocks in a cluster (ncclConfig_t.cgaClusterSize)",
        "group",
        takes_number=True,
        nccl_only=True,
        config_field="cgaClusterSize",
        config_words="CGA cluster size",
    ),
    Setting(
        HIGH_PRIORITY,
        "NCCL's kernels on a stream of high priority (is_high_priority_stream)",
        "group",
        nccl_only=True,
    ),
)

SETTINGS: dict[str, Setting] = {entry.name: entry for entry in _ENTRIES}


def parse_setting(text: str) -> tuple[str, str]:
    """Name and value of one word behind a backend; the value is empty where there is none.

    Raises:
        RequestError: no setting, a value that it does not take, or a variable that would change nothing.
    """
    name, equals, value = text.partition("=")
    if text.startswith(ENVIRONMENT_MARK):
        if not re.fullmatch(r"@[A-Za-z0-9][A-Za-z0-9._-]{0,31}", text):
            raise RequestError(
                f"{text!r} names no environment: letters, digits, '.', '_' and '-' can be in it"
            )
        return text, ""
    if name in SETTINGS:
        _check_value(SETTINGS[name], text, value if equals else None)
        return name, value
    if not equals or not _VARIABLE.fullmatch(name):
        raise unknown("setting of an arm", text, [*SETTINGS, "NAME=VALUE", "@ENVIRONMENT"])
    check_variable(name, value)
    return name, value


def check_variable(name: str, value: str) -> None:
    """Refuse a variable that would change nothing, or that ncclbench sets itself.

    Raises:
        RequestError: such a one.
    """
    if name in _OURS:
        raise RequestError(
            f"{name} is no setting of an arm: it tells what the others have done, on all alike"
        )
    if not name.startswith(tuple(VARIABLES)):
        raise RequestError(
            f"{name} is not read when a process group is made ({', '.join(VARIABLES)}... are): set it "
            "in a script that starts Python, and name that with --arm-env"
        )
    if _LOADS_CODE.search(name):
        raise RequestError(
            f"{name} can load code, and arms are kept in files: set it in a script that starts Python, and "
            "name that with --arm-env"
        )
    if not value or len(value) > _LONGEST_VALUE or not value.isprintable():
        raise RequestError(f"{name} has no value that could be one: write {name}=VALUE")


def readers_of(name: str) -> tuple[str, ...]:
    """The families of backends that read a variable."""
    return next(readers for prefix, readers in VARIABLES.items() if name.startswith(prefix))


def is_variable(name: str) -> bool:
    """Whether a setting of that name is one of the process and no entry of SETTINGS."""
    return name not in SETTINGS and not name.startswith(ENVIRONMENT_MARK)


def short_name(name: str, value: str) -> str:
    """What stands for a setting in an arm's id: ``ring`` for NCCL_ALGO=Ring, ``max_ctas8``."""
    if name.startswith(ENVIRONMENT_MARK):
        return name.removeprefix(ENVIRONMENT_MARK)
    if is_variable(name):
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", value):
            return value.lower()[:_LONGEST_SHORT]
        name = next(name.removeprefix(prefix) for prefix in VARIABLES if name.startswith(prefix))
    return re.sub(r"[^a-z0-9._-]", "-", f"{name}{value}".lower())[:_LONGEST_SHORT]


def tiers(place: Placement) -> dict[str, Groups]:
    """The groups of a hierarchical arm: the ranks of each host, and the first rank of every host."""
    hosts = place.by_host()
    return {TIER_OF_HOST: hosts, TIER_OF_LEADERS: (tuple(ranks[0] for ranks in hosts),)}


def _check_value(setting: Setting, text: str, value: str | None) -> None:
    if not setting.takes_number:
        if value is not None:
            raise RequestError(f"{text!r}: {setting.name} takes no value")
    elif value is None or not value.isascii() or not value.isdigit() or not 0 < int(value) <= _LARGEST_NUMBER:
        raise RequestError(f"{text!r}: write {setting.name}=N, from 1 to {_LARGEST_NUMBER}")
