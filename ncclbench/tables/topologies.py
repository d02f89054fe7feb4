"""TOPOLOGIES: how the ranks of a job are cut into process groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to cut the world into groups.

    Attributes:
        name: as typed after ``--topologies``.
        description: which ranks talk to each other.
        groups: world size to the groups, each a list of global ranks in group order.
    """

    name: str
    description: str
    groups: Callable[[int], list[list[int]]]


_ENTRIES = (Topology("world", "all ranks in one group", lambda nranks: [list(range(nranks))]),)

TOPOLOGIES: dict[str, Topology] = {entry.name: entry for entry in _ENTRIES}

# Named in the contract and not built yet: refused with these words rather than as unknown names.
PLANNED_TOPOLOGIES = (
    "node",
    "cross-node",
    "pairs",
    "ring",
    "halves",
    "strided",
    "mesh",
    "hierarchical",
)
