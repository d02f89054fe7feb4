"""Figures that other tools printed, as lines of samples.jsonl; importers load this without numpy."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Rate, Size, Time, Word

# What a printed time is of the ranks' own.
OverRanks = Literal["mean", "median", "rank 0", "min", "max"]


class Printed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="printed"):
    """One figure of another tool: the mean time of an operation over many, of which no samples are known.

    It is a line of samples.jsonl as it stands. What the source does not tell is None.

    Attributes:
        arm: id of the arm it was put under.
        op: name of the collective as ncclbench has it, or the other tool's where ncclbench has none.
        op_from: where that is known from: the text, an option of the import, or layout and factor.
        dtype, redop, root, count, in_place, nbytes: as in ``plan.model.Case``.
        mode: name in MODES; None where the tool's way of timing is none of them.
        nranks: ranks in the group.
        nranks_from: where that is known from: what the text says, or busbw over algbw.
        time_us: the mean time of one operation as printed; None in an operation that was none.
        over_ranks: what that is of the ranks' own means.
        algbw_GBs, busbw_GBs: as printed.
        time_half_us, algbw_half_GBs, busbw_half_GBs: half a unit of the last digit that was printed of each;
            None where the source holds numbers and no printed text.
        wrong: wrong elements; None where not checked, or not counted.
        failed: the tool's own check failed, and it does not print how many elements were wrong.
        max_error: the largest deviation, where the tool printed that in place of a count.
        min_us, max_us, p50_us, p99_us: over iterations or ranks, where the tool printed them.
        derived: names of the fields that were derived and not read.
        file: index into the imported files; ``section``: into its invocations; ``line``: of the file, from 1.
        repeat: how many equal cases stood before it in the same output, as a tool's cycles give.
        reason: why its status is not simply "ok" (a size of 0 is no operation), or what else to know of it.
    """

    arm: Word
    op: Word | None
    op_from: Literal["text", "option", "derived"] | None
    dtype: Word | None
    redop: Word | None
    root: Index | None
    nbytes: Size
    count: Size | None
    in_place: bool | None
    mode: Word | None
    nranks: Count | None
    nranks_from: Literal["header", "derived"] | None
    time_us: Time | None
    algbw_GBs: Rate | None
    busbw_GBs: Rate | None
    wrong: Index | None
    over_ranks: OverRanks = "mean"
    time_half_us: Time | None = None
    algbw_half_GBs: Rate | None = None
    busbw_half_GBs: Rate | None = None
    failed: bool = False
    max_error: Rate | None = None
    min_us: Time | None = None
    max_us: Time | None = None
    p50_us: Time | None = None
    p99_us: Time | None = None
    derived: tuple[Word, ...] = ()
    file: Index = 0
    section: Index = 0
    line: Count = 1
    repeat: Index = 0
    reason: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
