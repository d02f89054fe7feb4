"""How the GPUs of a host are joined, as far as it was recorded: over switches, each to each, or unevenly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What joins the GPUs of every host of a run, all alike.

    Attributes:
        gpus: how many a host has.
        switched: NVLinks lead to NVSwitches, so that few GPUs have as many links as all.
        each: NVLinks between every two; 0 for none; None where that is not alike.
    """

    gpus: int
    switched: bool
    each: int | None


def links_of(hosts: Sequence[Mapping[str, Any]]) -> GpuLinks | None:
    """The links of the hosts' GPUs; None where one host does not tell, or another thing than the others."""
    found = {_of_host(host.get("topology")) for host in hosts}
    return found.pop() if len(found) == 1 else None


def _of_host(topology: Any) -> GpuLinks | None:
    if not isinstance(topology, Mapping):
        return None
    lines, gpus = topology.get("gpu_links"), topology.get("gpus")
    if not isinstance(lines, list) or not isinstance(gpus, list) or len(lines) < 2:
        return None
    remotes = {str(gpu.get("remote") or "") for gpu in gpus if isinstance(gpu, Mapping)}
    if any("unknown" in remote for remote in remotes):
        return None
    rows = [str(line).split() for line in lines]
    between = {word for at, row in enumerate(rows) for to, word in enumerate(row) if to != at}
    counts = {int(match[1]) if (match := re.fullmatch(r"NV([0-9]{1,4})", word)) else 0 for word in between}
    return GpuLinks(
        gpus=len(lines),
        switched=all("NVSwitch" in remote for remote in remotes),
        each=counts.pop() if len(counts) == 1 else None,
    )
