"""The JSON of nccl-tests (``-J FILE``), versions 1 to 4, also of a test that was killed while it wrote.

Read from the writer's source. What it does that JSON does not: infinity is a bare ``inf``; a killed test
leaves the document open; truth values and roots are strings; the collective stands in nothing but the
program's name; of each process only the first device is listed. ``env`` is the whole environment, of which
few variables are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ncclbench.environment.variables import recorded_variables
from ncclbench.importing.json_parts import Cell, decode
from ncclbench.importing.model import MOST_ROWS, REJECTED, DeviceLine, Importer, Reading, Section
from ncclbench.importing.nccl_draft import Draft
from ncclbench.importing.nccl_json_document import Device, Document, Half, PerIteration, Result, documents
from ncclbench.importing.nccl_layout import Columns, parse_header
from ncclbench.importing.nccl_printed import exact
from ncclbench.importing.nccl_section import Notes, section_of
from ncclbench.importing.nccl_words import over_ranks, program_op, shown, version_of_code
from ncclbench.importing.source import decoded, read_bytes
from ncclbench.store.printed import Printed

_VERSIONS = ("1", "2", "3", "4")
_HALVES = (("out_of_place", False), ("in_place", True))
_PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")
_MOST_RANKS = 1 << 17
_MOST_PER_PROCESS = 1024

_SETTINGS = {
    "nthreads": "nThread",
    "ngpus": "nGpus",
    "minimum_bytes": "minBytes",
    "maximum_bytes": "maxBytes",
    "step_factor": "step",
    "step_bytes": "step",
    "warmup_iters": "warmup iters",
    "iterations": "iters",
    "aggregated_iterations": "agg iters",
    "validation": "validation",
    "graph": "graph",
    "blocking_collectives": "blocking",
    "per_iter_timing": "per-iteration timing",
    "per_iter_skip": "per-iteration skip",
    "parallel_init": "parallel init",
}


def read(file: Path, op: str | None) -> Reading:
    """The invocations in a file, one as a rule.

    Raises:
        RequestError: the file cannot be read, is too large, or is no such JSON.
    """
    reading = Reading(file, NCCL_JSON.name)
    notes = Notes()
    content = read_bytes(file)
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        content = decoded(content).encode()
    rows_left = MOST_ROWS
    for document, line, is_whole in documents(content, file, notes):
        results = document.results or []
        if len(results) > rows_left:
            del results[rows_left:]
            notes.add(line, f"more than {MOST_ROWS:,} rows: those from here on are left out")
        rows_left -= len(results)
        section, rejected = _section(document, line, op, file, notes)
        if not is_whole:
            section.missing.append("end")
        reading.sections.append(section)
        reading.rows_rejected += rejected
    reading.problems = notes.finish()
    return reading


# From a document to a section.


def _section(document: Document, line: int, op: str | None, file: Path, notes: Notes) -> tuple[Section, int]:
    draft, listed = _draft(document, line)
    if document.version is not None and str(document.version) not in _VERSIONS:
        told = str(document.version)[:20]
        notes.add(line, f"version {told} of this JSON is not known: read like version {_VERSIONS[-1]}")
    rejected = _fill(draft, document.results or [], notes)
    section, more = section_of(draft, op, file, notes)
    section.devices = listed
    section.rows = _with_medians(section.rows, document.results or [])
    return section, rejected + more


def _draft(document: Document, line: int) -> tuple[Draft, list[DeviceLine]]:
    """All but the rows, and the devices that are listed; in the draft every rank has one."""
    config = {name: _setting(value) for name, value in document.config.items() if name in _SETTINGS}
    settings = {_SETTINGS[name]: str(value)[:100] for name, value in config.items() if value is not None}
    if document.version is not None:
        settings["JSON version"] = str(document.version)[:20]
    devices, groups = _devices(document.config.get("devices"))
    per_process = (_whole(config.get("nthreads")) or 1) * (_whole(config.get("ngpus")) or 1)
    per_process = min(per_process, _MOST_PER_PROCESS)
    every = [
        DeviceLine(device.rank + more, device.host, None, None, None)
        for device in devices
        for more in range(per_process)
    ]
    footer = document.average_bus_bandwidth
    average = footer.bandwidith if footer.bandwidth is None else footer.bandwidth
    failure = next((text for text in document.errors if isinstance(text, str) and text), None)
    code = _whole(document.nccl_version)
    draft = Draft(
        line,
        nccl=None if code is None else version_of_code(str(code)),
        banner_op=_op(document.args),
        settings=settings,
        environment=_variables(document.env),
        devices=every[:_MOST_RANKS],
        groups=Counter({group: count * per_process for group, count in groups.items()}),
        average=None if average is None else _text(average),
        average_line=line,
        out_of_bounds=_whole(document.out_of_bounds.count),
        blocking=str(config.get("blocking_collectives")).lower() == "true",
        concluded=document.end_time is not None,
        failure=None if failure is None else shown(failure[:4096])[:300],
    )
    if draft.banner_op is not None:
        draft.asked = {draft.banner_op: {over_ranks(" " + " ".join(map(str, document.args[1:])))}}
    return draft, devices


def _setting(value: msgspec.Raw) -> Cell:
    """A setting that is a number or a text; None for any other."""
    try:
        found: Cell = decode(bytes(value), Cell)
    except ValueError:
        return None
    return found


def _op(args: list[Cell]) -> str | None:
    """The collective in the name of the program."""
    return program_op(PurePosixPath(str(args[0])).name) if args else None


def _devices(entries: msgspec.Raw | None) -> tuple[list[DeviceLine], Counter[int]]:
    found: list[DeviceLine] = []
    groups: Counter[int] = Counter()
    try:
        devices: list[Device] = decode(bytes(entries or b"[]"), list[Device])
    except ValueError:
        return found, groups
    for entry in devices:
        rank = _whole(entry.rank)
        if rank is None or rank >= _MOST_RANKS or len(found) >= _MOST_RANKS:
            continue
        host, name, place = (
            str(text or "")[:255] for text in (entry.hostname, entry.device_info, entry.device_hex)
        )
        found.append(DeviceLine(rank, host or None, _whole(entry.device), place or None, name[:100] or None))
        groups[_whole(entry.group) or 0] += 1
    return found, groups


def _variables(entries: list[Cell]) -> dict[str, str]:
    """Of the whole environment, what matters for communication."""
    pairs = (entry.partition("=") for entry in entries if isinstance(entry, str))
    found = recorded_variables({name: value for name, _, value in pairs if name})
    return {name: value[:1000] for name, value in found.items()}


def _fill(draft: Draft, results: list[Result], notes: Notes) -> int:
    """Put the results into the draft as rows of a table; how many could not be."""
    counts = Counter(_present(result) for result in results)
    halves = counts.most_common(1)[0][0] if counts else ()
    if not halves:
        if results:
            notes.add(1, f"{REJECTED}no figures in it, nor in the {len(results) - 1} others")
        return len(results)
    has_cpu_time = any(_is_cpu_time(result) for result in results)
    has_iterations = any(result.out_of_place_per_iter or result.in_place_per_iter for result in results)
    draft.columns = _columns(halves, has_cpu_time, has_iterations)
    rejected = 0
    for number, result in enumerate(results, start=1):
        if not set(halves) <= set(_present(result)):
            notes.add(
                number, "row rejected: it lacks one of its halves", "rows that hold no numbers or not all"
            )
            rejected += 1
            continue
        draft.rows.append(
            (number, [*_leading(result), *_figures(result, halves, has_cpu_time, has_iterations)])
        )
    return rejected


def _present(result: Result) -> tuple[str, ...]:
    return tuple(name for name, _ in _HALVES if getattr(result, name) is not None)


def _is_cpu_time(result: Result) -> bool:
    return any(
        half is not None and half.cpu_time is not None for half in (result.out_of_place, result.in_place)
    )


def _columns(halves: tuple[str, ...], has_cpu_time: bool, has_iterations: bool) -> Columns:
    figures = ["cputime" if has_cpu_time else "time", "algbw", "busbw", "wrong"]
    figures += _PER_ITERATION if has_iterations else ()
    places = [in_place for name, in_place in _HALVES if name in halves]
    found = parse_header(["size", "count", "type", "redop", "root", *figures * len(halves)], places)
    assert found is not None
    return found


def _leading(result: Result) -> list[str]:
    size, count, root = (_text(value) for value in (result.size, result.count, result.root))
    return [size, count, str(result.type or "")[:100], str(result.redop or "")[:100], root]


def _figures(
    result: Result, halves: tuple[str, ...], has_cpu_time: bool, has_iterations: bool
) -> Iterator[str]:
    for name in halves:
        half: Half = getattr(result, name)
        yield _text(half.cpu_time if has_cpu_time else half.time)
        yield _text(half.alg_bw)
        yield _text(half.bus_bw)
        yield "N/A" if half.nwrong is None else _text(half.nwrong)
        if has_iterations:
            per: PerIteration = getattr(result, f"{name}_per_iter") or PerIteration()
            yield from (_text(value) for value in (per.min_us, per.max_us, per.p99_us, per.cv_pct))


def _with_medians(rows: list[Printed], results: list[Result]) -> list[Printed]:
    """The rows, with the median over iterations where that is there: the text has no column for it."""

    def median(row: Printed) -> float | None:
        per = getattr(results[row.line - 1], f"{'in' if row.in_place else 'out_of'}_place_per_iter")
        value = per.p50_us if per is not None else None
        return value if isinstance(value, float) and 0 <= value < 1e15 else None

    return [msgspec.structs.replace(row, p50_us=median(row)) for row in exact(rows)]


def _text(value: Any) -> str:
    """A number as nccl-tests writes it, with six decimals; the text of a string."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return "N/A" if value is None or isinstance(value, bool | list | dict) else str(value).strip()[:40]


def _whole(value: Any) -> int | None:
    """A number from 0 on, also as text; None for all else."""
    text = _text(value)
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def recognises(text: str, name: str) -> int:
    """How sure it is, 0 to 100."""
    start = text.lstrip()
    if start[:1] not in ("{", "["):
        return 0
    if '"nccl_version"' in text or '"out_of_place"' in text:
        return 97
    return 96 if '"start_time"' in text and '"args"' in text else 0


NCCL_JSON = Importer(
    "nccl-tests-json",
    "what nccl-tests writes with -J FILE",
    recognises,
    read,
)
