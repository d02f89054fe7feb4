"""What rccl-tests writes with ``-x FILE -Z json`` or ``-Z csv``: a record for each half of each size.

Read from the writer's source, of October 2024 to 2026. JSON was a record per line and is a list since 2025.
Strings are quoted in CSV, too; the header of CSV lacked ``nodes`` until 2026, and its records did not.
``ranks`` are processes: there are ``gpusPerRank`` ranks in each.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ncclbench.errors import RequestError
from ncclbench.importing.json_parts import Cell, Parts, decode
from ncclbench.importing.lines import lines
from ncclbench.importing.model import MOST_ROWS, REJECTED, DeviceLine, Importer, Reading, Section
from ncclbench.importing.nccl_draft import Draft
from ncclbench.importing.nccl_layout import parse_header
from ncclbench.importing.nccl_section import Notes, section_of
from ncclbench.importing.nccl_words import OPS
from ncclbench.importing.source import decoded, read_bytes

# A whole document parsed at once is a list that something else has written again.
_MOST_BYTES = 64 << 20
_MOST_RANKS = 1 << 17

_OPS = {name.replace("_", ""): op for name, op in OPS.items()}
# Lower-case names in records, of all versions and both formats, to ours.
_NAMES = {
    "numcycle": "cycle",
    "name": "name",
    "collective": "name",
    "nodes": "nodes",
    "ranks": "ranks",
    "rankspernode": "ranks per node",
    "gpusperrank": "gpus",
    "gpus": "gpus",
    "size": "size",
    "type": "type",
    "redop": "redop",
    "inplace": "in place",
    "time": "time",
    "algbw": "algbw",
    "busbw": "busbw",
    "wrong": "wrong",
    "#wrong": "wrong",
}
_NEEDED = {"name", "size", "in place", "time", "algbw", "busbw"}
# The same as its CSV has them.
CSV_NAMES = ("collective", "size", "inPlace", "time", "algbw", "busbw")
_TABLE = ("size", "type", "redop", "time", "algbw", "busbw", "wrong")
_HEADER = re.compile(r"^\W*(?:numCycle\W+)?collective\W[^\n]*,\s*algbw,\s*busbw", re.MULTILINE)
_OPENING = re.compile(rb"\s*\[")

Record = Mapping[str, str]


class _Group(NamedTuple):
    """Records that are judged together."""

    name: str
    nranks: int | None
    in_place: bool


class _Torn(Exception):
    """Why a line is no record."""


def read_json(file: Path, op: str | None) -> Reading:
    """The records of a file, one a line or in a list.

    Raises:
        RequestError: the file cannot be read, or holds nothing of the kind.
    """
    notes = Notes()
    reading = Reading(file, RCCL_JSON.name)
    found = list(_taken(_json_lines(file), reading, notes))
    if not found:
        reading.rows_rejected, notes = 0, Notes()
        found = list(_taken(_json_document(file), reading, notes))
    return _read(reading, found, op, notes)


def read_csv(file: Path, op: str | None) -> Reading:
    """The records of a file under their header.

    Raises:
        RequestError: the file cannot be read.
    """
    notes = Notes()
    reading = Reading(file, RCCL_CSV.name)
    return _read(reading, list(_taken(_csv_lines(file, notes), reading, notes)), op, notes)


# Lines to records.


def _taken(
    entries: Iterable[tuple[int, Record | _Torn]], reading: Reading, notes: Notes
) -> Iterator[tuple[int, Record]]:
    """The records among the first MOST_ROWS entries; of others it is noted why they are none."""
    for number, (line, entry) in enumerate(entries):
        if number == MOST_ROWS:
            notes.add(line, f"more than {MOST_ROWS:,} rows: those from here on are left out")
            return
        if isinstance(entry, _Torn):
            reading.rows_rejected += 1
            notes.add(line, f"{REJECTED}{entry}", "rows that hold no numbers or not all")
        else:
            yield line, entry


def _json_lines(file: Path) -> Iterator[tuple[int, Record | _Torn]]:
    for number, line in lines(file):
        text = line.strip().strip("[],").strip()
        if not text.startswith("{"):
            continue
        try:
            value = decode(text.encode(), dict[str, Cell])
        except ValueError:
            yield number, _Torn("no whole record: cut or torn")
            continue
        yield number, _record(value)


def _json_document(file: Path) -> Iterator[tuple[int, Record | _Torn]]:
    """The records of one list that something else has written again."""
    content = read_bytes(file, _MOST_BYTES)
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        content = decoded(content).encode()
    opening = _OPENING.match(content)
    if opening is None:
        raise RequestError(f"{file} is no JSON of rccl-tests: give the file as it was written")
    records = Parts(content, opening.end())
    for number, _ in enumerate(records, start=1):
        value = records.value()
        if value is None:
            yield number, _Torn("no whole record: cut or torn")
            return
        try:
            yield number, _record(decode(value, dict[str, Cell]))
        except ValueError:
            yield number, _Torn("no record")


def _csv_lines(file: Path, notes: Notes) -> Iterator[tuple[int, Record | _Torn]]:
    header: list[str] = []
    for number, line in lines(file):
        try:
            cells = next(csv.reader([line], skipinitialspace=True, strict=True), [])
        except csv.Error:
            cells = line.split(",")
        names = [_NAMES.get(cell.strip().lower(), cell.strip().lower()) for cell in cells]
        if set(names) >= _NEEDED:
            header = names
            continue
        if not header or len(cells) < 3:
            continue
        if len(cells) == len(header) + 1 and "ranks" in header and "nodes" not in header:
            header.insert(header.index("ranks"), "nodes")
            notes.add(
                number, "the header lacks `nodes`, as rccl-tests wrote it until 2026: read as if it had it"
            )
        if len(cells) != len(header):
            yield number, _Torn(f"{len(cells)} columns under a header of {len(header)}: cut or torn")
        else:
            yield number, dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _record(value: Mapping[str, Cell]) -> Record | _Torn:
    """A record of JSON under our names, as text."""
    record = {_NAMES.get(str(name).lower(), str(name)): _text(entry) for name, entry in value.items()}
    missing = _NEEDED - set(record)
    return _Torn(f"it lacks {', '.join(sorted(missing))}") if missing else record


def _text(value: Cell) -> str:
    """As rccl-tests writes it: six decimals of a number that has any."""
    return f"{value:.6f}" if isinstance(value, float) else str(value)[:100]


# Records to sections.


def _read(reading: Reading, records: list[tuple[int, Record]], op: str | None, notes: Notes) -> Reading:
    """Judge the records of each collective; out of place and in place are judged apart, and told together."""
    groups: dict[_Group, Draft] = {}
    for line, record in records:
        group = _group(record)
        if isinstance(group, _Torn):
            reading.rows_rejected += 1
            notes.add(line, f"{REJECTED}{group}", "rows that hold no numbers or not all")
            continue
        if group not in groups:
            groups[group] = _draft(group, line)
        groups[group].rows.append((line, [record.get(name, "N/A") for name in _TABLE]))
    sections: dict[tuple[str, int | None], Section] = {}
    for group, draft in groups.items():
        section, rejected = section_of(draft, op, reading.file, notes)
        reading.rows_rejected += rejected
        section.devices, section.missing = [], [] if section.rows else ["rows"]
        first = sections.setdefault((group.name, group.nranks), section)
        if first is not section:
            first.rows = sorted([*first.rows, *section.rows], key=lambda row: row.line)
            first.row_lines += section.row_lines
            first.missing = [] if first.rows else first.missing
    reading.sections = list(sections.values())
    reading.problems = notes.finish()
    return reading


def _group(record: Record) -> _Group | _Torn:
    in_place = {"0": False, "1": True, "false": False, "true": True}.get(record["in place"].lower())
    if in_place is None:
        return _Torn(f"{record['in place'][:24]!r} is neither in place nor out of place")
    name = re.sub(r"[^a-z]", "", record["name"].lower())
    counts = [record[key] for key in ("ranks", "gpus") if key in record]
    known = [int(count) for count in counts if re.fullmatch(r"\d{1,6}", count, re.ASCII)]
    nranks = math.prod(known) if known and len(known) == len(counts) else None
    return _Group(name, nranks if nranks and nranks <= _MOST_RANKS else None, in_place)


def _draft(group: _Group, line: int) -> Draft:
    columns = parse_header(_TABLE, [group.in_place])
    assert columns is not None
    nranks = group.nranks or 0
    return Draft(
        line,
        tool="rccl-tests",
        banner_op=_OPS.get(group.name),
        devices=[DeviceLine(rank, None, None, None, None) for rank in range(nranks)],
        groups=Counter({0: nranks} if nranks else {}),
        columns=columns,
    )


def recognises_json(text: str, name: str) -> int:
    """How sure it is, 0 to 100."""
    if text.lstrip()[:1] not in ("{", "["):
        return 0
    return 97 if '"algBw"' in text and '"inPlace"' in text else 0


def recognises_csv(text: str, name: str) -> int:
    """How sure it is, 0 to 100."""
    return 97 if _HEADER.search(text) else 0


RCCL_JSON = Importer(
    "rccl-tests-json",
    "what rccl-tests writes with -x FILE -Z json",
    recognises_json,
    read_json,
)
RCCL_CSV = Importer(
    "rccl-tests-csv",
    "what rccl-tests writes with -x FILE -Z csv",
    recognises_csv,
    read_csv,
)
