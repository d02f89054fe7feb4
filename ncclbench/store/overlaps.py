"""What an overlap run keeps: the times of one case in one epoch, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Size, Time, Word

# What is timed, each between a fence and the moment at which everything is done: communication alone,
# compute alone, both at once, and one after the other.
PARTS = ("comm", "compute", "together", "serial")

# By rank, then by repetition, microseconds; all ranks have as many.
TimesUs = Annotated[list[Annotated[list[Time], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class OverlapCase(msgspec.Struct, frozen=True, kw_only=True):
    """What is communicated, on which arm, and what is computed beside it.

    Attributes:
        op: name in COLLECTIVES; ``dtype``, ``redop``, ``nbytes``: as in a sweep.
        arm: id of the arm in the plan.
        compute: name in kernels.KINDS.
        free_sms: streaming multiprocessors that the kernel leaves free; None on a CPU.
        mode: "eager", or "graph" where all of it was captured and replayed.
    """

    op: Word
    dtype: Word
    redop: Word | None
    nbytes: Size
    arm: Word
    compute: Word
    free_sms: Index | None
    mode: Literal["eager", "graph"]

    @property
    def case(self) -> tuple[str, str, str | None, int, str, str, int | None, str]:
        """Equal for lines that tell of one case on one arm."""
        return (
            self.op,
            self.dtype,
            self.redop,
            self.nbytes,
            self.arm,
            self.compute,
            self.free_sms,
            self.mode,
        )


class OverlapTimes(OverlapCase, frozen=True, kw_only=True, tag_field="type", tag="overlap"):
    """One case in one epoch; repetition i of one part is paired with repetition i of the others.

    Attributes:
        implementation: class and backend name of the group that it really was.
        length: of the kernel, after calibration, the same on every rank.
        epoch: from 0.
        order: in which the parts came, names of PARTS, one repetition after the other.
        times_us: by name of PARTS.
        comm_done_us, compute_done_us: of "together": until the communication, and until the compute, was
            done, since the beginning of both; None where that cannot be seen.
        wrong: elements of the results that were wrong, over all ranks.
        compute_wrong: ranks on which the kernel's result was wrong.
    """

    implementation: Word
    length: Count
    epoch: Index
    order: list[Word]
    times_us: dict[str, TimesUs]
    comm_done_us: TimesUs | None
    compute_done_us: TimesUs | None
    wrong: Index
    compute_wrong: Index

    @property
    def nranks(self) -> int:
        """Ranks it has times of."""
        return len(self.times_us[PARTS[0]])

    @property
    def repetitions(self) -> int:
        """How often each part was timed."""
        return len(self.times_us[PARTS[0]][0])

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if set(self.times_us) != set(PARTS):
            return f"times_us has {sorted(self.times_us)} and not {sorted(PARTS)}"
        shapes = {tuple(map(len, times)) for times in self._all_times()}
        if len(shapes) > 1 or len(set(next(iter(shapes)))) > 1:
            return "not all its times are of the same ranks and repetitions"
        rows = [self.order[first : first + len(PARTS)] for first in range(0, len(self.order), len(PARTS))]
        if len(rows) != self.repetitions or any(sorted(row) != sorted(PARTS) for row in rows):
            return f"order does not name each part once in each of {self.repetitions} repetitions"
        return None

    def _all_times(self) -> Iterator[list[list[float]]]:
        yield from self.times_us.values()
        for times in (self.comm_done_us, self.compute_done_us):
            if times is not None:
                yield times


class OverlapSkip(OverlapCase, frozen=True, kw_only=True, tag_field="type", tag="overlap-skip"):
    """A case that was not measured, and why.

    Attributes:
        status: "skipped" where it cannot be on this machine, "failed" where it was tried.
    """

    status: Literal["skipped", "failed"]
    reason: Annotated[str, msgspec.Meta(max_length=1000)]

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


OverlapResult = OverlapTimes | OverlapSkip
OVERLAP_LINES = (OverlapTimes, OverlapSkip)
