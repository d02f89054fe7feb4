"""A recorder's entries as operations, by columns: a job leaves millions of them.

Entries come from pickles whose parts may be shared, and may contain themselves. Nothing here follows them
deeper than an entry goes, and whoever calls holds the number of parts against the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import Any

from ncclbench.flight.model import Frame, Operation
from ncclbench.flight.pool import MOST_NUMBER, OddEntry, Pool, made_operations

# Of a call stack, the innermost; recursion makes them endless.
MOST_FRAMES = 64
# Each takes a hundred times as long as one that is as it should be.
MOST_ODD = 10_000

_KEYS = (
    "record_id",
    "process_group",
    "collective_seq_id",
    "p2p_seq_id",
    "op_id",
    "profiling_name",
    "is_p2p",
    "input_sizes",
    "output_sizes",
    "input_dtypes",
    "output_dtypes",
    "state",
    "retired",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "timeout_ms",
    "pg_id",
)
_LISTS = [
    _KEYS.index(key)
    for key in ("process_group", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
]
_SIZES = _KEYS.index("input_sizes"), _KEYS.index("output_sizes")
_ROW = itemgetter(*_KEYS)
_ROW_WITH_FRAMES = itemgetter(*_KEYS, "frames")
# Values of an entry besides its lists, about.
_PARTS = 8
_POINT_TO_POINT = ("send", "recv")

Row = tuple[Any, ...]


def read_entries(
    entries: Sequence[Any], most_parts: int, pool: Pool
) -> tuple[list[Operation], dict[str, str], list[str]]:
    """The operations in the order of their numbers, the groups' names by ``pg_id``, and what was left out.

    Args:
        entries: as they were decoded.
        most_parts: as many as the file can hold; more are shared ones, which would explode.
        pool: shared by the dumps of a job.

    Raises:
        OddEntry: more parts than that, or nearly nothing that a recorder writes.
    """
    problems: list[str] = []
    tables = [entry for entry in entries if type(entry) is dict]
    if len(tables) < len(entries):
        problems.append(f"{len(entries) - len(tables)} of {len(entries)} entries are no tables")
    has_frames = any("frames" in table for table in tables)
    try:
        rows: list[Row] = list(map(_ROW_WITH_FRAMES if has_frames else _ROW, tables))
    except KeyError:
        rows = [_filled(entry) for entry in tables]
    _check_parts(rows, most_parts)
    stacks = _Stacks(pool)
    try:
        operations = _convert(rows, pool, stacks)
    except _ODD:
        operations, taken, reasons = [], [], []
        for row in rows:
            try:
                operations += _convert([row], pool, stacks)
                taken.append(row)
            except _ODD as error:
                reasons.append(_words_of(error))
                if len(reasons) > MOST_ODD:
                    raise OddEntry(f"has more than {MOST_ODD:,} odd entries: {reasons[0]}") from None
        if reasons:
            problems.append(f"{len(reasons)} of {len(rows)} entries were left out: {reasons[0]}")
        rows = taken
    ordered = _ordered(operations, problems)
    return ordered, _names_by_id(rows, pool), problems


def _filled(entry: dict[Any, Any]) -> Row:
    """The row of an entry of an older version, which lacks some keys."""
    name = entry.get("profiling_name")
    operation = name.rpartition(":")[2] if isinstance(name, str) else ""
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    number_of_group = entry.get("pg_id")
    is_told = type(number_of_group) is int and 0 <= number_of_group < MOST_NUMBER
    group = entry.get("process_group", (entry.get("pg_name", str(number_of_group) if is_told else ""), ""))
    state = entry.get("state", "scheduled")
    defaults = {
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": entry.get("record_id"),
        "is_p2p": operation.startswith(_POINT_TO_POINT),
        "process_group": group,
        "state": state,
        "retired": entry.get("retired", state == "completed"),
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "timeout_ms": None,
        "pg_id": None,
        "input_dtypes": [],
        "output_dtypes": [],
        "input_sizes": [],
        "output_sizes": [],
        "frames": [],
    }
    return tuple(entry.get(key, defaults.get(key)) for key in (*_KEYS, "frames"))


def _check_parts(rows: Sequence[Row], most: int) -> None:
    """Refuse what has more parts, each counted as often as it is met, than the file can hold.

    Raises:
        OddEntry: it has.
    """
    if not rows:
        return
    nparts = _PARTS * len(rows)
    for column in (*_LISTS, *range(len(_KEYS), len(rows[0]))):
        values = [row[column] for row in rows]
        nparts += _lengths(values)
        if nparts <= most and column in _SIZES:
            nparts += _lengths(list(chain.from_iterable(value for value in values if type(value) in _SIZED)))
        if nparts > most:
            raise OddEntry("its parts refer to one another so often that they explode when read")


# Whatever tuples could be made of, though only lists should be there.
_SIZED = {list, tuple, str, bytes, dict, set, frozenset}


def _lengths(values: Sequence[Any]) -> int:
    if set(map(type, values)) <= _SIZED:
        return sum(map(len, values))
    return sum(len(value) for value in values if type(value) in _SIZED)


def _convert(rows: Sequence[Row], pool: Pool, stacks: _Stacks) -> list[Operation]:
    """Operations of rows, all or none.

    Raises:
        OddEntry, TypeError, KeyError: a value is not what it should be.
    """
    if not rows:
        return []
    columns = list(zip(*rows, strict=True))
    records, groups, collective, p2p, op_ids, names, is_p2p, in_sizes, out_sizes = columns[:9]
    in_dtypes, out_dtypes, states, retired, created, started, completed, timeouts = columns[9:17]
    _only(bool, is_p2p, "is_p2p")
    _only(bool, retired, "retired")
    numbers = pool.numbers.__getitem__
    pairs = [pool.groups[tuple(group)] for group in groups]
    said = list(map(pool.names.__getitem__, names))
    sequences = [
        pair if is_pair else all_ for pair, is_pair, all_ in zip(p2p, is_p2p, collective, strict=True)
    ]
    frames = stacks.read(columns[len(_KEYS)]) if len(columns) > len(_KEYS) else repeat(())
    return made_operations(
        map(numbers, records),
        [name for name, _ in pairs],
        [words for _, words in pairs],
        map(numbers, sequences),
        map(numbers, op_ids),
        [backend for backend, _ in said],
        [collective for _, collective in said],
        is_p2p,
        [pool.sizes[tuple(map(tuple, sizes))] for sizes in in_sizes],
        [pool.sizes[tuple(map(tuple, sizes))] for sizes in out_sizes],
        [pool.dtypes[tuple(dtypes)] for dtypes in in_dtypes],
        [pool.dtypes[tuple(dtypes)] for dtypes in out_dtypes],
        map(_STATES.__getitem__, states),
        retired,
        _times(created, "time_created_ns"),
        _times([time or None for time in started], "time_discovered_started_ns", is_optional=True),
        _times([time or None for time in completed], "time_discovered_completed_ns", is_optional=True),
        [timeout if timeout is None else numbers(timeout) for timeout in timeouts],
        frames,
    )


_STATES: dict[Any, Any] = {state: state for state in ("scheduled", "started", "completed")}
_ODD = (OddEntry, TypeError, KeyError, ValueError, AttributeError)


def _words_of(error: Exception) -> str:
    if isinstance(error, OddEntry):
        return str(error)
    if isinstance(error, KeyError):
        return f"a state of {str(error)[:40]}"
    return "a value is of another type than recorders write"


def _only(kind: type[Any], column: Iterable[Any], what: str) -> None:
    if not set(map(type, column)) <= {kind}:
        raise OddEntry(f"no {what}")


def _times(column: Sequence[Any], what: str, is_optional: bool = False) -> Sequence[Any]:
    """Nanoseconds of the wall clock."""
    kinds = set(map(type, column))
    if not kinds <= ({int, type(None)} if is_optional else {int}):
        raise OddEntry(f"no {what}")
    told = [time for time in column if time is not None] if is_optional else column
    if told and not 0 <= min(told) <= max(told) < MOST_NUMBER:
        raise OddEntry(f"a {what} that no clock shows")
    return column


class _Stacks:
    """Frames of the entries of one dump, which share their tables: each is known by its place in memory."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[tuple[int, ...], tuple[Frame, ...]] = {}
        self._frames: dict[int, Frame] = {}

    def read(self, column: Sequence[Any]) -> Iterable[tuple[Frame, ...]]:
        """The frames of each entry, the innermost first."""
        _only(list, column, "list of frames")
        keys = [tuple(map(id, stack)) for stack in column]
        for key, stack in zip(keys, column, strict=True):
            if key not in self._known:
                self._known[key] = self._pool.stack([self._frame(frame) for frame in stack[:MOST_FRAMES]])
        return map(self._known.__getitem__, keys)

    def _frame(self, table: Any) -> Frame:
        made = self._frames.get(id(table))
        if made is None:
            if type(table) is not dict or type(line := table.get("line")) is not int or line < 0:
                raise OddEntry("a frame without name, filename and line")
            words = self._pool.words
            name, file = table.get("name", ""), table.get("filename", "")
            made = self._pool.frame(words[name], words[file], min(line, MOST_NUMBER))
            self._frames[id(table)] = made
        return made


def _ordered(operations: list[Operation], problems: list[str]) -> list[Operation]:
    """By number, each number once."""
    records = [one.record for one in operations]
    if all(earlier < later for earlier, later in pairwise(records)):
        return operations
    known: dict[int, Operation] = {}
    for one in operations:
        known.setdefault(one.record, one)
    ndoubles = len(operations) - len(known)
    if ndoubles:
        problems.append(f"{ndoubles} of {len(operations)} entries have the number of another")
    return [known[record] for record in sorted(known)]


def _names_by_id(rows: Sequence[Row], pool: Pool) -> dict[str, str]:
    """Names of groups by the number that ``pg_status`` calls them."""
    found: dict[str, str] = {}
    place = _KEYS.index("pg_id")
    for number, group in {(row[place], tuple(row[1])) for row in rows if type(row[place]) is int}:
        if 0 <= number < MOST_NUMBER:
            found[str(number)] = pool.groups[group][0]
    return found
