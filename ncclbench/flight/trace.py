"""The operations of all ranks as Chrome trace events, which Perfetto and chrome://tracing open.

The format is that of the Trace Event Format document: a process per rank, a thread per group, a complete
event ("X") per operation, an instant event ("i") per finding; times in microseconds from the first operation.
Events of one thread must not overlap, so a group whose operations do has further threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ncclbench.flight.join import is_done
from ncclbench.flight.model import Dump, Evidence, Finding, Judgement, Operation

Event = dict[str, Any]

# More than this no viewer opens; of each rank the last ones are kept.
MOST_OPERATIONS = 500_000
# Threads of one group on one rank.
_LANES = 100


def perfetto(evidence: Evidence, judgement: Judgement) -> dict[str, Any]:
    """Chrome trace event JSON.

    Where no end is recorded, as on gloo, an operation is drawn up to the next one of its rank and group, with
    ``"end": "next"`` among its arguments; one that was not done is drawn to the last event of all and says
    ``"end": "open"``. How many older operations were left out, for there are too many, is in ``otherData``.
    """
    dumps = [dump for dump in evidence.dumps if dump.rank is not None and dump.operations]
    most = max(1, MOST_OPERATIONS // max(1, len(dumps)))
    left_out = sum(max(0, len(dump.operations) - most) for dump in dumps)
    threads: dict[tuple[int, str, str], list[Operation]] = defaultdict(list)
    for dump in dumps:
        for operation in dump.operations[-most:]:
            threads[_rank(dump), operation.backend, operation.group].append(operation)
    times = [time for operations in threads.values() for one in operations for time in _times(one)]
    first, last = min(times, default=0), max(times, default=0)
    events: list[Event] = []
    numbers = _thread_numbers(threads)
    for rank in sorted({_rank(dump) for dump in dumps}):
        host = evidence.host_of.get(rank)
        name = f"rank {rank}" if host is None else f"rank {rank} ({host})"
        events.append(_metadata("process_name", rank, 0, {"name": name}))
        events.append(_metadata("process_sort_index", rank, 0, {"sort_index": rank}))
    for (rank, backend, group), operations in threads.items():
        thread = numbers[backend, group]
        words = operations[0].group_words
        title = f"{group} {words}".strip() if words not in ("", group) else group
        slices = list(_slices(operations, rank, first, last))
        for lane in range(_apart(slices, thread)):
            name = f"{backend} group {title}" + (f" ({lane + 1})" if lane else "")
            events.append(_metadata("thread_name", rank, thread + lane, {"name": name}))
        events += slices
    events += _instants(judgement.findings, threads, numbers, first, last)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "verdict": judgement.verdict,
            "message": judgement.message,
            "operations_left_out": left_out,
        },
    }


def _rank(dump: Dump) -> int:
    assert dump.rank is not None
    return dump.rank


def _times(operation: Operation) -> Iterator[int]:
    yield operation.created_ns
    if operation.started_ns is not None:
        yield operation.started_ns
    if operation.completed_ns is not None:
        yield operation.completed_ns


def _thread_numbers(threads: dict[tuple[int, str, str], list[Operation]]) -> dict[tuple[str, str], int]:
    """One number for a group on all ranks, so that they stand in the same order everywhere."""
    groups = dict.fromkeys((backend, group) for _, backend, group in threads)
    return {group: number * _LANES for number, group in enumerate(groups, start=1)}


def _apart(slices: Sequence[Event], thread: int) -> int:
    """Set the thread of each so that none overlaps another; how many threads that takes."""
    ends: list[float] = []
    for one in slices:
        lane = next((lane for lane, end in enumerate(ends) if end <= one["ts"]), len(ends))
        lane = min(lane, _LANES - 1)
        if lane == len(ends):
            ends.append(0.0)
        ends[lane] = one["ts"] + one["dur"]
        one["tid"] = thread + lane
    return len(ends)


def _metadata(name: str, rank: int, thread: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": args}


def _slices(operations: list[Operation], rank: int, first: int, last: int) -> Iterator[Event]:
    following = [one.created_ns for one in operations[1:]]
    for operation, then in zip(operations, [*following, last], strict=True):
        begin = operation.created_ns
        if operation.completed_ns is not None:
            end, how = operation.completed_ns, "completed"
        elif not is_done(operation):
            end, how = last, "open"
        else:
            end, how = then, "next"
        args: Event = {
            "group": operation.group,
            "sequence": operation.sequence,
            "op_id": operation.op_id,
            "state": operation.state,
            "retired": operation.is_retired,
            "input_sizes": [list(shape) for shape in operation.input_sizes],
            "output_sizes": [list(shape) for shape in operation.output_sizes],
            "dtypes": list(dict.fromkeys((*operation.input_dtypes, *operation.output_dtypes))),
            "end": how,
        }
        if operation.started_ns is not None:
            args["started_after_us"] = (operation.started_ns - begin) / 1e3
        if operation.frames:
            args["frames"] = [str(frame) for frame in operation.frames]
        yield {
            "ph": "X",
            "name": f"{operation.collective} {operation.sequence}",
            "cat": operation.backend,
            "pid": rank,
            "tid": 0,
            "ts": (begin - first) / 1e3,
            "dur": max(0, end - begin) / 1e3,
            "args": args,
        }


def _instants(
    findings: Iterable[Finding],
    threads: dict[tuple[int, str, str], list[Operation]],
    numbers: dict[tuple[str, str], int],
    first: int,
    last: int,
) -> Iterator[Event]:
    """At the operation on ranks that have issued it, and at the end on those that have not."""
    ranks = {rank for rank, _, _ in threads}
    for finding in findings:
        told = {*finding.mismatched_ranks, *finding.missing_ranks, *finding.arrived_ranks} & ranks
        for (backend, group), thread in numbers.items():
            for rank in sorted(told) if group == finding.group else ():
                operations = threads.get((rank, backend, group), [])
                issued = (one.created_ns for one in operations if one.sequence == finding.sequence)
                yield {
                    "ph": "i",
                    "s": "t",
                    "name": f"{finding.kind}: {_role(finding, rank)}",
                    "cat": "finding",
                    "pid": rank,
                    "tid": thread,
                    "ts": (next(issued, last) - first) / 1e3,
                    "args": {"why": finding.why, "where": finding.where, "causes": finding.causes},
                }


def _role(finding: Finding, rank: int) -> str:
    if rank in finding.mismatched_ranks:
        return "issued something else"
    return "never issued it" if rank in finding.missing_ranks else "issued it"
