"""The JSON of nccl-tests (``-J FILE``), versions 1 to 4, also of a test that was killed while it wrote.

Read from the writer's source. What it does that JSON does not: infinity is a bare ``inf``; a killed test
leaves the document open; truth values and roots are strings; the collective stands in nothing but the
program's name; of each process only the first device is listed. ``env`` is the whole environment, of which
few variables are kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ncclbench.environment.variables import recorded_variables
from ncclbench.errors import RequestError
from ncclbench.importing.model import REJECTED, DeviceLine, Importer, Reading, Section
from ncclbench.importing.nccl_layout import Columns, parse_header
from ncclbench.importing.nccl_scan import MOST_ROWS, Draft
from ncclbench.importing.nccl_section import Notes, section_of
from ncclbench.importing.nccl_words import program_op, version_of_code
from ncclbench.importing.source import decoded, read_bytes
from ncclbench.store.model import Printed

_HALVES = (("out_of_place", False), ("in_place", True))
_PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")
_MOST_RANKS = 1 << 17
_MOST_PER_PROCESS = 1024

# A string as it stands, or what the writer prints of a number that is none.
_NO_NUMBER = re.compile(r'"(?:[^"\\]++|\\.)*+"|(?<![\w."])-?(?:inf|nan)\b', re.DOTALL)
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_NEXT = re.compile(r"[\s,]*")
# Files written one after the other into one.
_DOCUMENTS = re.compile(r'(?<=\})\s*(?=\{\s*"version")')

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


class _Half(msgspec.Struct):
    """Figures of one half: numbers, or strings where they are none. Times in us, bandwidths in GB/s."""

    time: Any = None
    cpu_time: Any = None
    alg_bw: Any = None
    bus_bw: Any = None
    nwrong: Any = None


class _PerIteration(msgspec.Struct):
    """Of the iterations of the slowest process in each; its lists of times are passed over."""

    min_us: Any = None
    max_us: Any = None
    p50_us: Any = None
    p99_us: Any = None
    cv_pct: Any = None


class _Result(msgspec.Struct):
    """One size."""

    size: Any = None
    count: Any = None
    type: Any = None
    redop: Any = None
    root: Any = None
    out_of_place: _Half | None = None
    in_place: _Half | None = None
    out_of_place_per_iter: _PerIteration | None = None
    in_place_per_iter: _PerIteration | None = None


class _Document(msgspec.Struct):
    """A file, but for what is not needed of it."""

    version: Any = None
    args: list[Any] = []
    env: list[Any] = []
    nccl_version: Any = None
    config: dict[str, Any] = {}
    results: list[_Result] | None = None
    out_of_bounds: dict[str, Any] = {}
    average_bus_bandwidth: dict[str, Any] = {}
    errors: list[Any] = []
    end_time: Any = None


def read(file: Path, op: str | None) -> Reading:
    """The invocations in a file, one as a rule.

    Raises:
        RequestError: the file cannot be read, is too large, or is no such JSON.
    """
    reading = Reading(file, NCCL_JSON.name)
    notes = Notes()
    content = read_bytes(file)
    for document, line, is_whole in _documents(content, file, notes):
        section, rejected = _section(document, line, op, file, notes)
        if not is_whole:
            section.missing.append("end")
        reading.sections.append(section)
        reading.rows_rejected += rejected
    reading.problems = notes.finish()
    return reading


# From bytes to documents.


def _documents(content: bytes, file: Path, notes: Notes) -> Iterator[tuple[_Document, int, bool]]:
    """Each document in a file, the line it begins in, and whether it is there to its end."""
    try:
        yield msgspec.json.decode(content, type=_Document), 1, True
        return
    except (ValueError, RecursionError):
        text = _NO_NUMBER.sub(_quoted, decoded(content))
    place, line = 0, 1
    parts = _DOCUMENTS.split(text)
    for part in parts:
        start = text.index(part, place)
        line += text.count("\n", place, start)
        place = start
        try:
            yield msgspec.json.decode(part, type=_Document), line, True
        except (ValueError, RecursionError) as error:
            ends_early = not isinstance(error, msgspec.ValidationError)
            salvaged = _salvaged(part, line, ends_early, notes)
            if salvaged is not None:
                yield salvaged, line, not ends_early
            elif len(parts) == 1:
                is_object = part.lstrip()[:1] == "{"
                what = "ends before its first result" if is_object else "is no JSON of nccl-tests"
                why = " ".join(str(error).split())[:80]
                raise RequestError(f"{file} {what} ({why}): give the file of a test that ran") from None
            else:
                notes.add(line, "a test ends before its first result")


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else f'"{match[0]}"'


def _salvaged(text: str, line: int, ends_early: bool, notes: Notes) -> _Document | None:
    """What stands whole in a document that does not; None where it ends before its results."""
    results = _RESULTS.search(text)
    if results is None:
        return None
    try:
        document = msgspec.json.decode(text[: results.end()] + "]}", type=_Document)
    except (ValueError, RecursionError):
        document = _Document()
        notes.add(line, "what stands before the results is damaged: settings and devices are not known")
    document.results = list(_whole_results(text, results.end()))
    whole = len(document.results)
    if ends_early:
        notes.add(line, f"it ends early: whole results in it: {whole}; the test was killed, or the file cut")
    else:
        notes.add(line, "parts of it are not as nccl-tests writes them: only its results were read")
    return document


def _whole_results(text: str, place: int) -> Iterator[_Result]:
    """The results from ``place`` on, until one is cut or there are no more."""
    decoder = json.JSONDecoder()
    for _ in range(MOST_ROWS):
        gap = _NEXT.match(text, place)
        try:
            value, place = decoder.raw_decode(text, gap.end() if gap else place)
        except (ValueError, RecursionError):
            return
        try:
            yield msgspec.convert(value, _Result)
        except ValueError:
            yield _Result()  # to be rejected: what stands in it is no figures


# From a document to a section.


def _section(document: _Document, line: int, op: str | None, file: Path, notes: Notes) -> tuple[Section, int]:
    draft, listed = _draft(document, line)
    rejected = _fill(draft, document.results or [], notes)
    section, more = section_of(draft, op, file, notes)
    section.devices = listed
    section.rows = _with_medians(section.rows, document.results or [])
    return section, rejected + more


def _draft(document: _Document, line: int) -> tuple[Draft, list[DeviceLine]]:
    """All but the rows, and the devices that are listed; in the draft every rank has one."""
    config = {name: value for name, value in document.config.items() if isinstance(value, str | int | float)}
    settings = {_SETTINGS[name]: str(value)[:100] for name, value in config.items() if name in _SETTINGS}
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
    averages = document.average_bus_bandwidth
    average = averages.get("bandwidth", averages.get("bandwidith"))  # as 2.17.3 to 2.17.8 spell it
    failure = next((text for text in document.errors if isinstance(text, str) and text), None)
    code = _whole(document.nccl_version)
    draft = Draft(
        line,
        library=None if code is None else version_of_code(str(code)),
        banner_op=_op(document.args),
        settings=settings,
        environment=_variables(document.env),
        devices=every[:_MOST_RANKS],
        groups=Counter({group: count * per_process for group, count in groups.items()}),
        average=None if average is None else _text(average),
        average_line=line,
        out_of_bounds=_whole(document.out_of_bounds.get("count")),
        blocking=str(config.get("blocking_collectives")).lower() == "true",
        concluded=document.end_time is not None,
        failure=None if failure is None else failure[:300],
    )
    return draft, devices


def _op(args: list[Any]) -> str | None:
    """The collective in the name of the program."""
    return program_op(PurePosixPath(str(args[0])).name) if args else None


def _devices(entries: Any) -> tuple[list[DeviceLine], Counter[int]]:
    found: list[DeviceLine] = []
    groups: Counter[int] = Counter()
    for entry in entries if isinstance(entries, list) else ():
        rank = _whole(entry.get("rank")) if isinstance(entry, dict) else None
        if rank is None or rank >= _MOST_RANKS or len(found) >= _MOST_RANKS:
            continue
        host, name, place = (
            str(entry.get(key) or "")[:255] for key in ("hostname", "device_info", "device_hex")
        )
        found.append(
            DeviceLine(rank, host or None, _whole(entry.get("device")), place or None, name[:100] or None)
        )
        groups[_whole(entry.get("group")) or 0] += 1
    return found, groups


def _variables(entries: list[Any]) -> dict[str, str]:
    """Of the whole environment, what matters for communication."""
    pairs = (entry.partition("=") for entry in entries if isinstance(entry, str))
    return recorded_variables({name: value[:1000] for name, _, value in pairs if name})


def _fill(draft: Draft, results: list[_Result], notes: Notes) -> int:
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


def _present(result: _Result) -> tuple[str, ...]:
    return tuple(name for name, _ in _HALVES if getattr(result, name) is not None)


def _is_cpu_time(result: _Result) -> bool:
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


def _leading(result: _Result) -> list[str]:
    size, count, root = (_text(value) for value in (result.size, result.count, result.root))
    return [size, count, str(result.type or "")[:100], str(result.redop or "")[:100], root]


def _figures(
    result: _Result, halves: tuple[str, ...], has_cpu_time: bool, has_iterations: bool
) -> Iterator[str]:
    for name in halves:
        half: _Half = getattr(result, name)
        yield _text(half.cpu_time if has_cpu_time else half.time)
        yield _text(half.alg_bw)
        yield _text(half.bus_bw)
        yield "N/A" if half.nwrong is None else _text(half.nwrong)
        if has_iterations:
            per: _PerIteration = getattr(result, f"{name}_per_iter") or _PerIteration()
            yield from (_text(value) for value in (per.min_us, per.max_us, per.p99_us, per.cv_pct))


def _with_medians(rows: list[Printed], results: list[_Result]) -> list[Printed]:
    """The rows, with the median over iterations where that is there: the text has no column for it."""

    def median(row: Printed) -> float | None:
        per = getattr(results[row.line - 1], f"{'in' if row.in_place else 'out_of'}_place_per_iter")
        value = per.p50_us if per is not None else None
        return value if isinstance(value, float) and 0 <= value < 1e15 else None

    return [msgspec.structs.replace(row, p50_us=median(row)) for row in rows]


def _text(value: Any) -> str:
    """A number as nccl-tests writes it, with six decimals; the text of a string."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return "N/A" if value is None or isinstance(value, bool | list | dict) else str(value).strip()[:40]


def _word(value: Any) -> str | None:
    """A text that is there, cut to what a name may have."""
    return value.strip()[:100] or None if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    """A number from 0 on, also as text; None for all else."""
    text = _text(value)
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


def recognises(text: str, name: str) -> int:
    """How sure it is, 0 to 100."""
    start = text.lstrip()
    if start[:1] != "{":
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
