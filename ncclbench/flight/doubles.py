"""Of several dumps of one recorder the one to take; folders may hold more than one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ncclbench.flight.model import Dump, Refused


def chosen(dumps: Sequence[Dump]) -> tuple[list[Dump], list[Refused]]:
    """One dump of each recorder, and why the others were not taken; empty ones only where there is no other.

    Of one process the dump that knows most is taken. Of several, as where a rank was started again or the
    folder holds an earlier job too, those of the newest; then what is left of other ranks of that earlier job
    is not taken either.
    """
    by_recorder: dict[tuple[int, str], list[Dump]] = defaultdict(list)
    for dump in dumps:
        key = _recorder(dump)
        if key is not None:
            by_recorder[key].append(dump)
    why: dict[int, str] = {}
    newest: list[Dump] = []
    for (rank, _), same in by_recorder.items():
        if len(same) < 2:
            continue
        last = max(same, key=lambda one: one.operations[-1].created_ns)
        best = max((one for one in same if _is_same_process(one, last)), key=_fullness)
        for one in same:
            if _is_same_process(one, best):
                why[id(one)] = f"rank {rank} has a fuller dump: {best.source}"
            else:
                why[id(one)] = f"rank {rank} has a newer dump, of another job or a later start: {best.source}"
                newest.append(best)
        del why[id(best)]
    begin = _begin_of(newest)
    for (rank, _), same in by_recorder.items():
        if len(same) == 1 and begin is not None and same[0].operations[-1].created_ns < begin:
            why[id(same[0])] = f"rank {rank} has a dump from before the job began that the others are of"
    known = {rank for (rank, _), same in by_recorder.items() if any(id(one) not in why for one in same)}
    kept: list[Dump] = []
    for dump in dumps:
        if id(dump) in why:
            continue
        if dump.operations or dump.rank is None or dump.rank not in known:
            if not dump.operations and dump.rank is not None:
                known.add(dump.rank)
            kept.append(dump)
    return kept, [Refused(dump.source, why[id(dump)]) for dump in dumps if id(dump) in why]


def _recorder(dump: Dump) -> tuple[int, str] | None:
    """Rank and backend, or None where they are not known."""
    if dump.rank is None or not dump.operations:
        return None
    return dump.rank, dump.operations[-1].backend


def _fullness(dump: Dump) -> tuple[int, int, int]:
    """How late, how long and how closely it tells."""
    last = dump.operations[-1]
    return last.record, len(dump.operations), len(last.frames)


def _is_same_process(one: Dump, other: Dump) -> bool:
    """Whether one recorder can have held both: what has one number in both has one time."""
    if one is other:
        return True
    times = {operation.record: operation.created_ns for operation in one.operations}
    shared = [operation for operation in other.operations if operation.record in times]
    if shared:
        return all(times[operation.record] == operation.created_ns for operation in shared)
    early, late = sorted((one, other), key=lambda dump: dump.operations[-1].record)
    return early.operations[-1].created_ns <= late.operations[0].created_ns


def _begin_of(dumps: Sequence[Dump]) -> int | None:
    """When the job began that several of these are of; None where it is not known, or no other job."""
    if len({dump.rank for dump in dumps}) < 2 or any(dump.is_wrapped for dump in dumps):
        return None
    return min(dump.operations[0].created_ns for dump in dumps)
