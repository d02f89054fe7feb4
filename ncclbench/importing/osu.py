"""Tables of the OSU micro-benchmarks: average latency over ranks, and no bandwidth of collectives.

Read from the source of versions 3.9 to 7.4. Each operation is timed alone between barriers, so its rows are
"isolated". The number of ranks is never printed; it is taken from the command line above a table, if one is
there. `size` is what one rank sends to one other, or its whole buffer, as ``_TESTS`` says.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ncclbench.importing.lines import lines
from ncclbench.importing.model import Importer, Reading, Section
from ncclbench.importing.nccl_layout import NotARow
from ncclbench.importing.nccl_section import Notes
from ncclbench.importing.physics import figure
from ncclbench.importing.taking import Taking
from ncclbench.store.printed import Printed
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES


class _Test(NamedTuple):
    """What a test measures.

    Attributes:
        op: name in COLLECTIVES, or the test's own where none of them is like it.
        per_rank: the printed size is one rank's part, of which the buffer holds one for each rank.
        scatters: the count given to the library is one rank's part of the printed size.
        nranks: where the test runs on no other number.
        directions: how many the printed bandwidth is the sum of.
    """

    op: str
    per_rank: bool = False
    scatters: bool = False
    nranks: int | None = None
    directions: int = 1


# By the name in the first line of a table, in lower case.
_TESTS = {
    "allreduce latency": _Test("all_reduce"),
    "allgather latency": _Test("all_gather", per_rank=True),
    "all-to-all personalized exchange latency": _Test("all_to_all", per_rank=True),
    "broadcast latency": _Test("broadcast"),
    "reduce latency": _Test("reduce"),
    "reduce_scatter latency": _Test("reduce_scatter", scatters=True),
    "reduce_scatter_block latency": _Test("reduce_scatter", scatters=True),
    "gather latency": _Test("gather", per_rank=True),
    "scatter latency": _Test("scatter", per_rank=True),
    # Half a round trip; a window of messages one way; and both ways at once. No collective is that.
    "latency": _Test("osu_latency", nranks=2),
    "bandwidth": _Test("osu_bw", nranks=2),
    "bi-directional bandwidth": _Test("osu_bibw", nranks=2, directions=2),
}
_BINARIES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "bcast": "broadcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter",
    "gather": "gather",
    "scatter": "scatter",
}
_DTYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float32"}

# Two decimals are printed of each.
_ROUNDING = 0.01

_TITLE = re.compile(
    r"#\s*OSU\s+(?P<library>\S+(?:\s+MANAGED)?)\s+(?P<name>\S.*?)\s+Test(?:\s+v(?P<version>[\w.+-]{1,20}))?\s*",
    re.IGNORECASE,
)
_DTYPE = re.compile(r"#\s*Datatype:\s*(\w+)\.?")
_COLUMN = re.compile(
    r"(?:avg|min|max)?\s*latency\s*\(us\)|bandwidth\s*\(mb/s\)|p\d+\s+tail\s+(?:lat\s*\(us\)|bw\s*\(mb/s\))"
    r"|transmit\s+size|\S+",
    re.IGNORECASE,
)
# Everything before the binary: its own options have letters of their own.
_LAUNCH = re.compile(r"^(?P<launcher>.*?)(?<![\w-])osu_(?:xccl_|nccl_|rccl_)?(?P<binary>[a-z_]+)", re.DOTALL)
_RANKS = re.compile(r"(?<![\w-])(?:--?np|-n|--n|--ntasks)[ =]?(\d{1,7})(?![\w.])")


@dataclass(slots=True)
class _Table:
    """A table that is being read."""

    section: Section
    test: _Test
    columns: list[str] = field(default_factory=list)
    dtype: str | None = None

    def row(self, number: int, tokens: list[str]) -> Printed:
        """The row of a line.

        Raises:
            NotARow: it is none, or contradicts itself.
        """
        if len(tokens) != len(self.columns):
            raise NotARow(f"{len(tokens)} columns under a header of {len(self.columns)}: cut or torn")
        cells = dict(zip(self.columns, tokens, strict=True))
        if not re.fullmatch(r"\d{1,15}", cells["size"], re.ASCII):
            raise NotARow(f"{cells['size'][:24]!r} is no size")
        size, nranks = int(cells["size"]), self.section.nranks
        if self.test.per_rank and nranks is None:
            raise NotARow(
                "the size is one rank's part, and the number of ranks is not printed: put the command line "
                "(mpirun -np N osu_...) above the table"
            )
        nbytes = size * nranks if self.test.per_rank and nranks else size
        for name, text in cells.items():
            if name in ("average", "bandwidth") and not re.fullmatch(r"\d{1,15}\.\d\d", text, re.ASCII):
                raise NotARow(f"{text[:24]!r} has not the two decimals that are printed: cut or typed again")
        figures = {name: found.value for name, text in cells.items() if (found := figure(text)) is not None}
        time_us, algbw_GBs, derived = self._speed(nbytes, figures)
        factor = _factor(self.test.op, nranks)
        share = _ROUNDING / 2 / figures.get("bandwidth", time_us)  # of a value that its rounding may be
        count = self._count(size, nranks)
        redop = "sum" if self.test.op in COLLECTIVES and COLLECTIVES[self.test.op].reduces else None
        failed = cells.get("validation", "").lower() == "fail"
        derived |= {"busbw_GBs": factor is not None, "nbytes": nbytes != size, "count": count is not None}
        derived |= {"redop": redop is not None}
        reason = None if size else "an empty message: it has a latency and no bandwidth"
        return Printed(
            arm="",
            op=self.test.op,
            op_from="text",
            dtype=self.dtype,
            redop=redop,
            root=None,
            nbytes=nbytes,
            count=count,
            in_place=None,
            mode="isolated" if self.test.op in COLLECTIVES else None,
            nranks=nranks,
            nranks_from=None if nranks is None else "derived" if self.test.nranks else "header",
            time_us=time_us,
            algbw_GBs=algbw_GBs,
            busbw_GBs=None if factor is None else algbw_GBs * factor,
            time_half_us=time_us * share,
            algbw_half_GBs=algbw_GBs * share,
            busbw_half_GBs=None if factor is None else algbw_GBs * factor * share,
            wrong=0 if "validation" in cells and not failed else None,
            failed=failed,
            min_us=figures.get("min"),
            max_us=figures.get("max"),
            p50_us=figures.get("p50") if "average" in figures else None,
            p99_us=figures.get("p99") if "average" in figures else None,
            derived=tuple(name for name, is_derived in derived.items() if is_derived),
            line=number,
            reason="validation failed; how many elements were wrong is not printed" if failed else reason,
        )

    def _speed(self, nbytes: int, figures: Mapping[str, float]) -> tuple[float, float, dict[str, bool]]:
        """Time in microseconds, bandwidth in GB/s, and which of the two was derived.

        Raises:
            NotARow: there is neither, or they contradict themselves.
        """
        if "bandwidth" in figures:
            # MB/s; both directions together where they are.
            rate_GBs = figures["bandwidth"] / 1e3 / self.test.directions
            if not rate_GBs or not nbytes:
                raise NotARow("no bandwidth above 0 in it")
            return nbytes / rate_GBs / 1e3, rate_GBs, {"time_us": True, "algbw_GBs": self.test.directions > 1}
        time_us = figures.get("average", 0.0)
        if not time_us:
            raise NotARow("no time above 0 in it")
        if not figures.get("min", 0.0) - _ROUNDING <= time_us <= figures.get("max", math.inf) + _ROUNDING:
            raise NotARow(f"the average of {time_us:g} us lies outside of its own minimum and maximum")
        return time_us, nbytes / time_us / 1e3, {"algbw_GBs": True}

    def _count(self, size: int, nranks: int | None) -> int | None:
        """Elements given to the library, as nccl-tests counts them."""
        if self.dtype is None or (self.test.scatters and nranks is None):
            return None
        elements = size // DTYPES[self.dtype].itemsize
        return elements // nranks if self.test.scatters and nranks else elements


def _factor(op: str, nranks: int | None) -> float | None:
    """busbw over algbw; None where it is not known."""
    if op not in COLLECTIVES:
        return None
    if nranks is not None:
        return COLLECTIVES[op].busbw_factor(nranks)
    return 1.0 if op in ("broadcast", "reduce") else None


class _Reader:
    """Goes through a file line by line."""

    def __init__(self, file: Path) -> None:
        self.reading = Reading(file, "osu")
        self._table: _Table | None = None
        # Ranks of command lines that no table followed yet, by operation.
        self._launched: defaultdict[str, set[int]] = defaultdict(set)
        self._command = ""
        self._notes = Notes()
        self._taking = Taking(self.reading, self._notes)

    def read(self, source: Iterator[tuple[int, str]]) -> Reading:
        """All of it."""
        for number, line in source:
            self._note_launch(line)
            if line.lstrip().startswith("#"):
                self._comment(number, line.strip())
            elif self._table is not None and self._table.columns:
                self._row(number, line.split())
        for section in self.reading.sections:
            if not section.rows:
                section.missing.append("rows")
        self.reading.problems = self._notes.finish()
        return self.reading

    def _comment(self, number: int, line: str) -> None:
        title = _TITLE.fullmatch(line)
        if title is not None:
            self._open(number, title)
            return
        table = self._table
        if table is None:
            return
        dtype = _DTYPE.fullmatch(line)
        columns = [_column(match[0]) for match in _COLUMN.finditer(line.lstrip("# "))]
        if dtype is not None:
            table.dtype = _DTYPES.get(dtype[1])
            table.section.settings["datatype"] = dtype[1]
        elif columns[:1] == ["size"] and {"average", "bandwidth"} & set(columns):
            table.columns = columns

    def _open(self, number: int, title: re.Match[str]) -> None:
        test = _TESTS.get(" ".join(title["name"].lower().split()))
        if test is None:
            self._table = None
            self._notes.add(
                number, f"OSU's {title['name'][:60]!r} test is none of those that are imported", "tests"
            )
            return
        if not self._taking.has_room_for_table(number):
            self._table = None
            return
        launched = self._launched.pop(test.op, set())
        nranks = test.nranks or (launched.pop() if len(launched) == 1 else None)
        section = Section("osu", number, version=title["version"], nranks=nranks)
        section.settings["library"] = title["library"]
        self._table = _Table(section, test)
        self.reading.sections.append(section)

    def _row(self, number: int, tokens: list[str]) -> None:
        table = self._table
        # A row begins with two numbers, or fills the columns; the rest is talk of launchers and libraries.
        numbers = [figure(token) is not None for token in tokens[:2]]
        fills = table is not None and len(tokens) == len(table.columns)
        if table is None or len(tokens) < 2 or not numbers[0] or not (numbers[1] or fills):
            return
        try:
            row = table.row(number, tokens)
        except NotARow as reason:
            self._taking.reject(number, reason)
            return
        if self._taking.take(number, row, table.section) and row.failed:
            self._notes.add(
                number, "validation failed; how many elements were wrong is not printed", "failed"
            )

    def _note_launch(self, line: str) -> None:
        """Remember how many ranks a command line starts; it may go on after a backslash."""
        if "osu_" not in line and not self._command and not line.endswith("\\"):
            return
        self._command = (self._command + " " + line.removesuffix("\\"))[-4096:]
        if line.endswith("\\"):
            return
        command, self._command = self._command, ""
        launch = _LAUNCH.search(command)
        if launch is None or launch["binary"] not in _BINARIES:
            return
        ranks = {int(found) for found in _RANKS.findall(launch["launcher"])}
        if len(ranks) == 1 and 0 not in ranks:
            self._launched[_BINARIES[launch["binary"]]] |= ranks


def _column(title: str) -> str:
    """A column's name here: average, min, max, bandwidth, p50 ..., or its title in lower case."""
    words = title.lower().split()
    flat = "".join(words)
    if flat.endswith("latency(us)"):
        return {"avg": "average", "": "average"}.get(flat.removesuffix("latency(us)"), flat[:3])
    if flat.startswith("bandwidth"):
        return "bandwidth"
    return words[0] if len(words) > 1 and words[0].startswith("p") else flat


def recognises(text: str, name: str) -> int:
    """How sure it is, 0 to 100."""
    return 97 if re.search(r"#\s*OSU\s+\S+\s[^\n]{1,80}\bTest\b", text) else 0


def read(file: Path, op: str | None) -> Reading:
    """The tables of a file; ``op`` is not needed, since every table has its name.

    Raises:
        RequestError: the file cannot be read.
    """
    return _Reader(file).read(lines(file))


OSU = Importer(
    name="osu",
    description="tables of the OSU micro-benchmarks: collectives, osu_latency, osu_bw, osu_bibw",
    recognises=recognises,
    read=read,
)
