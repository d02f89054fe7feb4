"""What the steps of a preset found: each run folder read as the command that filled it reads it.

Nothing is computed here that a command does not compute for its own answer.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.evidence import evidence_of, places_of, wrong_pairs
from ncclbench.attribution.model import Attribution, Places
from ncclbench.compare.paired import compare_arms
from ncclbench.errors import RequestError
from ncclbench.hardware.judging import Judged, judge_requirements
from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.plan.model import Case
from ncclbench.stats.group_costs import GroupsFound, groups_of
from ncclbench.stats.p2p import P2p, p2p_of
from ncclbench.stats.recovery import Recovery, recoveries
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run
from ncclbench.store.preset import OVER, StoredStep
from ncclbench.store.reader import ENDED_SILENTLY, load_run

Row = dict[str, Any]

# Options of a step that say where its output goes and not what it measures.
_OF_OUTPUT = ("--json", "--exit-zero")

# Commands that leave a run folder; of others the exit code is all there is.
_KEEPING = ("sweep", "matrix", "suspects", "drill", "overlap", "p2p", "transport", "groups")


@dataclass(frozen=True)
class StepFound:
    """One step with what its folder holds.

    Attributes:
        step: as preset.json has it.
        run: the run in its folder; None where there is none, and then ``unread`` says why.
        unread: one line.
    """

    step: StoredStep
    run: Run | None
    unread: str | None

    @property
    def name(self) -> str:
        """Of the step."""
        return self.step.name

    @property
    def kind(self) -> str:
        """The command that it is: "sweep", "suspects"."""
        if self.run is not None:
            return str(self.run.meta.get("kind", "sweep"))
        return next((word for word in self.step.command[1:] if not word.startswith("-")), "")

    @cached_property
    def lacking(self) -> str | None:
        """Why it says less than it should: not run, failed, cut short, unreadable; None where it is whole."""
        step = self.step
        if step.status not in OVER:
            why = step.reason or step.message
            words = {"not run": "was not run", "wrong request": "was refused"}.get(step.status, step.status)
            return f"{step.name} {words}{f': {why}' if why else ''}"
        if self.run is None:
            return f"{step.name} cannot be read: {self.unread}" if self.kind in _KEEPING else None
        if ENDED_SILENTLY in self.run.problems:
            return f"{step.name} ended without a word (killed?)"
        status = self.run.meta.get("status", "complete")
        if status != "complete":
            return f"{step.name} is not whole: its run is {status}"
        return None

    def again(self, **changed: str) -> str:
        """The command line that measures it once more, with options changed: ``epochs="48"``."""
        words = [word for word in self.step.command if word not in _OF_OUTPUT]
        for name, value in changed.items():
            words = with_option(words, f"--{name}", value)
        return shlex.join(words)

    # What is read from the run; only where there is one.

    @property
    def arms(self) -> dict[str, str]:
        """The backend of each arm of its run."""
        return {} if self.run is None else {arm.id: arm.backend for arm in self.run.plan.arms}

    @cached_property
    def rows(self) -> list[Row]:
        """As ``sweep --json`` has them; none of other commands."""
        return run_rows(self.run) if self.run is not None and self.run.has_cases else []

    @cached_property
    def searched(self) -> tuple[Attribution, list[tuple[int, int]]] | None:
        """Who is slow, and the pairs with wrong data, as ``matrix`` and ``suspects`` say it."""
        if self.run is None or not self.run.is_search:
            return None
        return attribute(evidence_of(self.run)), wrong_pairs(self.run)

    @cached_property
    def groups(self) -> GroupsFound | None:
        """As ``groups --json`` has it."""
        is_one = self.run is not None and self.kind == "groups"
        return groups_of(self.run.results_by_arm) if is_one and self.run is not None else None

    @cached_property
    def p2p(self) -> P2p | None:
        """As ``p2p --json`` has it."""
        is_one = self.run is not None and self.kind == "p2p"
        return p2p_of(self.run.results_by_arm) if is_one and self.run is not None else None

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """The summary of ``drill``."""
        return recoveries(self.run.trials) if self.run is not None else []

    @property
    def unavailable(self) -> dict[str, str]:
        """Strategies of a drill that are not to be had, and why."""
        told = None if self.run is None else self.run.meta.get("unavailable")
        return {str(name): str(why) for name, why in told.items()} if isinstance(told, dict) else {}

    @cached_property
    def judged(self) -> list[Judged]:
        """What the step's own command required, held against its rows."""
        if self.run is None or not self.rows:
            return []
        required = []
        for text in options(self.step.command, "--require"):
            try:
                required.append(parse_requirement(text))
            except RequestError:
                continue  # it was refused, and its step with it
        return judge_requirements(self.rows, machine_of(self.run), required)

    @cached_property
    def places(self) -> Places | None:
        """Where its ranks are; None where nothing tells."""
        environment = None if self.run is None else self.run.meta.get("environment")
        if self.run is None or not environment or not environment.get("hosts"):
            return None
        return places_of(environment, self.run.plan.nranks)

    def hosts_of(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """The hosts of ranks, each once; of ranks that nothing tells of none."""
        places = self.places
        if places is None:
            return ()
        known = [rank for rank in ranks if 0 <= rank < len(places.host_of)]
        return tuple(dict.fromkeys(places.hosts[places.host_of[rank]] for rank in known))

    def named_in(self, text: str) -> tuple[str, ...]:
        """The hosts whose names stand in a text."""
        hosts = () if self.places is None else self.places.hosts
        return tuple(host for host in hosts if re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", text))

    def compared(self, base: str, new: str) -> list[Row]:
        """One arm against another, as ``compare RUN:base RUN:new`` has it."""
        return [] if self.run is None or not self.run.has_cases else compare_arms(self.run, base, new)

    def wrong_ranks(self, row: Row) -> tuple[int, ...]:
        """The ranks on which elements of a row were wrong."""
        if self.run is None:
            return ()
        units = self.run.units.get((Case.from_json(row).key, row["arm"]), [])
        return tuple(sorted({rank for unit in units for rank, bad in enumerate(unit.wrong or ()) if bad}))

    @property
    def has_wrong_data(self) -> bool:
        """Whether anything that was checked was wrong."""
        found = self.groups or self.p2p
        return (
            any(row["status"] == "wrong" for row in self.rows)
            or bool(self.searched and self.searched[1])
            or bool(found and found.wrong)
            or any(one.correct < one.recovered for one in self.recoveries)
        )


@dataclass(frozen=True)
class Found:
    """What all steps of a preset found."""

    folder: Path
    steps: tuple[StepFound, ...]

    @property
    def measured(self) -> Iterator[StepFound]:
        """The steps that have a run."""
        return (step for step in self.steps if step.run is not None)

    def of_kind(self, *kinds: str) -> list[StepFound]:
        """The steps of these commands that have a run."""
        return [step for step in self.measured if step.kind in kinds]

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts that took part, in the order in which steps name them."""
        found = [step.places for step in self.measured]
        return tuple(dict.fromkeys(host for places in found if places is not None for host in places.hosts))

    @property
    def has_wrong_data(self) -> bool:
        """Whether anything that was checked was wrong, anywhere."""
        return any(step.has_wrong_data for step in self.steps)


def find(folder: Path, steps: Sequence[StoredStep]) -> Found:
    """Read the run folder of every step; one that cannot be read says why, and ends nothing."""
    return Found(folder, tuple(_read(folder / step.folder, step) for step in steps))


def _read(folder: Path, step: StoredStep) -> StepFound:
    if not os.path.isdir(folder):
        return StepFound(step, None, "its folder is not there")
    try:
        return StepFound(step, load_run(folder), None)
    except RequestError as error:
        return StepFound(step, None, str(error))


def settling(found: Found, step: StepFound) -> str | None:
    """The command that settles what a step lacks; None where it cannot be measured here."""
    if not step.step.is_over:
        return shlex.join(["ncclbench", "sweep", "--resume", str(found.folder)])
    return None if step.step.status == "not run" else step.again()


def options(command: Sequence[str], name: str) -> list[str]:
    """The values of an option in a command line, as ``--name VALUE`` or ``--name=VALUE``."""
    found = []
    for place, word in enumerate(command):
        if word == name and place + 1 < len(command):
            found.append(command[place + 1])
        elif word.startswith(f"{name}="):
            found.append(word.partition("=")[2])
    return found


def with_option(command: Sequence[str], name: str, value: str) -> list[str]:
    """A command line with an option set anew."""
    kept: list[str] = []
    skips = False
    for word in command:
        if not skips and not word.startswith(f"{name}=") and word != name:
            kept.append(word)
        skips = word == name and not skips
    return [*kept, name, value]
