"""A finding in the making, and what can be asked of a group about one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ncclbench.flight.agreement import agree, is_synchronising
from ncclbench.flight.join import Group, Lane
from ncclbench.flight.model import FindingKind, Operation


@dataclass(slots=True, eq=False)
class Case:
    """A finding in the making.

    Attributes:
        group, sequence: where.
        operation: as most issued it; of the others the first that is left.
        issued: what each rank issued under that number, where it is still known.
        missing, arrived, mismatched, unknown: ranks, as in Finding.
        waiting: those arrived that were in it when their dump was taken.
        differs: "collective", "size", "dtype", "root" or "splits"; None where some are only missing.
        is_certain: False where healthy ranks could leave the same behind.
        doubt: why it is not certain, where that is to be said.
        is_past: all went on for several operations that agree.
        is_lonely: members are lacking that are not recorded.
        crossed: the other cases of a cycle, in which each waits for a rank that waits in the next.
        causes: how many cases follow from it.
        shift: number and place in the code of the operation that one rank has more, or less, than the others.
        held_by: of missing ranks that wait in other cases: these cases.
    """

    kind: FindingKind
    group: Group
    sequence: int
    operation: Operation
    issued: Mapping[int, Operation]
    missing: frozenset[int] = frozenset()
    arrived: frozenset[int] = frozenset()
    mismatched: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    differs: str | None = None
    is_certain: bool = True
    doubt: str | None = None
    is_past: bool = False
    is_lonely: bool = False
    crossed: tuple[Case, ...] = ()
    causes: int = 0
    shift: tuple[int, str | None] | None = None
    held_by: dict[int, Case] = field(default_factory=dict)

    @property
    def first_ns(self) -> int:
        """When the first rank came to it."""
        return min((one.created_ns for one in self.issued.values()), default=self.operation.created_ns)

    def stands(self, rank: int) -> bool:
        """Whether that is where the rank was: it waits there, or gave it up and issued nothing after it."""
        if rank in self.waiting:
            return True
        if rank not in self.arrived or (self.waiting and not is_synchronising(self.operation.collective)):
            return False
        lane = self.group.lanes.get(rank)
        return lane is not None and lane.last == self.sequence and not lane.pending


def issued_under(group: Group, number: int) -> dict[int, Operation]:
    found = ((rank, lane.at(number)) for rank, lane in group.lanes.items())
    return {rank: operation for rank, operation in found if operation is not None}


def has_issued(lane: Lane, number: int) -> bool:
    return lane.last >= number


def knows_how_far(lane: Lane) -> bool:
    """Whether it is known how far the rank came: not where all it did there was overwritten."""
    return bool(lane.operations) or lane.is_whole


def unknown_members(group: Group) -> frozenset[int]:
    known = {rank for rank, lane in group.lanes.items() if knows_how_far(lane)}
    return frozenset(group.members) - known


def camps_of(issued: Mapping[int, Operation]) -> list[list[int]]:
    """Ranks whose operations agree with each other, the most first."""
    camps: list[list[int]] = []
    for rank in sorted(issued):
        for camp in camps:
            if agree(issued[camp[0]], issued[rank]):
                camp.append(rank)
                break
        else:
            camps.append([rank])
    return sorted(camps, key=lambda camp: -len(camp))
