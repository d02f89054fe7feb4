"""What of an arm's settings is in force, told by the libraries themselves and not by who has set it.

NCCL's log says it (NCCL 2.30.7: src/misc/param.cc, src/init.cc, src/graph/tuning.cc, src/enqueue.cc); gloo's
connections do. Read in a launch that times nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from ncclbench.environ import variable
from ncclbench.plan.environments import LIBRARIES
from ncclbench.store.meta import SettingRead
from ncclbench.tables.settings import (
    ENVIRONMENT_MARK,
    GLOO_INTERFACE,
    HIERARCHICAL,
    HIGH_PRIORITY,
    SETTINGS,
    SYMM,
)

# Without "by environment": NCCL_IB_HCA, NCCL_OOB_NET_IFNAME.
_SET = re.compile(r"NCCL INFO (NCCL_\w+) set (?:by environment )?to (.+?)\.?$", re.MULTILINE)
_INVALID = re.compile(r"Invalid value (\S*) for (\w+), using default (-?\w+)")
# What the older way of writing a level, by its number, is in the newer, which the log has.
_WITH_LEVELS = ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL")
_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
# On rank 0 alone, of each operation.
_CHOSEN = re.compile(r"(\w+): \d+ Bytes -> Algo (\w+) proto (\w+)")
_KERNEL = re.compile(r"(\w+) \[Symmetric\]: \d+ Bytes -> Kernel (\w+)")

_BY_LOG = "NCCL's log"
_BY_SOCKETS = "local addresses of its connections"
_BY_OPTIONS = "the group's own options"
_BY_FORM = "as the calls are made"
_BY_PROCESS = "its workers' own word"
_NOT_TOLD = "nothing tells of it"


def read_back(
    settings: Mapping[str, str], backend: Any, log: str, before: set[str], began: int = 0
) -> list[SettingRead]:
    """Every setting of an arm, in their order.

    Args:
        backend: of the arm's group, which was made and used.
        log: what NCCL has written since the process began.
        before: local addresses of this process's connections before the group was made.
        began: characters of the log that are of groups before it. Of a variable only the first group tells.
    """
    return [_read(name, asked, backend, log, before, began) for name, asked in settings.items()]


def algorithms(log: str) -> str | None:
    """What NCCL chose for the operations in its log: ``AllReduce RING SIMPLE``; None where it does not say.

    Only group rank 0 writes it.
    """
    chosen = [" ".join(match) for match in _CHOSEN.findall(log)]
    chosen += [f"{op} symmetric {kernel}" for op, kernel in _KERNEL.findall(log)]
    return ", ".join(dict.fromkeys(chosen)) or None


def local_addresses() -> set[str]:
    """Of this process's TCP connections, those that wait for others included."""
    return {each.laddr.ip for each in psutil.Process().net_connections("tcp") if each.laddr}


def _read(name: str, asked: str, backend: Any, log: str, before: set[str], began: int) -> SettingRead:
    if name == HIERARCHICAL:
        return _reading(name, asked, "two tiers", True, _BY_FORM)
    if name == SYMM:
        # Registering has raised where it could not be done.
        return _reading(name, asked, "registered", True, _BY_FORM)
    if name in SETTINGS:
        return _config(name, asked, backend, log[began:])
    if name.startswith(ENVIRONMENT_MARK):
        return _environment(name, asked)
    if name.startswith("NCCL_"):
        return _nccl_variable(name, asked, log)
    if name == GLOO_INTERFACE:
        return _interface(name, asked, before)
    return _reading(name, asked, None, None, _NOT_TOLD)


def _nccl_variable(name: str, asked: str, log: str) -> SettingRead:
    for value, of, default in _INVALID.findall(log):
        if of == name:
            return _reading(name, asked, f"{default}, as {value} is none", False, _BY_LOG)
    found = dict(_SET.findall(log)).get(name)
    if found is None:
        return _reading(name, asked, None, None, "NCCL's log does not name it")
    if name in _WITH_LEVELS and asked.isdecimal():
        return _reading(name, asked, found, found == _LEVELS[min(int(asked), len(_LEVELS) - 1)], _BY_LOG)
    return _reading(name, asked, found, _alike(asked, found), _BY_LOG)


def _config(name: str, asked: str, backend: Any, log: str) -> SettingRead:
    options = getattr(backend, "options", None)
    if name == HIGH_PRIORITY:
        priority = bool(getattr(options, "is_high_priority_stream", False))
        return _reading(name, asked, "high" if priority else "usual", priority, _BY_OPTIONS)
    setting = SETTINGS[name]
    # Last of all: no more than there are channels, and the least no more than the most.
    larger = rf"{setting.config_field} -?\d+ is larger than [^,\n]+, (?:cap it|set both) to (-?\d+)"
    if capped := re.findall(larger, log):
        return _reading(name, asked, capped[-1], capped[-1] == asked, _BY_LOG)
    # A variable of the process overrides what a communicator is made with.
    resets = re.findall(rf"Comm config {setting.config_field} reset to (\w+)=(-?\d+)", log)
    if resets:
        variable, value = resets[-1]
        return _reading(name, asked, f"{value}, by {variable}", value == asked, _BY_LOG)
    said = re.findall(rf"Comm config {setting.config_words} set to (-?\d+)", log)
    if said:
        return _reading(name, asked, said[-1], said[-1] == asked, _BY_LOG)
    found = getattr(getattr(options, "config", None), name, None)
    return _reading(name, asked, None if found is None else str(found), str(found) == asked, _BY_OPTIONS)


def _interface(name: str, asked: str, before: set[str]) -> SettingRead:
    mine = local_addresses() - before or local_addresses()
    there = psutil.net_if_addrs().items()
    found = sorted(interface for interface, each in there if {one.address for one in each} & mine)
    wanted = {one for one in asked.split(",") if one}
    return _reading(name, asked, ",".join(found) or None, bool(wanted & set(found)) or None, _BY_SOCKETS)


def _environment(name: str, asked: str) -> SettingRead:
    versions = [f"torch {torch.__version__}", f"Python {sys.version.split()[0]}"]
    if torch.cuda.is_available():
        versions.insert(1, f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")  # type: ignore[no-untyped-call]
    folder = variable(LIBRARIES)
    if folder is None:
        return _reading(name, asked, ", ".join(versions), True, _BY_PROCESS)
    loaded = sorted({Path(path).name for path in _mapped() if Path(path).parent == Path(folder).resolve()})
    found = ", ".join([*versions, f"libraries {', '.join(loaded) or 'none of them'}"])
    return _reading(name, asked, found, bool(loaded), _BY_PROCESS)


def _mapped() -> set[str]:
    """Files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {fields[5] for fields in (line.split(None, 5) for line in lines) if len(fields) == 6}


def _alike(asked: str, found: str) -> bool:
    return asked.lower() == found.lower() or None is not _number(asked) == _number(found)


def _number(text: str) -> int | None:
    """As strtoll reads it: 0x10 is 16, 010 is 8."""
    match = re.fullmatch(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))", text)
    if match is None:
        return None
    sign, hexadecimal, octal, decimal = match.groups()
    base = 16 if hexadecimal else 8 if octal else 10
    return int(sign + (hexadecimal or octal or decimal), base)


def _reading(name: str, asked: str, found: str | None, in_force: bool | None, how: str) -> SettingRead:
    return {"name": name, "asked": asked, "found": found, "in_force": in_force, "how": how}
