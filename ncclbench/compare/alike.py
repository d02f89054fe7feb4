"""Which cases of two sides may stand against each other, and why the others may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncclbench.compare.rows import NEVER_MEANT
from ncclbench.compare.sides import Side
from ncclbench.errors import RequestError
from ncclbench.plan.model import Case
from ncclbench.stats.rows import outcome, run_statistic
from ncclbench.store.model import Run, Unit
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Launch:
    """One run's epochs of a case on an arm."""

    run: Run
    units: list[Unit]


@dataclass(slots=True)
class Measured:
    """What one side has of a case on an arm.

    Attributes:
        launches: where it was measured, in the order of the side's runs.
        failures: "RUN: reason" of each launch in which it was planned and came to nothing.
        never: reasons of launches in which it was not to run.
    """

    launches: list[Launch] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)

    @property
    def units(self) -> list[Unit]:
        """The epochs of all launches."""
        return [unit for launch in self.launches for unit in launch.units]


@dataclass(frozen=True, slots=True)
class Pair:
    """The same case on both sides.

    Attributes:
        statistic: what is compared, fixed before the runs or asked for now.
        obstacle: why its times mean nothing; None where they can be compared.
    """

    case: Case
    base_arm: str
    new_arm: str
    base: Measured
    new: Measured
    statistic: str
    obstacle: str | None


def arm_pairs(base: Side, new: Side) -> list[tuple[str, str]]:
    """Arms to compare: those named, else the only one of each side, else those of equal id.

    Raises:
        RequestError: there is no telling which belongs to which.
    """
    ours, theirs = base.arms, new.arms
    if base.arm is not None and new.arm is None and base.arm in theirs:
        theirs = [base.arm]
    if new.arm is not None and base.arm is None and new.arm in ours:
        ours = [new.arm]
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    common = [arm for arm in ours if arm in theirs]
    if not common:
        raise RequestError(
            f"no arm is on both sides: BASE has {', '.join(ours)}, NEW has {', '.join(theirs)}: "
            "name one of each, RUN:arm"
        )
    return [(arm, arm) for arm in common]


def pair_cases(
    base: Side, new: Side, arms: Sequence[tuple[str, str]], statistic: str | None
) -> tuple[list[Pair], list[dict[str, Any]]]:
    """Cases equal in every key, arm by arm, in the base's order; and what found no partner.

    Returns:
        the pairs, and ``unpaired``: ``case`` (its key, or "all"), ``side`` (where it was to run: "base",
        "new", "both" or "neither") and ``reason``.
    """
    ours, theirs = _Cases(base), _Cases(new)
    pairs: list[Pair] = []
    unpaired: list[dict[str, Any]] = []

    def leave(case: str, side: str, reason: str) -> None:
        unpaired.append({"case": case, "side": side, "reason": reason})

    for key, case in ours.cases.items():
        if key not in theirs.cases:
            meant = any(_was_meant(ours.measured(key, arm)) for arm, _ in arms)
            leave(key, side_that_has_it(meant, False), theirs.why_not(case, "NEW", "BASE"))
    for key, case in theirs.cases.items():
        if key not in ours.cases:
            meant = any(_was_meant(theirs.measured(key, arm)) for _, arm in arms)
            leave(key, side_that_has_it(False, meant), ours.why_not(case, "BASE", "NEW"))
    for base_arm, new_arm in arms:
        for key, case in ours.cases.items():
            if key not in theirs.cases:
                continue
            one, other = ours.measured(key, base_arm), theirs.measured(key, new_arm)
            named = f"{base_arm}: " if len(arms) > 1 else ""
            idle = _never_meant(one, other)
            unlike = idle or _unlike(case, one, other, statistic)
            if unlike is not None:
                leave(key, side_that_has_it(_was_meant(one), _was_meant(other)), f"{named}{unlike}")
                continue
            name = statistic or _statistics(one, other)[0]
            pairs.append(Pair(case, base_arm, new_arm, one, other, name, _obstacle(one, other)))
    for side, name, known in (
        (base, "base", {arm for arm, _ in arms}),
        (new, "new", {arm for _, arm in arms}),
    ):
        for arm in side.arms:
            if arm not in known and side.arm is None:
                leave("all", name, f"arm {arm} is in {name.upper()} only")
    return pairs, unpaired


class _Cases:
    """The cases of all runs of a side."""

    def __init__(self, side: Side) -> None:
        self._runs = [(run, {entry.case.key: entry for entry in run.plan.cases}) for run in side.runs]
        self.cases: dict[str, Case] = {
            key: entry.case for _, entries in self._runs for key, entry in entries.items()
        }
        self._near: dict[tuple[str, int], list[Case]] = {}
        for case in self.cases.values():
            self._near.setdefault((case.op, case.nbytes), []).append(case)

    def measured(self, key: str, arm_id: str) -> Measured:
        """What the side's runs have of a case on an arm."""
        found = Measured()
        for run, entries in self._runs:
            arm = next((arm for arm in run.plan.arms if arm.id == arm_id), None)
            if arm is None or key not in entries:
                found.never.append("not in the plan" if arm is not None else f"no arm {arm_id}")
                continue
            status, reason = outcome(run, entries[key], arm)
            if status in NEVER_MEANT:
                found.never.append(f"{status}: {reason}")
            elif status != "ok":
                found.failures.append(f"{run.folder.name}: {reason}")
            else:
                found.launches.append(Launch(run, run.units[key, arm_id]))
        return found

    def why_not(self, case: Case, without: str, having: str) -> str:
        """Why this side has no such case: the nearest it has, and in what that differs."""
        near = self._near.get((case.op, case.nbytes), [])
        if not near:
            same_op = any(op == case.op for op, _ in self._near)
            return (
                f"{without} has no {case.op} of {case.nbytes} bytes"
                if same_op
                else f"{without} has no {case.op}"
            )
        wanted = case.to_json()
        others = [each.to_json() for each in near]
        closest = min(others, key=lambda other: sum(other[key] != wanted[key] for key in wanted))
        names = {"nranks": "ranks", "async": "async", "in_place": "in place"}
        differing = [key for key in wanted if closest[key] != wanted[key] and key != "count"]
        told = ", ".join(
            f"{names.get(key, key)} {wanted[key]} in {having}, {closest[key]} in {without}"
            for key in differing
        )
        return told or f"{without} has another count of elements"


def side_that_has_it(base: bool, new: bool) -> str:
    """The ``side`` of an unpaired case, of whether it was to run on each side."""
    if base == new:
        return "both" if base else "neither"
    return "base" if base else "new"


def _was_meant(side: Measured) -> bool:
    """Whether the case was to run on the side."""
    return bool(side.launches or side.failures)


def _never_meant(base: Measured, new: Measured) -> str | None:
    """Why a case that both plans hold was not to run on a side."""
    for name, side in (("BASE", base), ("NEW", new)):
        if not _was_meant(side):
            return f"{name}: {side.never[0]}"
    return None


def _unlike(case: Case, base: Measured, new: Measured, statistic: str | None) -> str | None:
    """What makes the times of two sides different things; None where they are alike."""
    if not base.launches or not new.launches:
        return None
    clocks = [sorted({unit.clock for unit in side.units}) for side in (base, new)]
    if clocks[0] != clocks[1] or len(clocks[0]) > 1:
        return f"clock {' and '.join(clocks[0])} in BASE, {' and '.join(clocks[1])} in NEW"
    shares = [{launch.run.plan.share_gpu for launch in side.launches} for side in (base, new)]
    if len(shares[0] | shares[1]) > 1:
        return "ranks shared a GPU in some runs and not in others"
    if _splits_differ(case, {launch.run.plan.seed for side in (base, new) for launch in side.launches}):
        return "the runs' seeds drew other uneven splits, which is other traffic: measure with one --seed"
    names = _statistics(base, new)
    if statistic is None and len(names) > 1:
        return f"the runs fixed different statistics ({', '.join(names)}): choose one with --statistic"
    return None


def _splits_differ(case: Case, seeds: set[int]) -> bool:
    """Whether a case moved other parts of its data between ranks under some of the seeds."""
    if len(seeds) == 1:
        return False
    elements = case.nbytes // DTYPES[case.dtype].itemsize
    layouts = [COLLECTIVES[case.op].layout(elements, 0, case.nranks, seed) for seed in sorted(seeds)]
    return any(layout != layouts[0] for layout in layouts)


def _statistics(base: Measured, new: Measured) -> list[str]:
    """What verdicts of each launch compare, each once; those of the base first."""
    launches = [*base.launches, *new.launches]
    return list(dict.fromkeys(run_statistic(launch.run, launch.units) for launch in launches)) or ["median"]


def _obstacle(base: Measured, new: Measured) -> str | None:
    """Why the times of a pair mean nothing."""
    for name, side in (("BASE", base), ("NEW", new)):
        for launch in side.launches:
            if any(sum(unit.wrong or ()) for unit in launch.units):
                return f"{name}: wrong data in {launch.run.folder.name}, so its times mean nothing"
        if not side.launches:
            return f"{name}: {side.failures[0]}"
    return None
