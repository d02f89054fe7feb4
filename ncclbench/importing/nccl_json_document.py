"""Documents as nccl-tests writes them with ``-J``: read member by member, as far as they are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec

from ncclbench.errors import RequestError
from ncclbench.importing.json_parts import Cell, Parts, decode
from ncclbench.importing.model import MOST_ROWS, MOST_SECTIONS
from ncclbench.importing.nccl_section import Notes

# Files written one after the other into one.
_DOCUMENTS = re.compile(rb'(?<=\})[\s,]*(?=\{\s*"version")')
# Something else may have put them into a list.
_OPENING = re.compile(rb"[\s\[]*\{")


class Half(msgspec.Struct):
    """Figures of one half: numbers, or strings where they are none. Times in us, bandwidths in GB/s."""

    time: Cell = None
    cpu_time: Cell = None
    alg_bw: Cell = None
    bus_bw: Cell = None
    nwrong: Cell = None


class PerIteration(msgspec.Struct):
    """Of the iterations of the slowest process in each; its lists of times are passed over."""

    min_us: Cell = None
    max_us: Cell = None
    p50_us: Cell = None
    p99_us: Cell = None
    cv_pct: Cell = None


class Result(msgspec.Struct):
    """One size."""

    size: Cell = None
    count: Cell = None
    type: Cell = None
    redop: Cell = None
    root: Cell = None
    out_of_place: Half | None = None
    in_place: Half | None = None
    out_of_place_per_iter: PerIteration | None = None
    in_place_per_iter: PerIteration | None = None


class Device(msgspec.Struct):
    """The first rank of a process."""

    rank: Cell = None
    group: Cell = None
    hostname: Cell = None
    device: Cell = None
    device_hex: Cell = None
    device_info: Cell = None


class Footer(msgspec.Struct):
    """What was counted over all results."""

    count: Cell = None
    bandwidth: Cell = None
    bandwidith: Cell = None  # as 2.17.3 to 2.17.8 spell it


@dataclass(slots=True)
class Document:
    """A file, but for what is not needed of it; ``results``: None where it ends before them."""

    version: Cell = None
    args: list[Cell] = field(default_factory=list)
    env: list[Cell] = field(default_factory=list)
    nccl_version: Cell = None
    config: dict[str, msgspec.Raw] = field(default_factory=dict)
    results: list[Result] | None = None
    out_of_bounds: Footer = field(default_factory=Footer)
    average_bus_bandwidth: Footer = field(default_factory=Footer)
    errors: list[Cell] = field(default_factory=list)
    end_time: Cell = None


_MEMBERS: dict[str, Any] = {
    "version": Cell,
    "args": list[Cell],
    "env": list[Cell],
    "nccl_version": Cell,
    "config": dict[str, msgspec.Raw],
    "out_of_bounds": Footer,
    "average_bus_bandwidth": Footer,
    "errors": list[Cell],
    "end_time": Cell,
}


def documents(content: bytes, file: Path, notes: Notes) -> Iterator[tuple[Document, int, bool]]:
    """Each document in a file, the line it begins in, and whether it is there to its end."""
    starts = [0, *(match.end() for match in islice(_DOCUMENTS.finditer(content), MOST_SECTIONS - 1))]
    line = 1
    for start, stop in pairwise([*starts, len(content)]):
        part = content[start:stop]
        document, is_whole = _document(part, line, notes)
        if document.results is not None or is_whole:
            yield document, line, is_whole
        elif len(starts) > 1:
            notes.add(line, "a test ends before its first result")
        else:
            is_object = _OPENING.match(part) is not None
            what = "ends before its first result" if is_object else "is no JSON of nccl-tests"
            raise RequestError(f"{file} {what}: give the file of a test that ran")
        line += part.count(b"\n")


def _document(part: bytes, line: int, notes: Notes) -> tuple[Document, bool]:
    """A document, member by member, and whether it is there to its end."""
    document = Document()
    opening = _OPENING.match(part)
    if opening is None:
        return document, False
    members = Parts(part, opening.end())
    for key, place in members:
        if key == "results" and part[place : place + 1] == b"[":
            results = Parts(part, place + 1)
            document.results = list(islice(_results(results), MOST_ROWS + 1))
            members.end = results.end
            if not results.is_whole:
                break
        elif key in _MEMBERS and (value := members.value()) is not None:
            try:
                setattr(document, key, decode(value, _MEMBERS[key]))
            except ValueError:
                notes.add(line, f"{key} is damaged and not read", "damaged members")
    if not members.is_whole and document.results is not None and len(document.results) <= MOST_ROWS:
        nwhole = len(document.results)
        reason = f"it ends early: whole results in it: {nwhole}; the test was killed, or the file cut"
        notes.add(line, reason)
    return document, members.is_whole


def _results(parts: Parts) -> Iterator[Result]:
    """The results of a list, until one is cut or there are no more."""
    for _ in parts:
        value = parts.value()
        if value is None:
            return
        try:
            yield decode(value, Result)
        except ValueError:
            yield Result()  # to be rejected: what stands in it is no figures
