"""Whether a run meets its requirements: by the interval of every row they speak of, never by the best one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ncclbench.hardware.machine import Machine
from ncclbench.hardware.reference import percent, reference
from ncclbench.hardware.requirements import Requirement
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import BANDWIDTH_MODES, LATENCY_MODES
from ncclbench.units import format_bytes

Row = Mapping[str, Any]
Answer = Literal["pass", "fail", "unclear"]

# The worst first.
_ANSWERS = ("fail", "unclear", "pass")

# A size asked for and the size measured differ by the rest of a division among ranks: by less than this.
_ROUNDED_AWAY = 1e-3

PRINTED = "a printed mean: no interval"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a requirement comes to, with the row that decides it.

    Attributes:
        requirement: as typed.
        answer: "pass", "fail", or "unclear" where it cannot be told.
        message: one line: the row, its value with its interval, and the bound.
        rows: how many rows had to hold.
        op, nbytes, dtype, mode, arm: of the deciding row; None where there is none.
        value, ci_low, ci_high: its value and 95 % interval, in ``unit``; None where there is none.
        bound: in ``unit``; None where it is a share of an unknown peak.
        unit: "GB/s" or "us".
        basis: what the interval is of.
    """

    requirement: str
    answer: Answer
    message: str
    rows: int = 0
    op: str | None = None
    nbytes: int | None = None
    dtype: str | None = None
    mode: str | None = None
    arm: str | None = None
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    bound: float | None = None
    unit: str = ""
    basis: str = ""

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {name: getattr(self, name) for name in self.__slots__}


def judge_requirements(
    rows: Sequence[Row], machine: Machine, requirements: Iterable[Requirement]
) -> list[Judged]:
    """Every requirement against the rows of one run.

    Rows are those of the operation and size in the mode that answers best (back-to-back for a bandwidth,
    isolated for a time), on every arm, dtype and form: each of them must hold. A row passes where its whole
    interval is on the right side of the bound, and fails where it is on the wrong one.

    Args:
        rows: as ``stats.rows`` makes them.
        machine: what they were measured on.
    """
    return [_judge(rows, machine, requirement) for requirement in requirements]


def worst(judged: Iterable[Judged]) -> Judged:
    """The one that decides over several runs of the same requirement; ``rows`` are all together."""
    found = list(judged)
    decisive = min(found, key=lambda each: _ANSWERS.index(each.answer))
    return replace(decisive, rows=sum(each.rows for each in found))


def overall(judged: Iterable[Judged], unclear: Literal["pass", "fail"]) -> Literal["pass", "fail"]:
    """The answer over all requirements, with "unclear" counted as one is told."""
    answers = {each.answer for each in judged}
    return "fail" if "fail" in answers or ("unclear" in answers and unclear == "fail") else "pass"


def _judge(rows: Sequence[Row], machine: Machine, requirement: Requirement) -> Judged:
    chosen = [row for op in _ops(rows, requirement) for row in _rows_of(rows, op, requirement)]
    if not chosen:
        return Judged(requirement.text, "unclear", _not_measured(rows, requirement), unit=requirement.unit)
    each = [_judge_row(row, machine, requirement) for row in chosen]
    first = min(each, key=lambda one: (_ANSWERS.index(one.answer), _slack(one)))
    alike, others = sum(one.answer == first.answer for one in each) - 1, len(each) - 1
    message = first.message
    if alike:
        which = f"{alike} of the other {others}" if alike < others else "the other"
        message += f"; {which}{f' {others}' if 1 < others == alike else ''} too"
    return replace(first, rows=len(each), message=message)


def _ops(rows: Sequence[Row], requirement: Requirement) -> list[str]:
    """The operations it speaks of, in the order of the rows."""
    ops = list(dict.fromkeys(row["op"] for row in rows if row["op"] in COLLECTIVES))
    return [
        op
        for op in ops
        if requirement.op in (None, op) and (requirement.is_latency or COLLECTIVES[op].has_data)
    ]


def _rows_of(rows: Sequence[Row], op: str, requirement: Requirement) -> list[Row]:
    """The rows of one operation that must hold: its size, in the first mode that measured it."""
    own = [row for row in rows if row["op"] == op and row["status"] != "skipped"]
    if not requirement.is_latency:
        own = [row for row in own if row["nbytes"]]
    if requirement.nbytes is not None:
        least = requirement.nbytes * (1 - _ROUNDED_AWAY)
        own = [row for row in own if least < (row["nbytes"] or 0) <= requirement.nbytes]
    order = LATENCY_MODES if requirement.is_latency else BANDWIDTH_MODES
    measured = [row for row in own if _is_measured(row)]
    modes = [mode for mode in (*order, None) if any(row["mode"] == mode for row in measured)]
    if not modes:
        # Asked for and failed altogether: it must not pass by being away.
        largest = max((row["nbytes"] or 0 for row in own), default=0)
        return [row for row in own if (row["nbytes"] or 0) == largest]
    size = max(row["nbytes"] for row in measured if row["mode"] == modes[0])
    return [row for row in own if row["mode"] == modes[0] and row["nbytes"] == size]


def _is_measured(row: Row) -> bool:
    return row["status"] in ("ok", "wrong") and row["median_us"] is not None


def _judge_row(row: Row, machine: Machine, requirement: Requirement) -> Judged:
    judged = Judged(
        requirement=requirement.text,
        answer="unclear",
        message="",
        op=row["op"],
        nbytes=row["nbytes"],
        dtype=row["dtype"],
        mode=row["mode"],
        arm=row["arm"],
        unit=requirement.unit,
    )
    name = _row_name(row)

    def answered(answer: Answer, text: str, **found: Any) -> Judged:
        return replace(judged, answer=answer, message=f"{name}: {text}", **found)

    if row["status"] == "wrong":
        return answered("fail", "WRONG DATA, which voids its speed")
    if not _is_measured(row):
        return answered("unclear", f"not measured: {row['reason'] or row['status']}")
    if not requirement.is_latency and row["nranks"] == 1:
        return answered("unclear", "1 rank: bus bandwidth is 0 by definition")
    value, low, high, basis = _value(row, requirement)
    if value is None:
        return answered("unclear", "ranks share a GPU: no bandwidth" if row["shared_gpu"] else "no bandwidth")
    found: dict[str, Any] = {"value": value, "ci_low": low, "ci_high": high, "basis": basis}
    bound, bound_text = requirement.bound, f"{requirement.bound:.4g} {requirement.unit}"
    if requirement.of_peak:
        peak = reference(row, machine)
        if peak.peak_GBs is None:
            return answered("unclear", f"no reference: {peak.why_none}", **found)
        bound *= peak.peak_GBs
        bound_text = f"{percent(requirement.bound)} of the {peak.peak_text}"
    found["bound"] = bound
    unit, right, wrong = (
        requirement.unit,
        *(("at most", "above") if requirement.is_latency else ("at least", "below")),
    )
    if low is None or high is None:
        text = f"{requirement.metric} {value:.4g} {unit}, to be {right} {bound_text}"
        return answered("unclear", f"{text}: one epoch has no interval, measure more with --epochs", **found)
    if basis == PRINTED:
        text, mend = f"{requirement.metric} {value:.4g} {unit} ({basis})", "it may be rounded to that"
    else:
        text = f"{requirement.metric} {value:.4g} [{low:.4g}, {high:.4g}] {unit}"
        mend = "more --epochs or --precision narrow it"
    holds, breaks = _sides(low, high, bound, requirement)
    if holds:
        return answered("pass", f"{text}, {right} {bound_text}", **found)
    if breaks:
        return answered("fail", f"{text}, {wrong} {bound_text}", **found)
    return answered("unclear", f"{text} reaches over {bound_text}: {mend}", **found)


def _sides(low: float, high: float, bound: float, requirement: Requirement) -> tuple[bool, bool]:
    """Whether a whole interval is on the right side, and whether it is on the wrong one."""
    if requirement.is_latency:
        return high <= bound, low > bound
    return low >= bound, high < bound


def _value(row: Row, requirement: Requirement) -> tuple[float | None, float | None, float | None, str]:
    """Value, interval and what that is of; a bandwidth's interval is that of its time, turned round."""
    key = {"time": "median_us", "busbw": "busbw_GBs", "algbw": "algbw_GBs"}[requirement.metric]
    value = row[key]
    if value is None:
        return None, None, None, ""
    if row["clock"] == "imported":
        half = _half_a_digit(value)
        if key in (row.get("derived") or ()):
            half = value * _half_a_digit(row["median_us"]) / row["median_us"]
        return float(value), value - half, value + half, PRINTED
    low_us, high_us, median_us = row["ci_low_us"], row["ci_high_us"], row["median_us"]
    basis = "95 % interval of the median over epochs"
    if low_us is None or high_us is None:
        return float(value), None, None, "one epoch"
    if requirement.is_latency:
        return float(value), float(low_us), float(high_us), basis
    return (
        float(value),
        value * median_us / high_us,
        value * median_us / low_us if low_us else math.inf,
        basis,
    )


def _half_a_digit(value: float) -> float:
    """Half a unit of the last digit that a printed number can have had: of 483.05 it is 0.005, of 480 0.5."""
    digits = repr(float(value)).partition(".")[2]
    return 0.5 if digits == "0" or not digits.isdigit() else 0.5 * 10.0 ** -len(digits)


def _slack(judged: Judged) -> float:
    """How far from failing a row is, the nearest first; what has no value goes before all that has."""
    if judged.value is None or judged.bound is None:
        return -math.inf
    ratio = judged.value / judged.bound
    return ratio if judged.unit == "GB/s" else 1 / ratio if ratio else math.inf


def _not_measured(rows: Sequence[Row], requirement: Requirement) -> str:
    """What is missing, with the sizes that there are."""
    wanted = requirement.op or "any collective"
    if requirement.nbytes is None:
        return f"{wanted} was not measured"
    sizes = sorted(
        {row["nbytes"] for row in rows if requirement.op in (None, row["op"]) and _is_measured(row)}
    )
    near = sorted(sizes, key=lambda size: abs(size - requirement.nbytes))[:1] if sizes else []
    hint = f", the nearest size that was is {format_bytes(near[0])}" if near else ""
    return f"{wanted} was not measured at {format_bytes(requirement.nbytes)}{hint}"


def _row_name(row: Row) -> str:
    words = [
        row["op"],
        row["dtype"],
        row["redop"],
        format_bytes(row["nbytes"]) if row["nbytes"] else None,
        row["mode"],
    ]
    if row["in_place"] is not None and row["clock"] == "imported":
        words.append("in place" if row["in_place"] else "out of place")
    return f"{' '.join(str(word) for word in words if word is not None)} on {row['arm']}"
