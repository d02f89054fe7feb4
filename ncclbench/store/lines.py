"""The lines of samples.jsonl: units, statuses and cold costs to bytes and back.

Encoding runs in the worker of rank 0, outside the clock; nothing here imports pandas.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from ncclbench.store.bounds import Count, Index, Time
from ncclbench.store.drills import ContractOutcome, DrillTrial
from ncclbench.store.model import Printed, Result, Times, Unit, UnitHealth
from ncclbench.store.probes import PairTest, RankTest, SubsetTest, WaitTest

# Decimals kept of a microsecond: 1 ns, finer than any clock read here.
_DECIMALS = 3

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
        others = (self.start_us, self.launch_us, *([] if self.device_us is None else [self.device_us]))
        if any(len(times) != n for times in others):
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
    return b"".join(encode_line(_rank_line(unit, rank)) for rank in range(unit.total_us.shape[0]))


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


def _rank_line(unit: Unit, rank: int) -> SamplesLine:
    return SamplesLine(
        case=unit.case,
        arm=unit.arm,
        epoch=unit.epoch,
        attempt=unit.attempt,
        rank=rank,
        k=unit.k,
        visits=list(unit.visits),
        turns=list(unit.turns),
        wrong=None if unit.wrong is None else unit.wrong[rank],
        start_us=_rounded(unit.start_us[rank]),
        launch_us=_rounded(unit.launch_us[rank]),
        device_us=None if unit.device_us is None else _rounded(unit.device_us[rank]),
        total_us=_rounded(unit.total_us[rank]),
        delay_us=None if unit.delay_us is None else round(unit.delay_us[rank], _DECIMALS),
        health=None if unit.health is None else unit.health[rank],
    )


def _rounded(times_us: Times) -> list[float]:
    rounded: list[float] = np.round(times_us, _DECIMALS).tolist()
    return rounded
