"""Files to dumps: what recorders wrote, of any version and either format, without running anything of it."""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ncclbench.errors import RequestError
from ncclbench.flight.apart import Found, nprocesses, read_apart
from ncclbench.flight.doubles import chosen
from ncclbench.flight.entries import read_entries
from ncclbench.flight.files import find_files, read_file, unpacked
from ncclbench.flight.groups import MOST_RANKS, Members, read_groups
from ncclbench.flight.jsons import documents_in, read_json
from ncclbench.flight.model import Dump, Evidence, Operation, Refused
from ncclbench.flight.naming import rank_of
from ncclbench.flight.pool import OddEntry, Pool, cleaned
from ncclbench.flight.restricted import PickleRefused, read_pickle

# Some 400 bytes each.
MOST_OPERATIONS = 10_000_000
MOST_PATH = 4096
# Refusals in one folder for one reason, told one by one.
_TOLD = 3
_NAMES_TOLD = 3

# Shared references in the pickle of another writer than torch.
_PARTS_PER_BYTE = 8
_FREE_PARTS = 10_000
# The shortest entry has some hundred bytes.
_BYTES_PER_ENTRY = 30

_WRONG_RECORDER = (
    "holds no operations and knows no process group: this recorder was asked, and another backend's recorded"
)


def read(paths: Sequence[Path], hosts: Mapping[int, str] | None = None) -> Evidence:
    """What is in files and folders.

    Of one recorder of one rank the fuller dump of the newest job is taken; what was not is in ``refused``.

    Args:
        paths: files, packed with gzip or not, or folders of them.
        hosts: name of its host, by rank.

    Raises:
        RequestError: there is no dump in any of them.
    """
    files, unfound = find_files(paths)
    refused = [replace(one, source=cleaned(one.source, MOST_PATH)) for one in unfound]
    reader = _Reader()
    dumps: list[Dump] = []
    noperations = 0
    with _no_collections(), closing(reader.read_files(files)) as everything:
        for count, (found, others) in enumerate(everything, 1):
            dumps += found
            refused += others
            noperations += sum(len(dump.operations) for dump in found)
            if noperations > MOST_OPERATIONS and count < len(files):
                reason = f"and {len(files) - count} more were not read: {MOST_OPERATIONS:,} operations were"
                refused.append(Refused(cleaned(str(files[count][0]), MOST_PATH), reason))
                break
        kept, doubles = chosen(dumps)
    refused = _summed(_needed(refused, kept) + doubles)
    if not kept:
        raise RequestError(_nothing(paths, refused))
    return Evidence(tuple(kept), tuple(refused), _nranks(kept), dict(hosts or {}))


def read_bytes(content: bytes, source: str) -> tuple[list[Dump], list[Refused]]:
    """What is in one file's content, of either format, packed or not.

    Args:
        content: all of it.
        source: the name of the file; it tells the rank where the dump does not.
    """
    return _Reader().read(content, source)


class _Reader:
    """Reads one file after the other; what they share is in memory once."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._members = Members()

    def read_files(self, files: Sequence[tuple[Path, bool]]) -> Generator[Found, None, None]:
        """What is in each file, in their order; by several processes where there are many."""
        yield from read_apart(files, self._read_file, nprocesses(len(files)), self._pool)

    def _read_file(self, file: tuple[Path, bool]) -> Found:
        path, is_named = file
        source = cleaned(str(path), MOST_PATH)
        try:
            content, written_ns = read_file(path, is_named)
        except ValueError as error:
            return [], [Refused(source, str(error))]
        return self.read(content, source, written_ns)

    def read(self, content: bytes, source: str, written_ns: int | None = None) -> Found:
        try:
            content = unpacked(content)
            documents = _documents(content)
        except ValueError as error:
            return [], [Refused(source, str(error))]
        dumps: list[Dump] = []
        refused: list[Refused] = []
        for backend, document in documents:
            place = f"{source} ({cleaned(backend)})" if backend else source
            try:
                dump, problems = self._dump(document, len(content), source, place)
            except OddEntry as error:
                refused.append(Refused(place, str(error)))
                continue
            if dump is not None:
                dumps.append(replace(dump, written_ns=written_ns))
            refused += [Refused(place, problem) for problem in problems]
        return dumps, refused

    def _dump(
        self, document: dict[Any, Any], nbytes: int, source: str, place: str
    ) -> tuple[Dump | None, list[str]]:
        entries = document.get("entries", [])
        if not entries and not document.get("pg_config"):
            return None, [_WRONG_RECORDER]
        if len(entries) > nbytes // _BYTES_PER_ENTRY + 1:
            raise OddEntry("has more entries than its bytes can mean")
        most_parts = _PARTS_PER_BYTE * nbytes + _FREE_PARTS
        operations, name_of, problems = read_entries(entries, most_parts, self._pool)
        if entries and not operations:
            return None, problems
        version = document.get("version")
        taken = document.get("taken_ns")
        return (
            Dump(
                rank=_rank(document.get("rank"), source),
                source=place,
                version=cleaned(version) if isinstance(version, str) else "unknown",
                groups=read_groups(document, operations, name_of, self._pool, self._members),
                operations=tuple(operations),
                is_wrapped=_is_wrapped(operations),
                taken_ns=taken if type(taken) is int and 0 < taken < 1 << 63 else None,
            ),
            problems,
        )


def _documents(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The recorders' documents in a file.

    Raises:
        ValueError: there are none.
    """
    text = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return read_json(text)
    try:
        documents = documents_in(read_pickle(content))
    except PickleRefused as error:
        if content[:1] != b"\x80" and not error.is_foreign:
            raise ValueError("is neither JSON nor a pickle") from None
        raise ValueError(f"is a pickle that was not taken: {error}") from None
    if not documents:
        raise ValueError("is a pickle, but not of a flight recorder")
    return documents


def _rank(said: Any, source: str) -> int | None:
    if type(said) is int and 0 <= said < MOST_RANKS:
        return said
    return rank_of(source)


def _is_wrapped(operations: Sequence[Operation]) -> bool:
    """Whether older operations are unknown: overwritten, or dropped when the recorder was reset."""
    if operations and operations[0].record > 0:
        return True
    first: dict[str, int] = {}
    for one in operations:
        if not one.is_p2p:
            first.setdefault(one.group, one.sequence)
    return any(sequence > 1 for sequence in first.values())


def _needed(refused: Sequence[Refused], dumps: Sequence[Dump]) -> list[Refused]:
    """Without recorders that hold nothing of ranks of which another recorder's dump is there."""
    known = {dump.rank for dump in dumps}

    def is_known(source: str) -> bool:
        return rank_of(source.rpartition(" (")[0] if source.endswith(")") else source) in known

    return [one for one in refused if one.reason != _WRONG_RECORDER or not is_known(one.source)]


def _summed(refused: Sequence[Refused]) -> list[Refused]:
    """Many files of one folder that were refused for one reason, but for numbers and names, in one line."""
    alike: dict[tuple[Path, str], list[Refused]] = defaultdict(list)
    for one in refused:
        reason = re.sub(r"\d+|(?<=has a fuller dump: ).*|(?<=or a later start: ).*", "", one.reason)
        alike[Path(one.source).parent, reason].append(one)
    told: list[Refused] = []
    for (folder, _), many in alike.items():
        if len(many) <= _TOLD:
            told += many
            continue
        names = ", ".join(Path(one.source).name for one in many[:_NAMES_TOLD])
        names = f"{names} and {len(many) - _NAMES_TOLD} more"
        told.append(Refused(str(folder), f"{len(many)} files ({names}), the first: {many[0].reason}"))
    return told


def _nranks(dumps: Sequence[Dump]) -> int | None:
    """The least world that all ranks fit in that are named anywhere."""
    named = [dump.rank for dump in dumps if dump.rank is not None]
    listed = {status.ranks for dump in dumps for status in dump.groups.values() if status.ranks}
    return max((*named, *map(max, listed)), default=-1) + 1 or None


def _nothing(paths: Sequence[Path], refused: Sequence[Refused]) -> str:
    where = cleaned(str(paths[0]), MOST_PATH) if len(paths) == 1 else f"{len(paths)} files and folders"
    if not refused:
        return f"{where}: there is no file in it: name dumps of flight recorders, or folders of them"
    first = refused[0]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"{first.source} {first.reason}{more}: there is no flight recorder's dump in {where}"


@contextmanager
def _no_collections() -> Iterator[None]:
    """Millions of objects are made, none in a circle; looking for circles would take as long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
