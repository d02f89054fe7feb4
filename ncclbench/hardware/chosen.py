"""Which rows a requirement speaks of: of every form that was asked for, in its best mode, at one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.hardware.requirements import Requirement
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import BANDWIDTH_MODES, LATENCY_MODES
from ncclbench.units import format_bytes

Row = Mapping[str, Any]

# What makes rows another form of one operation: each of them is required on its own.
_FORM = ("file", "section", "arm", "nranks", "dtype", "redop", "root", "topology", "async", "in_place")

# Whole elements, and the 16 bytes that nccl-tests keeps the part of a rank aligned to.
_TRIMMED_TO = (1, 2, 4, 8, 16)

_UNMEASURED = "unmeasured"


def chosen_rows(rows: Sequence[Row], requirement: Requirement) -> list[Row]:
    """The rows that must hold, in the order of operations and forms; none where nothing was measured there.

    Of every form the size asked for, or else the largest that was measured of it, in the mode that answers
    best (back-to-back for a bandwidth, isolated for a time). A form without that size is in the list too,
    with the status "unmeasured": it must not pass by being away. What is skipped does not exist.
    """
    forms: dict[tuple[Any, ...], list[Row]] = {}
    for op in _ops(rows, requirement):
        for row in rows:
            has_size = requirement.is_latency or row["nbytes"]
            if row["op"] == op and row["status"] != "skipped" and has_size:
                forms.setdefault((op, *(row.get(key) for key in _FORM)), []).append(row)
    found = [row for own in forms.values() for row in _of_form(own, requirement)]
    return found if any(row["status"] != _UNMEASURED for row in found) else []


def not_measured(rows: Sequence[Row], requirement: Requirement) -> str:
    """What is missing where no row was chosen, with the nearest size that there is."""
    wanted = requirement.op or "any collective"
    if requirement.nbytes is None:
        return f"{wanted} was not measured"
    own = [row for row in rows if requirement.op in (None, row["op"])]
    near = _nearest(own, requirement.nbytes)
    return f"{wanted} was not measured at {format_bytes(requirement.nbytes)}{f', {near}' if near else ''}"


def is_measured(row: Row) -> bool:
    """Whether a row has a time, be its data right or wrong."""
    return row["status"] in ("ok", "wrong") and row["median_us"] is not None


def _ops(rows: Sequence[Row], requirement: Requirement) -> list[str]:
    """The operations it speaks of, in the order of the rows."""
    ops = list(dict.fromkeys(row["op"] for row in rows if row["op"] in COLLECTIVES))
    return [
        op
        for op in ops
        if requirement.op in (None, op) and (requirement.is_latency or COLLECTIVES[op].has_data)
    ]


def _of_form(own: Sequence[Row], requirement: Requirement) -> list[Row]:
    sized = [row for row in own if _is_of_size(row, requirement.nbytes)]
    if requirement.nbytes is not None and not sized:
        reason = _nearest(own, requirement.nbytes)
        return [{**own[0], "nbytes": requirement.nbytes, "status": _UNMEASURED, "reason": reason}]
    # What failed was asked for; what is not to be had here was not.
    tried = [row for row in sized if row["status"] != "unavailable"]
    order = LATENCY_MODES if requirement.is_latency else BANDWIDTH_MODES
    mode = next((mode for mode in order if any(row["mode"] == mode for row in tried)), None)
    of_mode = [row for row in tried if row["mode"] == mode] or sized
    size = max(row["nbytes"] or 0 for row in [row for row in of_mode if is_measured(row)] or of_mode)
    return [row for row in of_mode if (row["nbytes"] or 0) == size]


def _is_of_size(row: Row, asked: int | None) -> bool:
    """Whether a row's size is the one asked for, or what dividing that among the ranks has left of it."""
    nbytes = row["nbytes"]
    if asked is None or nbytes == asked:
        return True
    steps = (unit * ranks for unit in _TRIMMED_TO for ranks in (1, row["nranks"] or 1))
    return bool(nbytes) and any(asked // step * step == nbytes for step in steps)


def _nearest(rows: Sequence[Row], asked: int) -> str | None:
    sizes = sorted({row["nbytes"] for row in rows if is_measured(row)})
    near = min(sizes, key=lambda size: abs(size - asked), default=None)
    return near and f"the nearest size that was is {format_bytes(near)}"
