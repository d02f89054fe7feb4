"""What an importer finds in a file: sections, each one invocation of a tool, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclbench.store.printed import Printed


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that a reader must know.

    Attributes:
        line: counted from 1; None where it is of the file as a whole.
        reason: one line.
    """

    line: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """A rank as the tool lists it; what a line does not tell is None."""

    rank: int
    host: str | None
    device: int | None
    pci_bus_id: str | None
    name: str | None


@dataclass(slots=True)
class Section:
    """One invocation of a tool as its output shows it.

    Attributes:
        tool: "nccl-tests", "rccl-tests", "param" or "osu"; becomes the id of the arm.
        line: where it begins, from 1.
        version: of the tool; ``nccl`` of NCCL or RCCL, ``driver`` and ``runtime`` of the GPUs.
        devices: the ranks that are listed, maybe not all.
        nranks: ranks, where the text or the rows tell.
        nhosts, ranks_per_host: hosts that they are on, ranks on the one with the most: where all are listed.
        settings: what was asked for, by the tool's words: "iters", "warmup iters", "graph", "validation" ...
        environment: variables worth recording, secrets already left out.
        rows: with ``arm`` "" and ``file`` 0, which are filled in when files are put together.
        row_lines: lines of the file that gave rows.
        average_GBs: the printed average bus bandwidth.
        average_fits: whether it is the mean of the rows' bus bandwidths; None where either is missing.
        out_of_bounds: wrong values in all, as the footer counts them.
        missing: what such output usually has and this has not: "footer", "devices" ...
        failure: the text of what ended it early; None where nothing tells.
    """

    tool: str
    line: int
    version: str | None = None
    nccl: str | None = None
    driver: str | None = None
    runtime: str | None = None
    devices: list[DeviceLine] = field(default_factory=list)
    nranks: int | None = None
    nhosts: int | None = None
    ranks_per_host: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    rows: list[Printed] = field(default_factory=list)
    row_lines: int = 0
    average_GBs: float | None = None
    average_fits: bool | None = None
    out_of_bounds: int | None = None
    missing: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def gpu(self) -> str | None:
        """The name of the GPUs, where all that have one share it."""
        names = {line.name for line in self.devices if line.name}
        return names.pop() if len(names) == 1 else None

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts that are listed."""
        return list(dict.fromkeys(line.host for line in self.devices if line.host))


@dataclass(slots=True)
class Reading:
    """A file as an importer understood it.

    Attributes:
        file: where it lies.
        format: name in IMPORTERS.
        sections: in the order of the file; some may have no rows.
        rows_rejected: lines that look like rows and contradict themselves or hold no numbers.
        problems: what is to be known, those of rejected lines among them, the first of each kind.
    """

    file: Path
    format: str
    sections: list[Section] = field(default_factory=list)
    rows_rejected: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def rows_taken(self) -> int:
        """Lines that gave rows."""
        return sum(section.row_lines for section in self.sections)


@dataclass(frozen=True, slots=True)
class Importer:
    """One entry of IMPORTERS: a format that can be read.

    Attributes:
        name: as typed after ``--format``.
        description: one line for help and docs.
        recognises: (the first ``SNIFFED_BYTES`` of a file, its name) to how sure it is, 0 for not at all; the
            surest importer reads the file.
        read: (file, name in COLLECTIVES given by the user or None) to what is in it.
    """

    name: str
    description: str
    recognises: Callable[[str, str], int]
    read: Callable[[Path, str | None], Reading]


SNIFFED_BYTES = 1 << 16

# Of a file with more only so much is read: these are enough for any comparison, and fit into memory.
MOST_ROWS = 100_000
MOST_SECTIONS = 2_000

# What the reason of a rejected row begins with.
REJECTED = "row rejected: "

# A line as readers hand it on: its number, and its text without prefixes of launchers, at most LONGEST_LINE.
Lines = Iterator[tuple[int, str]]
LONGEST_LINE = 4096

# Plain data of a section and a file for run.json and ``--json``.
Described = dict[str, Any]
