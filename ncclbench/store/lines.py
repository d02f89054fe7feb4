"""The lines of samples.jsonl: units, statuses and cold costs to bytes and back.

Encoding runs in the worker of rank 0, outside the clock; nothing here imports pandas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
import numpy as np

from ncclbench.store.bounds import Count, Index, Time, Word
from ncclbench.store.drills import ContractOutcome, DrillTrial
from ncclbench.store.model import Result, Times, Unit, UnitHealth
from ncclbench.store.printed import Printed
from ncclbench.store.probes import PairTest, RankTest, SubsetTest, WaitTest

# Decimals kept of a microsecond: 1 ns, finer than any clock read here.
_DECIMALS = 3
# Enough that what is done once for all of them costs nothing, and no second copy of a unit.
_RANKS_AT_ONCE = 256

_Samples = Annotated[list[Time], msgspec.Meta(min_length=1)]

Status = Literal["skipped", "unavailable", "failed"]


class SamplesLine(msgspec.Struct, tag_field="type", tag="samples", omit_defaults=True):
    """One case on one arm in one epoch on one rank; keys as in docs/results-format.md."""

    case: str
    arm: str
    epoch: Index
    attempt: Index
    rank: Index
    k: Count
    visits: Annotated[list[Count], msgspec.Meta(min_length=1)]
    turns: Annotated[list[Index], msgspec.Meta(min_length=1)]
    wrong: Index | None
    start_us: _Samples
    launch_us: _Samples
    device_us: _Samples | None
    total_us: _Samples
    delay_us: Time | None = None
    health: UnitHealth | None = None

    def impossible(self) -> str | None:
        """What is wrong with the arrays' lengths; None where they agree."""
        n = len(self.total_us)
        on_device = self.total_us if self.device_us is None else self.device_us
        if not len(self.start_us) == len(self.launch_us) == len(on_device) == n:
            return "its arrays of times have different lengths"
        if sum(self.visits) != n:
            return f"its visits sum to {sum(self.visits)}, but it holds {n} samples"
        if len(self.turns) != len(self.visits):
            return f"it has {len(self.visits)} visits and {len(self.turns)} turns"
        return None


class StatusLine(msgspec.Struct, tag_field="type", tag="status"):
    """A case that will not be measured on an arm, and why."""

    case: str
    arm: str
    status: Status
    reason: str


class ColdLine(msgspec.Struct, tag_field="type", tag="cold"):
    """What a rank paid before the first timed operation of an arm in an epoch; null where not seen."""

    arm: str
    epoch: Index
    attempt: Index
    rank: Index
    init_us: Time | None
    first_op_us: Time | None
    topology: Word = "world"


class StopLine(msgspec.Struct, tag_field="type", tag="stop"):
    """A case has all the epochs it is to get, and why; fields as in ``store.model.Stop``."""

    case: str
    epochs: Index
    why: Literal["precision", "budget", "epochs"]
    half_width: Annotated[float, msgspec.Meta(ge=0)] | None


Line = (
    SamplesLine
    | StatusLine
    | ColdLine
    | StopLine
    | Printed
    | PairTest
    | RankTest
    | WaitTest
    | SubsetTest
    | DrillTrial
    | ContractOutcome
    | Result
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """One line with its newline."""
    return _encoder.encode(line) + b"\n"


def encode_unit(unit: Unit) -> bytes:
    """All ranks of a unit, one line each, times rounded to 1 ns."""
    firsts = range(0, len(unit.total_us), _RANKS_AT_ONCE)
    return b"".join(encode_line(line) for first in firsts for line in _rank_lines(unit, first))


def decode_line(text: bytes) -> Line:
    """Inverse of ``encode_line``.

    Raises:
        ValueError, RecursionError: not such a line; the text says what and where in it.
    """
    line = _decoder.decode(text)
    impossible = None if isinstance(line, StatusLine | ColdLine | StopLine | Printed) else line.impossible()
    if impossible is not None:
        raise ValueError(impossible)
    return line


def _rank_lines(unit: Unit, first: int) -> Iterator[SamplesLine]:
    """The lines of some ranks from ``first`` on: numpy spends far more on a call than on a few samples."""
    some = slice(first, first + _RANKS_AT_ONCE)
    starts, launches, totals = (
        _rounded(each[some]) for each in (unit.start_us, unit.launch_us, unit.total_us)
    )
    on_device = None if unit.device_us is None else _rounded(unit.device_us[some])
    visits, turns = list(unit.visits), list(unit.turns)
    for index, total_us in enumerate(totals):
        rank = first + index
        yield SamplesLine(
            case=unit.case,
            arm=unit.arm,
            epoch=unit.epoch,
            attempt=unit.attempt,
            rank=rank,
            k=unit.k,
            visits=visits,
            turns=turns,
            wrong=None if unit.wrong is None else unit.wrong[rank],
            start_us=starts[index],
            launch_us=launches[index],
            device_us=None if on_device is None else on_device[index],
            total_us=total_us,
            delay_us=None if unit.delay_us is None else round(unit.delay_us[rank], _DECIMALS),
            health=None if unit.health is None else unit.health[rank],
        )


def _rounded(times_us: Times) -> list[list[float]]:
    rounded: list[list[float]] = np.round(times_us, _DECIMALS).tolist()
    return rounded
