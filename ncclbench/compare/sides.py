"""The two sides of a comparison between runs, and how the words on a command line become one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ncclbench.environment.against import host_names
from ncclbench.errors import RequestError
from ncclbench.names import unknown
from ncclbench.store.folder import META_FILE
from ncclbench.store.meta import read_meta, read_plan
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

RESULTS = Path("results")


@dataclass(frozen=True, slots=True)
class Side:
    """One side: launches of one thing.

    Attributes:
        runs: each is one launch.
        arm: the arm meant in all of them; None for every arm they have.
        label: what the side is called; the two of a comparison differ.
    """

    runs: list[Run]
    arm: str | None
    label: str

    @property
    def arms(self) -> list[str]:
        """The ids of the arms meant, in the order of the plans."""
        if self.arm is not None:
            return [self.arm]
        return list(dict.fromkeys(arm.id for run in self.runs for arm in run.plan.arms))

    @property
    def is_one_run(self) -> bool:
        """Whether it holds a single launch."""
        return len(self.runs) == 1


class Opener:
    """Reads runs, each folder once however often it is named."""

    def __init__(self) -> None:
        self._runs: dict[Path, Run] = {}

    def sides(self, base: Sequence[str], new: Sequence[str]) -> tuple[Side, Side]:
        """Both sides of ``RUN``, ``RUN:arm`` and labels, as typed.

        Raises:
            RequestError: no such run or arm, one that cannot be read, or one launch on both sides.
        """
        one, other = self._side(base, "BASE"), self._side(new, "NEW")
        _refuse_itself(one, other)
        labels = _label(one), _label(other)
        if labels[0] == labels[1]:
            labels = _typed(base), _typed(new)
        if labels[0] == labels[1]:
            labels = f"{labels[0]} (base)", f"{labels[1]} (new)"
        return Side(one.runs, one.arm, labels[0]), Side(other.runs, other.arm, labels[1])

    def last_good(self, new: Sequence[str]) -> str:
        """The folder of the last good run before a single new one, among the folders beside it.

        Good: complete, no wrong data, not slowed on purpose, on the same hosts with as many ranks, and with a
        case of the new one on an arm that can stand against its.

        Raises:
            RequestError: there is none, and why each was passed over.
        """
        side = self._side(new, "NEW")
        if not side.is_one_run:
            raise RequestError("--baseline last stands beside one NEW run: name the others with --base")
        run = side.runs[0]
        passed: dict[str, int] = {}
        for folder, meta in _earlier(run):
            why = self._unfit(folder, meta, side)
            if why is None:
                return str(folder)
            passed[why] = passed.get(why, 0) + 1
        beside = Path(os.path.realpath(run.folder)).parent
        reasons = ", ".join(f"{count} {why}" for why, count in passed.items()) or "no run began earlier"
        raise RequestError(f"--baseline last: no good run in {beside} before {run.folder}: {reasons}")

    def _unfit(self, folder: Path, meta: dict[str, Any], new: Side) -> str | None:
        """Why a run is no baseline; None where it is a good one."""
        run = new.runs[0]
        if meta.get("status") != "complete":
            return "not complete"
        if host_names([meta.get("environment") or {}]) != host_names([run.meta.get("environment") or {}]):
            return "on other hosts"
        try:
            plan = read_plan(meta, folder / META_FILE)
            if plan.nranks != run.plan.nranks:
                return "with another number of ranks"
            if not {case.key for case in plan.planned} & {case.key for case in run.plan.planned}:
                return "without a case of it"
            if plan.injection is not None:
                return "slowed on purpose"
            ours, theirs = [arm.id for arm in plan.arms], new.arms
            if not set(ours) & set(theirs) and (new.arm is not None or len(ours) + len(theirs) > 2):
                return f"without arm {' or '.join(theirs)}"
            return "with wrong data" if has_wrong_data(self._load(folder)) else None
        except RequestError:
            return "damaged"

    def _side(self, words: Sequence[str], name: str) -> Side:
        found = [entry for word in words for entry in self._find(word, name)]
        for index, (run, arm) in enumerate(found):
            if any(run is other and arm == its_arm for other, its_arm in found[:index]):
                raise RequestError(f"{run.folder} is named twice in {name}: one launch counts once")
        runs, arms = [run for run, _ in found], {arm for _, arm in found}
        if len(arms) > 1:
            told = ", ".join(sorted(arm or "all arms" for arm in arms))
            raise RequestError(f"{name} mixes arms ({told}): name one arm with all its runs, RUN:arm")
        for index, run in enumerate(runs):
            for other in runs[:index]:
                if _is_copy(run, other):
                    raise RequestError(f"{run.folder} is a copy of {other.folder}: one launch counts once")
        return Side(runs, arms.pop(), name)

    def _find(self, word: str, name: str) -> list[tuple[Run, str | None]]:
        """The runs that a word names, and the arm."""
        if os.path.exists(path := Path(word)):
            return [(self._load(path), None)]
        if labelled := _labelled(word):
            return [(self._load(folder), None) for folder in labelled]
        before, colon, arm = word.rpartition(":")
        if not colon or not before:
            raise RequestError(
                f"{name} {word!r} is not a run: no such folder, and no run in {RESULTS}/ has it as label"
            )
        if not os.path.exists(before) and (labelled := _labelled(before)):
            return [(self._with_arm(folder, arm), arm) for folder in labelled]
        return [(self._with_arm(Path(before), arm), arm)]

    def _with_arm(self, folder: Path, arm: str) -> Run:
        run = self._load(folder)
        arms = [each.id for each in run.plan.arms]
        if arm not in arms:
            raise RequestError(f"{folder}: {unknown('arm', arm, arms)}")
        return run

    def _load(self, path: Path) -> Run:
        real = Path(os.path.realpath(path))
        if real.name == META_FILE:
            real = real.parent
        if real not in self._runs:
            run = load_run(path)
            if not run.has_cases:
                raise RequestError(
                    f"{path} is of ncclbench {run.meta['kind']} and has no rows to compare: "
                    "ncclbench report shows what it found"
                )
            self._runs[real] = run
        return self._runs[real]


def has_wrong_data(run: Run) -> bool:
    """Whether the data check found wrong elements anywhere in the run."""
    measured = any(sum(unit.wrong or ()) for units in run.units.values() for unit in units)
    return measured or any(printed.wrong or printed.failed for printed in run.printed)


def created(meta: dict[str, Any]) -> datetime | None:
    """When a run began; None where its file does not tell."""
    try:
        when = datetime.fromisoformat(str(meta.get("created")))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _earlier(run: Run) -> list[tuple[Path, dict[str, Any]]]:
    """Folder and run.json of the runs beside this one that began before it, the latest first."""
    began = created(run.meta)
    if began is None:
        raise RequestError(f"{run.folder} does not tell when it began: name a baseline with --base")
    found = []
    for folder, meta in _metas(Path(os.path.realpath(run.folder)).parent):
        when = created(meta)
        if when is not None and when < began:
            found.append((when, folder, meta))
    found.sort(key=lambda entry: (entry[0], str(entry[1])), reverse=True)
    return [(folder, meta) for _, folder, meta in found]


def _labelled(label: str) -> list[Path]:
    """The runs in results/ of that label, in order of their folders' names."""
    return [folder for folder, meta in _metas(RESULTS) if meta.get("label") == label]


def _metas(parent: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Every readable run.json in the folders of a folder; what is damaged is passed over."""
    found = []
    for path in sorted(parent.glob(f"*/{META_FILE}")) if os.path.isdir(parent) else []:
        try:
            found.append((path.parent, read_meta(path)))
        except RequestError:
            continue
    return found


def _refuse_itself(base: Side, new: Side) -> None:
    """One launch cannot stand against itself; two arms of the same launches can."""
    shared = [run for run in new.runs if any(run is other or _is_copy(run, other) for other in base.runs)]
    if not shared:
        return
    if base.arm is None or new.arm is None or base.arm == new.arm:
        arms = [arm.id for arm in shared[0].plan.arms]
        mend = "name another run"
        if len(arms) > 1:
            mend = f"name two of its arms, like {shared[0].folder}:{arms[0]} {shared[0].folder}:{arms[1]}"
        raise RequestError(f"{shared[0].folder} is on both sides: {mend}")
    if len(shared) < max(len(base.runs), len(new.runs)):
        raise RequestError("some runs are on both sides, others are not: name the same runs on both, or none")


def _is_copy(run: Run, other: Run) -> bool:
    """Whether two folders hold the same launch: begun at once, with the same samples to the nanosecond."""
    if run is other or run.meta.get("created") != other.meta.get("created"):
        return False
    if run.printed:
        return run.printed == other.printed
    if not run.units:
        return False
    key, units = next(iter(run.units.items()))
    theirs = other.units.get(key, [])
    return bool(theirs) and units[0].total_us.tolist() == theirs[0].total_us.tolist()


def _label(side: Side) -> str:
    names = list(dict.fromkeys(str(run.meta.get("label") or run.folder.name) for run in side.runs))
    text = names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}"
    if len(side.runs) > 1:
        text = f"{text} ({len(side.runs)} launches)"
    return f"{text}:{side.arm}" if side.arm is not None else text


def _typed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{words[0]} .. {words[-1]} ({len(words)} launches)"
