"""Many files read by several processes, on the cores that are there.

Each process reads every n-th file and writes what it found to a pipe of its own, as ``marshal`` has it: by
columns, which is many times faster than one operation after the other. These pipes hold nothing but what this
code wrote; no byte of a dump is unmarshalled. A process ends with its pipe, so none outlives its reader.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from ncclbench.flight.model import Dump, GroupStatus, Operation, Refused
from ncclbench.flight.pool import Pool, made_operations

File = TypeVar("File")
Found = tuple[list[Dump], list[Refused]]

# A process costs some ten milliseconds, a dump about twenty.
FILES_PER_PROCESS = 32
MOST_PROCESSES = 16

_LENGTH = struct.Struct("<Q")
_COLUMNS = [one.name for one in fields(Operation) if one.name != "frames"]
_ROW = attrgetter(*_COLUMNS)
_NUMBERED = [_COLUMNS.index(name) for name in ("record", "sequence", "op_id")]


def nprocesses(nfiles: int) -> int:
    """How many processes so many files are worth; 1: none besides this one."""
    ncores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(ncores, nfiles // FILES_PER_PROCESS, MOST_PROCESSES))


def read_apart(
    files: Sequence[File], read_one: Callable[[File], Found], count: int, pool: Pool
) -> Iterator[Found]:
    """What is in each file, in their order.

    Args:
        files: what ``read_one`` takes.
        read_one: reads one; it raises nothing.
        count: processes.
        pool: what dumps share in this process.
    """
    if count < 2:
        yield from map(read_one, files)
        return
    processes: list[tuple[int, int]] = []
    try:
        try:
            for number in range(count):
                others = [pipe for _, pipe in processes]
                processes.append(_start(files[number::count], read_one, others))
        except OSError:  # the system allows no more
            yield from map(read_one, files)
            return
        for index, file in enumerate(files):
            content = _read_block(processes[index % count][1])
            # A process that was killed leaves its files to this one.
            yield read_one(file) if content is None else _unpacked(content, pool)
    finally:
        for process, pipe in processes:
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _start(
    files: Sequence[File], read_one: Callable[[File], Found], others: Sequence[int]
) -> tuple[int, int]:
    """A process that reads these files: its number, and the pipe that it writes to."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # Newer releases of Python warn where there are threads; the process takes no lock of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if not process:
        _run(files, read_one, writing, [reading, *others])
    os.close(writing)
    return process, reading


def _run(
    files: Sequence[File], read_one: Callable[[File], Found], pipe: int, others: Sequence[int]
) -> NoReturn:
    """In the new process: read all, and end without a word, whatever happens."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            os.close(other)
        for file in files:
            _write_block(pipe, _packed(*read_one(file)))
        status = 0
    finally:
        os._exit(status)


def _packed(dumps: Sequence[Dump], refused: Sequence[Refused]) -> bytes:
    return marshal.dumps(
        ([_packed_dump(dump) for dump in dumps], [(one.source, one.reason) for one in refused])
    )


def _packed_dump(dump: Dump) -> tuple[Any, ...]:
    stacks = {id(one.frames): one.frames for one in dump.operations}
    places = {key: place for place, key in enumerate(stacks)}
    frames = {frame: None for stack in stacks.values() for frame in stack}
    frame_places = {id(frame): place for place, frame in enumerate(frames)}
    return (
        (dump.rank, dump.source, dump.version, dump.is_wrapped, dump.taken_ns, dump.written_ns),
        [(name, _status(status)) for name, status in dump.groups.items()],
        list(zip(*map(_ROW, dump.operations), strict=True)),
        [(frame.function, frame.file, frame.line) for frame in frames],
        [[frame_places[id(frame)] for frame in stack] for stack in stacks.values()],
        [places[id(one.frames)] for one in dump.operations],
    )


_status = attrgetter("words", "ranks", "last_enqueued", "last_started", "last_completed")


def _unpacked(content: bytes, pool: Pool) -> Found:
    dumps, refused = marshal.loads(content)  # noqa: S302
    return [_unpacked_dump(pool, *parts) for parts in dumps], [Refused(*one) for one in refused]


def _unpacked_dump(
    pool: Pool,
    head: tuple[Any, ...],
    groups: Sequence[tuple[str, tuple[Any, ...]]],
    columns: list[Sequence[Any]],
    frames: Sequence[tuple[str, str, int]],
    stacks: Sequence[Sequence[int]],
    places: Sequence[int],
) -> Dump:
    rank, source, version, is_wrapped, taken_ns, written_ns = head
    made = [pool.frame(*frame) for frame in frames]
    shared = [pool.stack([made[place] for place in stack]) for stack in stacks]
    for index in _NUMBERED if columns else ():
        columns[index] = list(map(pool.numbers.__getitem__, columns[index]))
    return Dump(
        rank=rank,
        source=source,
        version=version,
        groups={name: GroupStatus(*status) for name, status in groups},
        operations=tuple(made_operations(*columns, map(shared.__getitem__, places)) if columns else ()),
        is_wrapped=is_wrapped,
        taken_ns=taken_ns,
        written_ns=written_ns,
    )


def _write_block(pipe: int, content: bytes) -> None:
    view = memoryview(_LENGTH.pack(len(content)) + content)
    while view:
        view = view[os.write(pipe, view) :]


def _read_block(pipe: int) -> bytes | None:
    """What was written as one; None where the pipe ends before its end."""
    head = _read(pipe, _LENGTH.size)
    return None if head is None else _read(pipe, _LENGTH.unpack(head)[0])


def _read(pipe: int, nbytes: int) -> bytes | None:
    parts: list[bytes] = []
    while nbytes:
        part = os.read(pipe, min(nbytes, 1 << 20))
        if not part:
            return None
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)
