"""Whether a run meets its requirements: by the interval of every row they speak of, never by the best one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ncclbench.environment.host import format_ranges
from ncclbench.hardware.chosen import chosen_rows, is_measured, not_measured
from ncclbench.hardware.machine import Machine
from ncclbench.hardware.reference import percent, reference
from ncclbench.hardware.requirements import Requirement
from ncclbench.stats.imported import CLOCK
from ncclbench.units import digits_apart, format_bytes, format_digits

Row = Mapping[str, Any]
Answer = Literal["pass", "fail", "unclear"]

# The worst first.
_ANSWERS = ("fail", "unclear", "pass")

PRINTED = "a printed mean: no interval"

MEASURED = "95 % interval of the median over epochs"
ONE_EPOCH = "one epoch: no interval"

# What times are told in from so many microseconds on.
_TIME_UNITS = ((1e6, "s"), (1e3, "ms"))
# Of a printed value, half a unit of its last digit.
_HALVES = {"median_us": "time_half_us", "busbw_GBs": "busbw_half_GBs", "algbw_GBs": "algbw_half_GBs"}

# How far a printed mean is from itself another time, at the least: of large messages, and of smaller ones.
# nccl-tests times every size twice, out of place and in place, which for all_reduce is one and the same work.
# In 25 public logs the two differ by more than this at 5 of 112 sizes from 64 MiB on, and at 14 of 257 below.
LARGE_BYTES = 64 << 20
REPEATABLE, REPEATABLE_SMALL = 0.02, 0.1


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
        rounding_low, rounding_high: what a printed value can have been rounded from; None where it was not.
        bound: in ``unit``; None where it is a share of an unknown peak.
        unit: "GB/s" or "us".
        basis: what the interval is of, or why there is none.
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
    rounding_low: float | None = None
    rounding_high: float | None = None
    bound: float | None = None
    unit: str = ""
    basis: str = ""

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {name: getattr(self, name) for name in self.__slots__}


def judge_requirements(
    rows: Sequence[Row], machine: Machine, requirements: Iterable[Requirement], files: Sequence[str] = ()
) -> list[Judged]:
    """Every requirement against the rows of one run.

    Each of the rows that ``chosen_rows`` finds must hold. A row passes where its whole interval is on the
    right side of the bound, and fails where it is on the wrong one; a printed mean has no interval, and is
    unclear where the bound is as near as another run may be (``REPEATABLE``).

    Args:
        rows: as ``stats.rows`` makes them.
        machine: what they were measured on.
        files: names of the files of an imported run, which its rows have by number.
    """
    return [_judge(rows, machine, requirement, files) for requirement in requirements]


def worst(judged: Iterable[Judged]) -> Judged:
    """The one that decides over several runs of the same requirement; ``rows`` are all together."""
    found = list(judged)
    decisive = min(found, key=lambda each: _ANSWERS.index(each.answer))
    return replace(decisive, rows=sum(each.rows for each in found))


def overall(judged: Iterable[Judged], unclear: Literal["pass", "fail"]) -> Literal["pass", "fail"]:
    """The answer over all requirements, with "unclear" counted as one is told."""
    answers = {each.answer for each in judged}
    return "fail" if "fail" in answers or ("unclear" in answers and unclear == "fail") else "pass"


def _judge(rows: Sequence[Row], machine: Machine, requirement: Requirement, files: Sequence[str]) -> Judged:
    chosen = chosen_rows(rows, requirement)
    if not chosen:
        return Judged(requirement.text, "unclear", not_measured(rows, requirement), unit=requirement.unit)
    told = _telling(chosen, files)
    each = [_judge_row(row, machine, requirement, told(row)) for row in chosen]
    first = min(each, key=lambda one: (_ANSWERS.index(one.answer), _slack(one)))
    alike, others = sum(one.answer == first.answer for one in each) - 1, len(each) - 1
    message = first.message
    if alike:
        which = f"{alike} of the other {others}" if alike < others else "the other"
        message += f"; {which}{f' {others}' if 1 < others == alike else ''} too"
    return replace(first, rows=len(each), message=message)


def _judge_row(row: Row, machine: Machine, requirement: Requirement, name: str) -> Judged:
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
    held_back = _held_back(row)

    def answered(answer: Answer, text: str, **found: Any) -> Judged:
        return replace(judged, answer=answer, message=f"{name}: {text}{held_back}", **found)

    if row["status"] == "wrong":
        return answered("fail", "WRONG DATA, which voids its speed")
    if not is_measured(row):
        return answered("unclear", f"not measured: {row['reason'] or row['status']}")
    if not requirement.is_latency and row["nranks"] == 1:
        return answered("unclear", "1 rank: bus bandwidth is 0 by definition")
    known = _value(row, requirement)
    if known is None:
        return answered("unclear", "ranks share a GPU: no bandwidth" if row["shared_gpu"] else "no bandwidth")
    value, low, high, basis = known
    printed = basis == PRINTED
    ends = ("rounding_low", "rounding_high") if printed else ("ci_low", "ci_high")
    found: dict[str, Any] = {"value": value, ends[0]: low, ends[1]: high, "basis": basis}
    bound = requirement.bound
    if requirement.of_peak:
        peak = reference(row, machine)
        if peak.peak_GBs is None:
            return answered("unclear", f"no reference: {peak.why_none}", **found)
        bound *= peak.peak_GBs
    found["bound"] = bound
    digits = max(digits_apart(each, bound) for each in (value, low, high) if each is not None)
    bound_text = " ".join(_told((bound,), requirement.unit, digits))
    if requirement.of_peak:
        bound_text = f"{percent(requirement.bound)} of the {peak.peak_text}"
    right, wrong = ("at most", "above") if requirement.is_latency else ("at least", "below")
    if low is None or high is None:
        told, unit = _told((value,), requirement.unit, digits)
        text = f"{requirement.metric} {told} {unit}, to be {right} {bound_text}"
        return answered("unclear", f"{text}: one epoch has no interval, measure more with --epochs", **found)
    told, *ends_told, unit = _told((value, low, high), requirement.unit, digits)
    if printed:
        text = f"{requirement.metric} {told} {unit} ({basis})"
        apart = REPEATABLE if (row["nbytes"] or 0) >= LARGE_BYTES else REPEATABLE_SMALL
        near_low, near_high = value * (1 - apart), value * (1 + apart)
        if any(_sides(near_low, near_high, bound, requirement)):
            doubt = f"may be rounded from the other side of {bound_text}: too few digits were printed"
        else:
            doubt = f"is within {percent(apart)} of {bound_text}: another run may be on its other side"
        low, high = min(low, near_low), max(high, near_high)
    else:
        text = f"{requirement.metric} {told} [{', '.join(ends_told)}] {unit}"
        doubt = f"reaches over {bound_text}: more --epochs or --precision narrow it"
    holds, breaks = _sides(low, high, bound, requirement)
    if holds:
        return answered("pass", f"{text}, {right} {bound_text}", **found)
    if breaks:
        return answered("fail", f"{text}, {wrong} {bound_text}", **found)
    return answered("unclear", f"{text} {doubt}", **found)


def _told(values: Sequence[float], unit: str, digits: int) -> list[str]:
    """Values in the unit that suits the first of them, which comes last: 28.65, 27.9, 29.1, ms."""
    factor, name = next((each for each in _TIME_UNITS if unit == "us" and values[0] >= each[0]), (1.0, unit))
    return [*(format_digits(value / factor, digits) for value in values), name]


def _sides(low: float, high: float, bound: float, requirement: Requirement) -> tuple[bool, bool]:
    """Whether all of it is on the right side, and whether all is on the wrong one."""
    if requirement.is_latency:
        return high <= bound, low > bound
    return low >= bound, high < bound


def _value(row: Row, requirement: Requirement) -> tuple[float, float | None, float | None, str] | None:
    """Value, its ends and what these are of; None without a bandwidth, whose interval is that of its time."""
    key = {"time": "median_us", "busbw": "busbw_GBs", "algbw": "algbw_GBs"}[requirement.metric]
    value = row[key]
    if value is None:
        return None
    if row["clock"] == CLOCK:
        half = row[_HALVES[key]] or 0.0  # None where the source is exact
        if key in (row.get("derived") or ()):
            half = value * (row["time_half_us"] or 0.0) / row["median_us"]
        return float(value), value - half, value + half, PRINTED
    low_us, high_us, median_us = row["ci_low_us"], row["ci_high_us"], row["median_us"]
    if low_us is None or high_us is None:
        return float(value), None, None, ONE_EPOCH
    if requirement.is_latency:
        return float(value), float(low_us), float(high_us), MEASURED
    highest = value * median_us / low_us if low_us else math.inf
    return float(value), value * median_us / high_us, highest, MEASURED


def _slack(judged: Judged) -> float:
    """How far from failing a row is, the nearest first; what has no value goes before all that has."""
    if judged.value is None or judged.bound is None:
        return -math.inf
    ratio = judged.value / judged.bound
    return ratio if judged.unit == "GB/s" else 1 / ratio if ratio else math.inf


def _held_back(row: Row) -> str:
    """What kept the GPUs of a row from what they can do; "" for nothing."""
    if not row["throttled"]:
        return ""
    ranks = row["throttled_ranks"]
    return (
        f"; throttled: {', '.join(row['throttled'])} on rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)}"
    )


def _telling(rows: Sequence[Row], files: Sequence[str]) -> Callable[[Row], str]:
    """What each row is called: what tells it from the others of the requirement, with the usual words."""
    several_files = len({row.get("file") for row in rows}) > 1
    several_ranks = len({row["nranks"] for row in rows}) > 1

    def name(row: Row) -> str:
        size = format_bytes(row["nbytes"]) if row["nbytes"] else None
        words = [row["op"], row["dtype"], row["redop"], size, row["mode"]]
        if row["in_place"] is not None and row["clock"] == CLOCK:
            words.append("in place" if row["in_place"] else "out of place")
        if several_ranks:
            words.append(f"of {row['nranks'] or 'unknown'} ranks")
        text = f"{' '.join(str(word) for word in words if word is not None)} on {row['arm']}"
        file = row.get("file")
        if several_files and isinstance(file, int) and 0 <= file < len(files):
            return f"{text} in {files[file]}"
        return text

    return name
