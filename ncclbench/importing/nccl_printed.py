"""Halves of rows as figures of a run: names as ncclbench has them, what is derived, what is no operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from ncclbench.errors import RequestError
from ncclbench.importing.nccl_check import Checks
from ncclbench.importing.nccl_draft import Draft
from ncclbench.importing.nccl_layout import Half, Row
from ncclbench.store.printed import OverRanks, Printed
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import find_dtype

OpFrom = Literal["text", "option", "derived"] | None
RanksFrom = Literal["header", "derived"] | None


@dataclass(frozen=True, slots=True)
class Known:
    """What a section's rows share, and how it is known."""

    op: str | None
    op_from: OpFrom
    nranks_from: RanksFrom
    over_ranks: OverRanks


def printed(row: Row, half: Half, draft: Draft, checks: Checks, known: Known) -> Printed:
    """A half of a row that was taken, as runs keep it; ``arm`` and ``file`` are filled in later."""
    derived = [
        name for name, source in (("op", known.op_from), ("nranks", known.nranks_from)) if source == "derived"
    ]
    time_us = half.time_us.value if half.time_us else None
    time_half_us = half.time_us.half if half.time_us else None
    reason = None
    if row.nbytes == 0:
        time_us, reason = None, "size 0: no operation"
    elif checks.is_cpu_time:
        time_us = (
            row.nbytes / half.algbw.value / 1e3 if half.algbw is not None and half.algbw.is_sharp else None
        )
        if time_us and half.algbw is not None:
            time_half_us = time_us * half.algbw.half / half.algbw.value
        derived.append("time_us")
        reason = None if time_us else "only CPU time was printed, and algbw is too small to tell the time"
    elif not time_us:
        time_us, reason = None, "time is less than the digits printed"
    return Printed(
        arm="",
        op=known.op,
        op_from=known.op_from,
        dtype=_dtype(row.dtype),
        redop=None if row.redop in ("", "none") or not _reduces(known.op) else row.redop,
        root=None if row.root is None or row.root < 0 else row.root,
        nbytes=row.nbytes,
        count=row.count,
        in_place=half.in_place,
        mode=_mode(draft),
        nranks=checks.nranks,
        nranks_from=known.nranks_from,
        time_us=time_us,
        algbw_GBs=half.algbw.value if half.algbw else None,
        busbw_GBs=half.busbw.value if half.busbw else None,
        time_half_us=time_half_us if time_us else None,
        algbw_half_GBs=half.algbw.half if half.algbw else None,
        busbw_half_GBs=half.busbw.half if half.busbw else None,
        wrong=half.wrong,
        over_ranks=known.over_ranks,
        failed=half.failed,
        max_error=half.max_error,
        min_us=half.min_us,
        max_us=half.max_us,
        p99_us=half.p99_us,
        derived=tuple(derived),
        line=row.line,
        reason=reason,
    )


def exact(rows: Iterable[Printed]) -> list[Printed]:
    """Rows of a source that holds numbers: their digits are no rounding."""
    return [
        msgspec.structs.replace(row, time_half_us=None, algbw_half_GBs=None, busbw_half_GBs=None)
        for row in rows
    ]


def _reduces(op: str | None) -> bool:
    """Whether an operator means anything; sendrecv prints one that nothing is done with."""
    return op not in COLLECTIVES or COLLECTIVES[op].reduces


def _dtype(printed: str | None) -> str | None:
    if printed is None:
        return None
    try:
        return find_dtype(printed).name
    except RequestError:
        return printed


def _mode(draft: Draft) -> str | None:
    """graph with -G; none of ours where each operation was waited for (-z); else back to back."""
    if draft.blocking:
        return None
    return "graph" if draft.settings.get("graph", "0") != "0" else "back-to-back"
