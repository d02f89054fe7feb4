"""What is shown beside the findings: each rank's last operation and its part in them, groups by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.flight.join import is_done
from ncclbench.flight.model import Dump, Evidence, Finding, Judgement, Operation
from ncclbench.flight.words import place
from ncclbench.units import runs_of

# Parts in a finding, those to blame first; the last two are of ranks that no finding names.
MISSING, MISMATCHED, CAME, NO_DUMP, NOTHING = "did not come", "issued another", "came", "left no dump", ""
_ORDER = (MISSING, MISMATCHED, NO_DUMP, CAME, NOTHING)
# What torch calls a group that was given no description.
_NAMELESS = ("", "undefined")
_DEFAULT = "default_pg"


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank as its dumps leave it.

    Attributes:
        rank: global rank.
        host: its name; None where not told.
        part: in the first finding that names it.
        operation: the last one that it issued; None where nothing of it was read.
        is_wrapped: older operations of it are not known.
    """

    rank: int
    host: str | None
    part: str
    operation: Operation | None
    is_wrapped: bool

    @property
    def name(self) -> str:
        """The rank with its host: rank 5 (node-1)."""
        return rank_text(self.rank, self.host)

    def to_json(self) -> dict[str, Any]:
        """As ``flight --json`` has it."""
        last = self.operation
        return {
            "rank": self.rank,
            "host": self.host,
            "part": self.part or None,
            "group": last and last.group,
            "sequence": last and last.sequence,
            "collective": last and last.collective,
            "state": last and state_text(last),
            "where": last and place_text(last),
            "wrapped": self.is_wrapped,
        }


def rank_text(rank: int, host: str | None) -> str:
    """A rank with its host, where that is known."""
    return f"rank {rank}" if host is None else f"rank {rank} ({host})"


def ranks_text(ranks: Iterable[int], most: int = 6) -> str:
    """Ranks with neighbours drawn together, cut after so many pieces: 0-6, 9 and 12 more."""
    ranges = runs_of(ranks)
    shown = ranges if len(ranges) <= most else ranges[: most - 1]
    left = sum(high - low + 1 for low, high in ranges[len(shown) :])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in shown)
    return f"{text} and {left} more" if left else text


def state_text(operation: Operation) -> str:
    """What became of an operation, as far as its recorder tells: gloo's never says that one is completed."""
    if operation.state == "completed" or operation.completed_ns is not None:
        return "completed"
    if is_done(operation):
        return "over"
    return "running" if operation.state == "started" else "waiting"


def place_text(operation: Operation) -> str | None:
    """Where in the code it was issued; None where the dump holds no stack."""
    return place(operation.frames)


def operation_text(collective: str, sequence: int) -> str:
    """An operation by its number in its group: all_reduce 42."""
    return f"{collective} {sequence}"


def group_names(evidence: Evidence) -> dict[str, str]:
    """The description of each group that has one, by the group's name."""
    words = {name: status.words for dump in evidence.dumps for name, status in dump.groups.items()}
    # A recorder may forget the groups' configuration, and each operation tells its own.
    for dump in evidence.dumps:
        for group, own in {operation.group: operation.group_words for operation in dump.operations}.items():
            words[group] = words.get(group) or own
    return {name: text for name, text in words.items() if text not in _NAMELESS}


def group_text(words: Mapping[str, str], group: str) -> str:
    """A group by name and description: default_pg; group 3 (tp); group 3."""
    own = words.get(group, group)
    if own == group:
        return f"group {group}"
    return own if own == _DEFAULT else f"group {group} ({own})"


def dump_versions(evidence: Evidence) -> list[str]:
    """The versions of the format that were met, each once."""
    return sorted({dump.version for dump in evidence.dumps})


def rank_states(evidence: Evidence, judgement: Judgement) -> list[RankState]:
    """Every rank that has a dump, or that lacks one, in order of rank."""
    parts = _parts(judgement)
    dumps: dict[int, list[Dump]] = {rank: [] for rank in judgement.missing_dumps}
    for dump in evidence.dumps:
        if dump.rank is not None:
            dumps.setdefault(dump.rank, []).append(dump)
    wrapped = set(judgement.wrapped_ranks)
    return [
        RankState(
            rank=rank,
            host=evidence.host_of.get(rank),
            part=parts.get(rank, NOTHING if dumps[rank] else NO_DUMP),
            operation=max(
                (dump.operations[-1] for dump in dumps[rank] if dump.operations),
                key=lambda operation: operation.created_ns,
                default=None,
            ),
            is_wrapped=rank in wrapped,
        )
        for rank in sorted(dumps)
    ]


def by_blame(states: Iterable[RankState]) -> list[RankState]:
    """Those to blame first, then by rank."""
    return sorted(states, key=lambda state: (_ORDER.index(state.part), state.rank))


def blamed_ranks(finding: Finding) -> tuple[int, ...]:
    """Who is to blame for a finding: a rank of which nothing is known only where nobody else is."""
    return finding.mismatched_ranks + finding.missing_ranks or finding.unknown_ranks


def nearest(ranks: Iterable[int], blamed: Sequence[int], most: int) -> list[int]:
    """So many of the ranks, in order: those to blame and their neighbours, who mostly share their host."""
    centre = blamed[0] if blamed else 0
    first = set(blamed)
    chosen = sorted(set(ranks), key=lambda rank: (rank not in first, abs(rank - centre), rank))[:most]
    return sorted(chosen)


def _parts(judgement: Judgement) -> dict[int, str]:
    """The part of each rank that a finding names, in the first that does; blame goes first."""
    parts: dict[int, str] = {}
    for finding in judgement.findings:
        for rank in finding.missing_ranks:
            parts.setdefault(rank, MISSING)
        for rank in finding.mismatched_ranks:
            parts.setdefault(rank, MISMATCHED)
        if finding.kind == "stuck":
            for rank in finding.arrived_ranks:
                parts.setdefault(rank, CAME)
    return parts
