"""Sides of which one holds what other tools printed: means against means, and never a verdict.

A printed mean has no samples behind it, so nothing tells how far it would be from itself another time.
The ratio is shown, the verdict is "unclear". On the side that was measured the same number is taken: the
mean over iterations and ranks of back-to-back batches, which is what nccl-tests prints by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ncclbench.compare.rows import NO_RATIO, Subject, Times, comparison_row
from ncclbench.compare.sides import Side
from ncclbench.compare.verdict import Question, geometric_mean, judge
from ncclbench.errors import RequestError
from ncclbench.plan.model import Case
from ncclbench.stats.imported import CLOCK, MEANS_ONLY, imported_row
from ncclbench.stats.intervals import Margin
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

Row = dict[str, Any]

# What other tools time.
MODE = "back-to-back"

# The name of what is compared, in place of one in STATISTICS.
STATISTIC = "mean"

# The library's own split of a message is another one in each tool, which makes it other traffic.
_UNEVEN = ("all_to_allv",)


def has_imported(base: Side, new: Side) -> bool:
    """Whether a side holds what another tool printed."""
    return any(run.is_imported for side in (base, new) for run in side.runs)


def compare_printed(
    base: Side, new: Side, arms: Sequence[tuple[str, str]], statistic: str | None, margin: Margin
) -> tuple[list[Row], list[Row]]:
    """Rows and ``unpaired``, as ``compare.launches.Comparison`` has them.

    Args:
        arms: which of the base stands against which of the new side.
        statistic: what was asked for, None for nothing.

    Raises:
        RequestError: a statistic was asked for that printed means do not have.
    """
    if statistic is not None:
        raise RequestError(
            f"--statistic {statistic}: an imported run has means only, so leave --statistic away"
        )
    several_arms = len(arms) > 1
    rows: list[Row] = []
    unpaired: list[Row] = []
    for base_arm, new_arm in arms:
        ours, theirs = _Means(base, base_arm), _Means(new, new_arm)
        names = (
            f"{base.label}:{base_arm}" if several_arms else base.label,
            f"{new.label}:{new_arm}" if several_arms else new.label,
        )
        for key, found in ours.cases.items():
            other = theirs.cases.get(key)
            why = (
                _alone("NEW", found, theirs)
                if other is None
                else _unlike(found, mixed=ours.tools != theirs.tools)
            )
            if other is None or why is not None:
                unpaired.append({"case": found.case.key, "side": "both" if other else "base", "reason": why})
                continue
            rows.append(_row(found, other, names, (base_arm, new_arm), margin))
        unpaired += [
            {"case": found.case.key, "side": "new", "reason": _alone("BASE", found, ours)}
            for key, found in theirs.cases.items()
            if key not in ours.cases
        ]
        for name, side in (("base", ours), ("new", theirs)):
            unpaired += [{"case": what, "side": name, "reason": why} for what, why in side.unknown]
    return rows, unpaired


@dataclass(slots=True)
class _Found:
    """A case on one side: the mean of each launch in microseconds; wrong: whose data were."""

    case: Case
    launches_us: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    clocks: set[str] = field(default_factory=set)


class _Means:
    """The means of one arm on all launches of a side, by what makes cases alike."""

    def __init__(self, side: Side, arm: str) -> None:
        self.cases: dict[tuple[Any, ...], _Found] = {}
        self.unknown: list[tuple[str, str]] = []
        self.tools = {arm if run.is_imported else "ncclbench" for run in side.runs}
        for run in side.runs:
            rows = [row for row in run_rows(run) if row["arm"] == arm and row["median_us"] is not None]
            by_key: dict[tuple[Any, ...], list[Row]] = {}
            for row in rows:
                if (why := _why_alone(row)) is not None:
                    self._leave(_name(row), why)
                elif row["mode"] == MODE:
                    by_key.setdefault(_key(row), []).append(row)
            for key, alike in by_key.items():
                # Cycles of one output are of one launch: they count once.
                found = self.cases.setdefault(key, _Found(Case.from_json(alike[0])))
                found.launches_us.append(geometric_mean(np.array([row["mean_rank_us"] for row in alike])))
                found.wrong += [run.folder.name] if any(row["status"] == "wrong" for row in alike) else []
                found.clocks.add(alike[0]["clock"])

    def _leave(self, what: str, why: str) -> None:
        if (what, why) not in self.unknown:
            self.unknown.append((what, why))


def launch_mean_us(run: Run, row: Mapping[str, Any], arm: str) -> float | None:
    """What one launch has for a row of ``compare_printed``; None where it has nothing."""
    if run.is_imported:
        wanted = _key(row)
        found = [imported_row(printed, run.meta) for printed in run.printed if printed.arm == arm]
        times = [each["mean_rank_us"] for each in found if each["mode"] == MODE and _key(each) == wanted]
    else:
        units = run.units.get((Case.from_json(dict(row)).key, arm), [])
        times = [np.concatenate([unit.rank_time_us.ravel() for unit in units]).mean()] if units else []
    return geometric_mean(np.array(times)) if times and all(times) else None


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two rows must have alike."""
    keys = ("op", "dtype", "redop", "root", "nbytes", "topology", "async", "in_place", "nranks")
    return tuple(row[key] for key in keys)


def _why_alone(row: Mapping[str, Any]) -> str | None:
    """Why a row can have no partner whatever stands on the other side."""
    for key, name in (("op", "operation"), ("nranks", "number of ranks"), ("dtype", "element type")):
        if row[key] is None:
            return f"its output does not tell the {name}"
    if row["mean_rank_us"] is None:
        return f"its time is {row.get('over_ranks')} over the ranks, not their mean"
    if row["clock"] == CLOCK and row["mode"] != MODE:
        return f"its tool timed in another way than {MODE}"
    return None


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['op'] or 'unknown operation'}/{row['dtype'] or 'unknown type'}/{row['nbytes']}"


def _alone(name: str, one: _Found, others: _Means) -> str:
    """Why the side called ``name`` has no partner: for want of such a row, or of such a number of ranks."""
    without = one.case.to_json() | {"nranks": None}
    near = (each.case for each in others.cases.values() if each.case.to_json() | {"nranks": None} == without)
    nranks = sorted(case.nranks for case in near)
    if not nranks:
        return f"{name} has no such back-to-back row"
    here, there = str(one.case.nranks), " and ".join(map(str, nranks))
    return "{} against {} ranks".format(*((here, there) if name == "NEW" else (there, here)))


def _unlike(one: _Found, *, mixed: bool) -> str | None:
    if one.case.op in _UNEVEN and mixed:
        return "another tool splits its messages in another way, which is other traffic"
    return None


def _row(one: _Found, other: _Found, names: tuple[str, str], arms: tuple[str, str], margin: Margin) -> Row:
    base_us, new_us = (geometric_mean(np.array(each.launches_us)) for each in (one, other))
    wrong = next(
        (
            f"{name}: wrong data in {each.wrong[0]}, so its times mean nothing"
            for name, each in (("BASE", one), ("NEW", other))
            if each.wrong
        ),
        None,
    )
    doubt = wrong or MEANS_ONLY
    question = Question(None, margin, base_us, doubt=doubt)
    verdict = judge([question])[0]
    ratio = {**NO_RATIO, "ratio": new_us / base_us} if base_us > 0 and new_us > 0 and not wrong else NO_RATIO
    subject = Subject(
        case=one.case,
        base=names[0],
        new=names[1],
        statistic=STATISTIC,
        clock=CLOCK,
        unit="launches",
        epochs=0,
        stopped=None,
    )
    times = Times() if wrong else Times(base_us=base_us, new_us=new_us, ratio=ratio)
    return {
        **comparison_row(subject, times, question, verdict, verdict.note),
        "base_arm": arms[0],
        "new_arm": arms[1],
        "base_launches": len(one.launches_us),
        "new_launches": len(other.launches_us),
        "base_spread": None,
        "new_spread": None,
    }
