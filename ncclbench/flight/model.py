"""What flight recorders have written, and the answer to who was stuck.

An operation is identified over ranks by its group and its sequence number in that group: recorders number
the collectives of each group from 1 (``collective_seq_id``), and point-to-point operations apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["scheduled", "started", "completed"]
Verdict = Literal["stuck", "mismatch", "healthy", "unclear"]
FindingKind = Literal["stuck", "mismatch"]


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the code that issued an operation."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of a recorder's ring.

    Attributes:
        record: number of the entry since the recorder was made (``record_id``).
        group: name of the process group, as its members all have it.
        group_words: its description ("default_pg").
        sequence: number in its group, from 1: of collectives, or of point-to-point operations.
        op_id: number of the operation in its group, both kinds together.
        backend: "gloo", "nccl", "nccl2" or "nccl-lazy".
        collective: as the recorder calls it: "all_reduce", "_allgather_base", "send 0->1".
        is_p2p: whether it is of one pair.
        input_sizes, output_sizes: shapes of its tensors; ``input_dtypes``, ``output_dtypes`` beside them.
        state: as recorded; gloo's stays "scheduled".
        is_retired: the library holds it no more: completed, or given up.
        created_ns: wall clock, nanoseconds; ``started_ns``, ``completed_ns``: None where not seen.
        timeout_ms: of the operation; None where not recorded.
        frames: the innermost first; none in JSON dumps.
    """

    record: int
    group: str
    group_words: str
    sequence: int
    op_id: int
    backend: str
    collective: str
    is_p2p: bool
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    state: State
    is_retired: bool
    created_ns: int
    started_ns: int | None
    completed_ns: int | None
    timeout_ms: int | None
    frames: tuple[Frame, ...] = ()

    @property
    def key(self) -> tuple[str, bool, int]:
        """The same for all ranks that take part in it."""
        return self.group, self.is_p2p, self.sequence


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What a rank's recorder says of a group as a whole (``pg_config``, ``pg_status``).

    Attributes:
        words: its description.
        ranks: global ranks of the members; None where the dump does not say.
        last_enqueued, last_started, last_completed: sequence numbers; None where not said. gloo's threads set
            the last completed one in any order, so it may stay below what is done.
    """

    words: str
    ranks: tuple[int, ...] | None
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None


@dataclass(frozen=True, slots=True)
class Dump:
    """What one recorder of one rank held.

    Attributes:
        rank: global rank; None where neither the dump nor the name of its file tells it.
        source: the file, and the place in it where it holds several.
        version: of the format.
        groups: by name.
        operations: in the order of ``record``.
        is_wrapped: older entries were overwritten.
        taken_ns: wall clock, where the dump tells; None elsewhere.
        written_ns: when its file was last written, so it was not taken later; None where it is no file's.
    """

    rank: int | None
    source: str
    version: str
    groups: Mapping[str, GroupStatus]
    operations: tuple[Operation, ...]
    is_wrapped: bool
    taken_ns: int | None = None
    written_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A file, or a part of one, that was not taken, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was read.

    Attributes:
        dumps: one or several per rank (one per recorder).
        refused: what was not taken.
        nranks: world size as far as known: told, or the largest rank that any group names plus 1.
        host_of: name of its host, by rank; empty where not told.
    """

    dumps: tuple[Dump, ...]
    refused: tuple[Refused, ...] = ()
    nranks: int | None = None
    host_of: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: "stuck": some wait for others; "mismatch": they issued different things under one number.
        group, sequence, collective: the operation; the collective of most where they differ.
        missing_ranks: members that never issued it, though their dumps are there.
        arrived_ranks: members that did.
        mismatched_ranks: members that issued something else than most.
        unknown_ranks: members whose dumps are missing, or whose ring no longer holds it.
        hosts: of the ranks to blame (missing or mismatched), where known, each once.
        where: where in the code it is: of a rank to blame its last operation, else where the others wait.
        why: one sentence for a person.
        causes: how many later findings follow from it, in a cascade.
    """

    kind: FindingKind
    group: str
    sequence: int
    collective: str
    missing_ranks: tuple[int, ...]
    arrived_ranks: tuple[int, ...]
    mismatched_ranks: tuple[int, ...]
    unknown_ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    where: str | None
    why: str
    causes: int = 0

    def to_json(self) -> dict[str, Any]:
        """As ``flight --json`` has it."""
        return {
            "kind": self.kind,
            "group": self.group,
            "sequence": self.sequence,
            "collective": self.collective,
            "missing_ranks": list(self.missing_ranks),
            "arrived_ranks": list(self.arrived_ranks),
            "mismatched_ranks": list(self.mismatched_ranks),
            "unknown_ranks": list(self.unknown_ranks),
            "hosts": list(self.hosts),
            "where": self.where,
            "why": self.why,
            "causes": self.causes,
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer.

    Attributes:
        verdict: "unclear" where dumps that are missing could change it, or nothing could be read.
        message: one line in words.
        findings: the root cause first.
        missing_dumps: ranks of whom there is none.
        wrapped_ranks: ranks whose ring had wrapped, so that older operations are unknown.
    """

    verdict: Verdict
    message: str
    findings: tuple[Finding, ...]
    missing_dumps: tuple[int, ...]
    wrapped_ranks: tuple[int, ...]
