"""What is gathered of one invocation while its lines are read, and how much is gathered at most."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from ncclbench.importing.model import MOST_ROWS, MOST_SECTIONS, DeviceLine, Problem
from ncclbench.importing.nccl_layout import Columns
from ncclbench.store.printed import OverRanks

Tokens = list[str]

_MOST_PROBLEMS = 100


class Stage(IntEnum):
    """The parts of an invocation's output in their order: one that comes before its time begins another."""

    BEFORE = 0
    VERSION = 1
    STARTING = 2
    SETTINGS = 3
    DEVICES = 4
    HEADER = 5
    ROWS = 6
    FOOTER = 7
    CONCLUDED = 8


@dataclass(slots=True)
class Draft:
    """One invocation as its lines tell it.

    Attributes:
        line: where it begins.
        banner_op, mentioned: the collective it announced, and those that command lines before it named.
        asked: by collective, what the commands that ran it make of the ranks' times.
        said_ranks: ranks that the text before it speaks of.
        launched: whether a launcher of many processes is to be seen.
        groups: ranks listed in each group; ``listed``: the devices by (rank, group).
        listed_twice: ranks that are listed with another device, too.
        columns: by its header; None where there is none.
        rows: line and tokens of everything that looks like a row.
        joined: lines of rows that were found in two pieces.
        mixed: how it shows that another test wrote into its output, so that no row is known to be its own.
        average, out_of_bounds: as the footer has them; the first as text.
    """

    line: int
    stage: Stage = Stage.BEFORE
    tool: str = "nccl-tests"
    version: str | None = None
    nccl: str | None = None
    runtime: str | None = None
    banner_op: str | None = None
    mentioned: list[str] = field(default_factory=list)
    asked: dict[str, set[OverRanks]] = field(default_factory=dict)
    said_ranks: int | None = None
    launched: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    devices: list[DeviceLine] = field(default_factory=list)
    groups: Counter[int] = field(default_factory=Counter)
    listed: dict[tuple[int, int], DeviceLine] = field(default_factory=dict)
    listed_twice: set[tuple[int, int]] = field(default_factory=set)
    columns: Columns | None = None
    rows: list[tuple[int, Tokens]] = field(default_factory=list)
    joined: set[int] = field(default_factory=set)
    mixed: str | None = None
    average: str | None = None
    average_line: int = 1
    out_of_bounds: int | None = None
    blocking: bool = False
    elided: bool = False
    concluded: bool = False
    failure: str | None = None
    problems: list[Problem] = field(default_factory=list)

    def tell(self, number: int, reason: str) -> None:
        """Note a problem; of very many the first."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(number, reason))


@dataclass(slots=True)
class Budget:
    """What may still be gathered from a file: invocations and rows; ``rows_left_out`` were too many."""

    sections: int = MOST_SECTIONS
    rows: int = MOST_ROWS
    rows_left_out: int = 0
