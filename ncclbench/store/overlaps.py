"""What an overlap run keeps: the times of one case in one epoch, a line of samples.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Size, Time, Word

# What is timed, each between a fence and the moment at which everything is done: communication alone,
# compute alone, both at once, and one after the other.
PARTS = ("comm", "compute", "together", "serial")

# By rank, then by repetition, microseconds; all ranks have as many.
TimesUs = Annotated[list[Annotated[list[Time], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class OverlapTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="overlap"):
    """One case on one arm in one epoch; repetition i of one part is paired with repetition i of the others.

    Attributes:
        op: name in COLLECTIVES; ``nbytes``: its size as in a sweep.
        arm: id of the arm in the plan.
        compute: name in kernels.KINDS.
        length: of the kernel, after calibration, the same on every rank.
        free_sms: streaming multiprocessors that the kernel leaves free; None on a CPU.
        mode: "eager", or "graph" where all of it was captured and replayed.
        epoch: from 0; ``order``: in which the parts came in it, names of PARTS.
        times_us: by name of PARTS.
        comm_done_us, compute_done_us: of "together": until the communication, and until the compute, was
            done; the later of both is about together's time. comm_done_us is None where that cannot be seen.
        wrong: elements of the results that were wrong, over all ranks.
    """

    op: Word
    nbytes: Size
    arm: Word
    compute: Word
    length: Count
    free_sms: Index | None
    mode: Literal["eager", "graph"]
    epoch: Index
    order: list[Word]
    times_us: dict[str, TimesUs]
    comm_done_us: TimesUs | None
    compute_done_us: TimesUs
    wrong: Index

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if set(self.times_us) != set(PARTS):
            return f"times_us has {sorted(self.times_us)} and not {sorted(PARTS)}"
        shapes = {tuple(map(len, times)) for times in (*self.times_us.values(), self.compute_done_us)}
        return None if len(shapes) == 1 else "not all its times are of the same ranks and repetitions"
