"""A rank's part in a topology: the group that it is in, and its place there."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.plan.model import Plan
from ncclbench.tables.topologies import WORLD, Groups


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank is in a topology.

    Attributes:
        topology: its name.
        groups: all of it; empty for the world.
        number: of this rank's group among them; None where it is in none and only waits for the others.
        ranks: global ranks of the rank's group in group order; itself alone where it is in none.
        rank: its place among these.
        mesh: names and sizes of the dimensions, where the groups are those along one of a mesh.
    """

    topology: str
    groups: Groups
    number: int | None
    ranks: tuple[int, ...]
    rank: int
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def is_world(self) -> bool:
        """Whether it is the one group of all ranks."""
        return self.topology == WORLD.name

    @property
    def dimension(self) -> str:
        """Of the mesh, along which the groups are."""
        return self.topology.rpartition("@")[2]


def part_of(plan: Plan, topology: str, rank: int) -> Part:
    """The part of a global rank."""
    groups = () if topology == WORLD.name else plan.groups[topology]
    return place_in(topology, groups, rank, plan.nranks, plan.meshes.get(topology, ()))


def place_in(
    topology: str, groups: Groups, rank: int, nranks: int, mesh: tuple[tuple[str, int], ...] = ()
) -> Part:
    """The part of a global rank in groups that are given; they do not matter where it is the world."""
    if topology == WORLD.name:
        return Part(topology, (), 0, tuple(range(nranks)), rank)
    for number, ranks in enumerate(groups):
        if rank in ranks:
            return Part(topology, groups, number, ranks, ranks.index(rank), mesh)
    return Part(topology, groups, None, (rank,), 0, mesh)


def parts_of(plan: Plan, rank: int) -> dict[str, Part]:
    """The part of a global rank in every topology that the plan's cases have, in the plan's order."""
    names = dict.fromkeys(case.topology for case in plan.planned)
    return {name: part_of(plan, name, rank) for name in names}
