"""Who came to which operation of a group: ranks over sequence numbers, so that no clocks are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncclbench.flight.join import is_done
from ncclbench.flight.model import Finding, Judgement, Operation
from ncclbench.flight.overview import blamed_ranks, nearest, ranks_text

# Numbers shown before that of the finding, and after it.
BEFORE, AFTER = 40, 8
# Of more ranks the map has those to blame and their neighbours.
MOST_ROWS = 128

# What a cell may say, in the order of its colours.
ISSUED, WAITS, NO_SHOW, OTHER, LOST, NOT_YET = (
    "issued",
    "waits",
    "did not come",
    "issued another",
    "not known",
    "not issued",
)
WORDS = (ISSUED, WAITS, NO_SHOW, OTHER, LOST, NOT_YET)

# A group, a backend, and whether operations of pairs are meant.
Lane = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The map of one finding.

    Attributes:
        finding: that it is about.
        lane: where its numbers count.
        ranks: of the rows.
        sequences: of the columns.
        cells: by row, then column: one of WORDS.
        collectives: by row, then column: what the rank issued there; "" for nothing.
        left_out: members of the group that have no row.
    """

    finding: Finding
    lane: Lane
    ranks: tuple[int, ...]
    sequences: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]
    collectives: tuple[tuple[str, ...], ...]
    left_out: str

    @property
    def is_p2p(self) -> bool:
        """Whether it is about an operation of a pair."""
        return self.lane[2]

    def is_of(self, operation: Operation) -> bool:
        """Whether an operation is that of the finding, of whichever rank."""
        return operation.sequence == self.finding.sequence and lane_at(operation) == self.lane


def arrivals_of(
    finding: Finding, judgement: Judgement, operations: Mapping[int, Sequence[Operation]]
) -> Arrivals:
    """The map of a finding.

    Args:
        finding: around it.
        judgement: that it stands in.
        operations: by rank, all that were read of the finding's group.
    """
    lane = lane_of(finding, operations)
    issued = {
        rank: {operation.sequence: operation for operation in own if lane_at(operation) == lane}
        for rank, own in operations.items()
    }
    ranks, left_out = _rows(finding, issued)
    last = max((max(own, default=0) for own in issued.values()), default=finding.sequence)
    columns = range(
        max(1, finding.sequence - BEFORE), max(finding.sequence, min(last, finding.sequence + AFTER)) + 1
    )
    missing_dumps = set(judgement.missing_dumps)
    return Arrivals(
        finding=finding,
        lane=lane,
        ranks=tuple(ranks),
        sequences=tuple(columns),
        cells=tuple(
            tuple(_cell(rank, number, issued.get(rank, {}), finding, missing_dumps) for number in columns)
            for rank in ranks
        ),
        collectives=tuple(
            tuple(own[number].collective if number in own else "" for number in columns)
            for own in (issued.get(rank, {}) for rank in ranks)
        ),
        left_out=left_out,
    )


def lane_at(operation: Operation) -> Lane:
    """What an operation is numbered together with."""
    return operation.group, operation.backend, operation.is_p2p


def lane_of(finding: Finding, operations: Mapping[int, Sequence[Operation]]) -> Lane:
    """Where a finding's number counts: each backend of a group, and pairs, have numbers of their own.

    It is the lane in which those who came, and nobody else, have issued the finding's operation.
    """
    came = set(finding.arrived_ranks)
    found: dict[Lane, set[int]] = {}
    for rank, own in operations.items():
        for operation in own:
            if operation.sequence == finding.sequence and operation.group == finding.group:
                found.setdefault(lane_at(operation), set()).add(rank)
    return min(found, key=lambda lane: len(found[lane] ^ came), default=(finding.group, "", False))


def _rows(finding: Finding, issued: dict[int, dict[int, Operation]]) -> tuple[list[int], str]:
    """Ranks of the map, and who was left out."""
    members = {*finding.missing_ranks, *finding.mismatched_ranks, *finding.unknown_ranks}
    members |= {*finding.arrived_ranks, *(rank for rank, own in issued.items() if own)}
    chosen = nearest(members, blamed_ranks(finding), MOST_ROWS)
    return chosen, ranks_text(members - set(chosen))


def _cell(
    rank: int, sequence: int, own: dict[int, Operation], finding: Finding, missing_dumps: set[int]
) -> str:
    operation = own.get(sequence)
    is_found = sequence == finding.sequence
    if operation is not None:
        if is_found and rank in finding.mismatched_ranks:
            return OTHER
        return ISSUED if is_done(operation) else WAITS
    if is_found and rank in finding.missing_ranks:
        return NO_SHOW
    if rank in missing_dumps or (is_found and rank in finding.unknown_ranks):
        return LOST
    # Numbers rise: what is missing before one that is there was overwritten.
    return LOST if own and sequence < max(own) else NOT_YET
