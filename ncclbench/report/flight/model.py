"""What panels draw from dumps: the answer, and as much of the operations as a page can show.

Of hundreds of ranks with thousands of operations each a page would neither open at once nor be small enough
to be sent. So it holds the operations around the first finding, of the ranks to blame first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncclbench.flight.model import Dump, Evidence, Finding, Judgement, Operation
from ncclbench.flight.overview import (
    NO_DUMP,
    RankState,
    blamed_ranks,
    dump_versions,
    group_names,
    group_text,
    nearest,
    rank_states,
    rank_text,
)
from ncclbench.report.flight.arrivals import Arrivals, arrivals_of

# Ranks with a row of their own in the figure, and bars in it altogether.
MOST_RANKS = 96
MOST_BARS = 3_000
# Findings that have a map of their own.
MOST_MAPS = 4
# Operations after that of the first finding, as a part of all that are shown of a rank.
_AFTER = 0.25


@dataclass(frozen=True, slots=True)
class Flight:
    """Dumps and the answer, cut down to what a page shows.

    Attributes:
        label: what tells it from others on the page; "" where it is alone.
        judgement: the answer, whole.
        evidence: of the operations only those that are drawn.
        states: of every rank.
        groups: what each group is called, by name.
        maps: who came to which operation, one for each of the first findings.
        first: the map of the first finding; None where there is none.
        versions: of the dumps' format.
        ndumps: how many were read.
        noperations: how many operations they hold.
    """

    label: str
    judgement: Judgement
    evidence: Evidence
    states: tuple[RankState, ...]
    groups: dict[str, str]
    maps: tuple[Arrivals, ...]
    first: Arrivals | None
    versions: tuple[str, ...]
    ndumps: int
    noperations: int

    def group(self, name: str) -> str:
        """A group by what it is called."""
        return group_text(self.groups, name)

    @property
    def nshown(self) -> int:
        """Operations that are drawn."""
        return sum(len(dump.operations) for dump in self.evidence.dumps)

    @property
    def drawn(self) -> list[RankState]:
        """The ranks that the figure has a row for, in order of rank."""
        return drawn_ranks(self.states, self.judgement)

    @property
    def zero_ns(self) -> int | None:
        """When the first rank came to the operation of the first finding, else the last moment of all."""
        issued = [operation for dump in self.evidence.dumps for operation in dump.operations]
        found = [one.created_ns for one in issued if self.first is not None and self.first.is_of(one)]
        return min(found) if found else max((one.created_ns for one in issued), default=None)

    def name(self, rank: int) -> str:
        """A rank with its host."""
        return rank_text(rank, self.evidence.host_of.get(rank))


@dataclass(frozen=True, slots=True)
class FlightPage:
    """The subject of a page that shows nothing else."""

    flights: tuple[Flight, ...]


def flight_of(evidence: Evidence, judgement: Judgement, label: str = "") -> Flight:
    """What a page shows of dumps that were judged."""
    states = tuple(rank_states(evidence, judgement))
    drawn = {state.rank for state in drawn_ranks(states, judgement)}
    with_rows = [dump for dump in evidence.dumps if dump.rank in drawn]
    most = max(4, MOST_BARS // max(1, len(with_rows)))
    maps = maps_of(evidence, judgement)
    first = maps[0] if maps else None
    return Flight(
        label=label,
        judgement=judgement,
        evidence=replace(
            evidence,
            dumps=tuple(replace(dump, operations=around(dump, first, most), groups={}) for dump in with_rows),
        ),
        states=states,
        groups=group_names(evidence),
        # Operations of pairs are numbered on each rank by itself: no column would be one operation.
        maps=tuple(one for one in maps if not one.is_p2p),
        first=first,
        versions=tuple(dump_versions(evidence)),
        ndumps=len(evidence.dumps),
        noperations=sum(len(dump.operations) for dump in evidence.dumps),
    )


def maps_of(evidence: Evidence, judgement: Judgement) -> tuple[Arrivals, ...]:
    """The maps of the first findings, one for each operation."""
    chosen: dict[tuple[str, int], Finding] = {}
    for finding in judgement.findings:
        if len(chosen) < MOST_MAPS:
            chosen.setdefault((finding.group, finding.sequence), finding)
    issued: dict[str, dict[int, list[Operation]]] = {group: {} for group, _ in chosen}
    for dump in evidence.dumps:
        if dump.rank is not None:
            for operation in dump.operations:
                if operation.group in issued:
                    issued[operation.group].setdefault(dump.rank, []).append(operation)
    return tuple(arrivals_of(one, judgement, issued[one.group]) for one in chosen.values())


def drawn_ranks(states: Sequence[RankState], judgement: Judgement) -> list[RankState]:
    """Ranks with something to draw, as many as there is room for: those to blame and their neighbours."""
    with_dumps = {state.rank: state for state in states if state.part != NO_DUMP}
    blamed = blamed_ranks(judgement.findings[0]) if judgement.findings else ()
    return [with_dumps[rank] for rank in nearest(with_dumps, blamed, MOST_RANKS)]


def around(dump: Dump, first: Arrivals | None, most: int) -> tuple[Operation, ...]:
    """So many of a rank's operations: those around that of the first finding, or the last ones."""
    operations = sorted(dump.operations, key=lambda operation: operation.created_ns)
    if len(operations) <= most:
        return tuple(operations)
    end = len(operations)
    # A rank that never came to it is shown up to its last: what it did instead.
    if first is not None:
        at = [place for place, operation in enumerate(operations) if first.is_of(operation)]
        end = min(end, at[-1] + 1 + int(most * _AFTER)) if at else end
    return tuple(operations[max(0, end - most) : end])
