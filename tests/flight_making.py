"""Dumps made of numbers: what a recorder of a rank would have held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncclbench.flight.model import Dump, Evidence, GroupStatus, Operation

SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS


def operation(sequence: int, collective: str = "all_reduce", **changes: Any) -> Operation:
    """One that is done, on gloo; ``count`` and ``dtype`` of its one input and output."""
    shape = ((changes.pop("count", 4),),)
    dtypes = (changes.pop("dtype", "Float"),)
    group = changes.pop("group", "0")
    known: dict[str, Any] = {
        "record": sequence,
        "group": group,
        "group_words": "default_pg" if group == "0" else "undefined",
        "sequence": sequence,
        "op_id": sequence,
        "backend": "gloo",
        "collective": collective,
        "is_p2p": False,
        "input_sizes": shape,
        "output_sizes": shape,
        "input_dtypes": dtypes,
        "output_dtypes": dtypes,
        "state": "scheduled",
        "is_retired": True,
        "created_ns": START_NS + sequence * 1_000_000,
        "started_ns": None,
        "completed_ns": None,
        "timeout_ms": 10_000,
    }
    return Operation(**known | changes)


def operations(numbers: Iterable[int], *, waits: bool = False, **changes: Any) -> list[Operation]:
    """One after another; with ``waits`` the last is not done."""
    made = [operation(number, **changes) for number in numbers]
    if waits:
        made[-1] = operation(made[-1].sequence, **changes | {"is_retired": False})
    return made


def dump(rank: int | None, held: Sequence[Operation], **changes: Any) -> Dump:
    """Of one rank; ``members``: global ranks of groups by name."""
    members: Mapping[str, Sequence[int]] = changes.pop("members", {})
    known: dict[str, Any] = {
        "source": f"trace_rank_{rank}",
        "version": "2.10",
        "groups": {name: GroupStatus("undefined", tuple(ranks)) for name, ranks in members.items()},
        "operations": tuple(held),
        "is_wrapped": False,
    }
    return Dump(rank, **known | changes)


def evidence(*dumps: Dump, nranks: int | None = None, hosts: Mapping[int, str] | None = None) -> Evidence:
    ranks = [one.rank for one in dumps if one.rank is not None]
    return Evidence(tuple(dumps), (), nranks or max(ranks, default=-1) + 1, hosts or {})
