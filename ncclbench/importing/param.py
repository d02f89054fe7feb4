"""Tables of PARAM's comms.py (COMMS-RES): the median over ranks of each rank's own mean time.

Read from its source, from the first version of 2020 to June 2026. `size` is the whole buffer, as nccl-tests
has it. Bandwidth is of that median; in versions of 2021 it was of rank 0's own mean, which lies within the
printed extremes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ncclbench.errors import RequestError
from ncclbench.importing.lines import lines
from ncclbench.importing.model import REJECTED, Importer, Reading, Section
from ncclbench.importing.nccl_layout import NotARow
from ncclbench.importing.nccl_section import Notes
from ncclbench.importing.physics import (
    Factor,
    Figure,
    Fit,
    Span,
    agree,
    factor_of,
    figure,
    ranks_between,
    rate_GBs,
    ratio,
    vote,
)
from ncclbench.importing.taking import Taking
from ncclbench.store.printed import Printed
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import find_dtype

# PARAM's names; what takes lists of tensors is another entry in COLLECTIVES.
_OPS = {
    "all_reduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_gather": "all_gather_list",
    "all_gather_base": "all_gather",
    "reduce_scatter": "reduce_scatter_list",
    "reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all_list",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_allv",
    "gather": "gather",
    "scatter": "scatter",
}
_FACTORS: dict[str, Factor] = {
    "all_reduce": "twice",
    "reduce": "one",
    "broadcast": "one",
    "all_gather": "part",
    "all_gather_list": "part",
    "reduce_scatter": "part",
    "reduce_scatter_list": "part",
    "all_to_all": "part",
    "all_to_all_list": "part",
    "all_to_allv": "part",
    "gather": "part",
    "scatter": "part",
}

# Names of columns in all versions, in lower case and without blanks, to ours; others are passed over.
_COLUMNS = {
    "size(b)": "size",
    "total-size(b)": "size",
    "num-elements": "count",
    "nelementsperrank": "count",
    "latency(us):p50": "time",
    "time(us):p50": "time",
    "min": "min",
    "max": "max",
    "algbw(gb/s)": "algbw",
    "busbw(gb/s)": "busbw",
}
_NEEDED = {"size", "time", "algbw", "busbw"}
# Times are printed with one decimal, bandwidths with three.
_DECIMALS = {"time": 1, "min": 1, "max": 1, "algbw": 3, "busbw": 3}

_HEADER = re.compile(
    r"\s*COMMS-RES(?P<kind>-QUANT)?\s+(?P<names>(?:total-(?:pair-)?)?size \(B\).*)", re.IGNORECASE
)
_ROW = re.compile(r"\s*COMMS-RES(?P<name>(?:-\S*)?)\s+(?P<cells>\d.*)")
_GROUP = re.compile(r"\bgroupSize:? (\d{1,7})\b")
_WORLD = re.compile(r"'world_size': (\d{1,7})\b")
_ASKED = re.compile(r"args\.(b|e|f|z|n|w): (\S{1,20})")
_BACKEND = re.compile(r"\bbackend: (\S{1,20}) nw-stack: (\S{1,40})")
_MODES = {"0": "back-to-back", "1": "isolated"}


@dataclass(frozen=True, slots=True)
class _Job:
    """What the lines above a table tell of it."""

    nranks: int | None = None
    mode: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Table:
    """A table that is being read."""

    section: Section
    columns: list[str]
    mode: str | None
    op: str | None


class _Reader:
    """Goes through a file line by line."""

    def __init__(self, file: Path, op: str | None) -> None:
        self.reading = Reading(file, "param")
        self._op = op
        self._job = _Job()
        self._table: _Table | None = None
        self._notes = Notes()
        self._taking = Taking(self.reading, self._notes)

    def read(self, source: Iterator[tuple[int, str]]) -> Reading:
        """All of it."""
        for number, line in source:
            if "COMMS-RES" in line:
                header, row = _HEADER.fullmatch(line), _ROW.fullmatch(line)
                if header is not None:
                    self._open(number, header)
                elif row is not None:
                    self._row(number, row)
            elif "Performance of replayed comms" in line:
                self._notes.add(
                    number, "the figures of a replayed trace are sums over sizes: none is imported", "traces"
                )
            else:
                self._note_job(line)
        for section in self.reading.sections:
            self._settle(section)
        self.reading.problems = self._notes.finish()
        return self.reading

    def _note_job(self, line: str) -> None:
        world, group = _WORLD.search(line), _GROUP.search(line)
        if world is not None:  # the first line of a job
            self._job, self._table = _Job(nranks=int(world[1])), None
        if group is not None:
            self._job = replace(self._job, nranks=int(group[1]))
        backend = _BACKEND.search(line)
        if backend is not None:
            asked = {"backend": backend[1], "nw-stack": backend[2], **dict(_ASKED.findall(line))}
            self._job = replace(self._job, settings=asked, mode=_MODES.get(asked.get("z", "")))

    def _open(self, number: int, header: re.Match[str]) -> None:
        names = [_COLUMNS.get(name, name) for name in _names(header["names"])]
        self._table = None
        if header["kind"] or not set(names) >= _NEEDED or len(set(names)) < len(names):
            what = "quantised" if header["kind"] else "point-to-point or paired"
            self._notes.add(
                number, f"a table of {what} communication: none of its figures is imported", "tables"
            )
            return
        if not self._taking.has_room_for_table(number):
            return
        section = Section("param", number, nranks=self._job.nranks, settings=dict(self._job.settings))
        section.settings["time"] = "median over ranks of each rank's mean"
        self._table = _Table(section, names, self._job.mode, None)
        self.reading.sections.append(section)

    def _row(self, number: int, match: re.Match[str]) -> None:
        table = self._table
        if table is None:
            return
        try:
            row = self._printed(number, match["name"].split("-")[1:], match["cells"].split(), table)
        except NotARow as reason:
            self._taking.reject(number, reason)
            return
        self._taking.take(number, row, table.section)

    def _printed(self, number: int, name: list[str], cells: list[str], table: _Table) -> Printed:
        """The row of a line; ranks are seen to later.

        Raises:
            NotARow: it is none, or contradicts itself.
        """
        if len(cells) != len(table.columns):
            raise NotARow(f"{len(cells)} columns under a header of {len(table.columns)}: cut or torn")
        texts = dict(zip(table.columns, cells, strict=True))
        figures = {
            column: _figure(column, text) for column, text in texts.items() if column in _COLUMNS.values()
        }
        nbytes, count = _whole(texts["size"]), _whole(texts["count"]) if "count" in texts else None
        told = _OPS.get(name[0], name[0][:100]) if name and name[0] else None
        op = told or self._op
        if told is not None and self._op not in (None, told):
            reason = f"--op says {self._op}, the text {told}: the text was believed"
            self._notes.add(number, reason, "op")
        time, algbw, busbw = figures["time"], figures["algbw"], figures["busbw"]
        row = Printed(
            arm="",
            op=op,
            op_from="text" if told else None if op is None else "option",
            dtype=_dtype(name[1]) if len(name) > 1 else None,
            redop="sum" if op in COLLECTIVES and COLLECTIVES[op].reduces else None,
            root=None,
            nbytes=nbytes,
            count=count,
            in_place=None,
            mode=table.mode,
            nranks=table.section.nranks,
            nranks_from=None if table.section.nranks is None else "header",
            time_us=time.value,
            algbw_GBs=algbw.value,
            busbw_GBs=busbw.value,
            time_half_us=time.half,
            algbw_half_GBs=algbw.half,
            busbw_half_GBs=busbw.half,
            wrong=None,
            over_ranks="median",
            min_us=figures["min"].value if "min" in figures else None,
            max_us=figures["max"].value if "max" in figures else None,
            p50_us=time.value,
            derived=("redop",) if op in COLLECTIVES and COLLECTIVES[op].reduces else (),
            line=number,
        )
        if not nbytes:
            return msgspec.structs.replace(
                row, time_us=None, time_half_us=None, reason="a size of 0 is no operation"
            )
        _check(row, figures)
        return row

    def _settle(self, section: Section) -> None:
        """Derive the ranks where the text does not tell them, and hold rows against those that it tells."""
        if not section.rows:
            section.missing.append("rows")
            return
        ranges = [found for row in section.rows if (found := _ranks(row)) is not None]
        derived = vote(ranges).nranks
        told = section.nranks
        if derived is not None and told != derived:
            if told is not None:
                self._notes.add(
                    section.line,
                    f"the text tells of {told} ranks, busbw over algbw of {derived}: taken as {derived}",
                    "ranks",
                )
            section.nranks = derived
            section.rows = [
                msgspec.structs.replace(row, nranks=derived, nranks_from="derived") for row in section.rows
            ]
        kept = [row for row in section.rows if self._fits(row)]
        self.reading.rows_rejected += len(section.rows) - len(kept)
        section.rows, section.row_lines = kept, len(kept)

    def _fits(self, row: Printed) -> bool:
        """Whether busbw follows from algbw on the row's ranks; where not, that is noted."""
        kind = _FACTORS.get(row.op or "")
        if kind is None or row.nranks is None or row.reason is not None:
            return True
        algbw, busbw = _bandwidths(row)
        factor = factor_of(kind, row.nranks)
        if agree(Span(algbw.low * factor, algbw.high * factor), busbw) is not Fit.NO:
            return True
        reason = f"{REJECTED}busbw over algbw is not that of {row.op} on {row.nranks} ranks"
        self._notes.add(row.line, reason, "rows rejected")
        return False


def _names(header: str) -> list[str]:
    """Column names without blanks: "size (B)" is one of them."""
    return re.sub(r"\s+(?=\(\w)", "", header.lower()).split()


def _figure(column: str, text: str) -> Figure:
    """A cell's number.

    Raises:
        NotARow: it is none, or was cut.
    """
    found = figure(text)
    if found is None:
        raise NotARow(f"{text[:24]!r} is no number")
    if column in _DECIMALS and found.decimals < _DECIMALS[column]:
        raise NotARow(f"{text[:24]!r} has fewer decimals than are printed: cut or typed again")
    return found


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise NotARow(f"{text[:24]!r} is no size")
    return int(text)


def _dtype(name: str) -> str:
    try:
        return find_dtype(name).name
    except RequestError:
        return name[:100]


def _check(row: Printed, figures: Mapping[str, Figure]) -> None:
    """Hold a row's figures against each other.

    Raises:
        NotARow: they contradict themselves.
    """
    time, algbw = figures["time"], figures["algbw"]
    least, most = figures.get("min", time), figures.get("max", time)
    if time.value <= 0:
        raise NotARow("no time above 0 in it")
    if not least.span.low <= time.span.high or not time.span.low <= most.span.high:
        raise NotARow(f"the median of {time.value:g} us lies outside of its own minimum and maximum")
    if agree(rate_GBs(row.nbytes, time), algbw.span) is not Fit.NO:
        return
    # Rank 0's own, as it was printed in 2021.
    slow, fast = rate_GBs(row.nbytes, most).low, rate_GBs(row.nbytes, least).high
    if agree(Span(slow, fast), algbw.span) is Fit.NO or "min" not in figures:
        raise NotARow(f"{row.nbytes} B over {time.value:g} us is not {algbw.value:g} GB/s")


def _ranks(row: Printed) -> tuple[int, int] | None:
    """Fewest and most ranks that busbw over algbw allows; None where it tells nothing."""
    kind = _FACTORS.get(row.op or "")
    if kind is None or kind == "one" or row.reason is not None or not row.algbw_GBs or not row.busbw_GBs:
        return None
    return ranks_between(kind, ratio(*_bandwidths(row)))


def _bandwidths(row: Printed) -> tuple[Span, Span]:
    """algbw and busbw, each with half a unit of its last digit either way."""
    algbw, busbw = row.algbw_GBs or 0.0, row.busbw_GBs or 0.0
    half = 10.0 ** -_DECIMALS["busbw"] / 2
    return Span(max(0.0, algbw - half), algbw + half), Span(max(0.0, busbw - half), busbw + half)


def recognises(text: str, name: str) -> int:
    """How sure it is, 0 to 100; less where only a job's first lines are there."""
    if "COMMS-RES" in text:
        return 97
    return 50 if "PARAM COMM environment" in text or "Performance of replayed comms" in text else 0


def read(file: Path, op: str | None) -> Reading:
    """The tables of a file.

    Raises:
        RequestError: the file cannot be read.
    """
    return _Reader(file, op).read(lines(file))


PARAM = Importer(
    name="param",
    description="tables of PARAM's comms.py",
    recognises=recognises,
    read=read,
)
