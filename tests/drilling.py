"""Drills as real processes: trials made by this process, and the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweeping import Outcome, Running, lines, run, wait_until

from ncclbench.faults.drill import run_drill
from ncclbench.faults.model import DrillPlan
from ncclbench.store.drills import PHASES, DrillTrial
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.strategies import STRATEGIES

NRANKS = 4


def plan(**changes: Any) -> DrillPlan:
    """A small drill on gloo."""
    settings: dict[str, Any] = {
        "fault": "kill",
        "victim": NRANKS - 1,
        "step": 10,
        "strategies": ("reconfigure",),
        "trials": 1,
        "spare": "warm",
        "nranks": NRANKS,
        "backend": "gloo",
        "timeout_s": 5.0,
    }
    return DrillPlan(**(settings | changes))


def trials(**changes: Any) -> list[DrillTrial]:
    """All trials of a drill that this process orchestrates."""
    kept: list[DrillTrial] = []
    with EndSignals() as signals:
        made = run_drill(plan(**changes), kept.append, signals)
    assert kept == made
    return made


def assert_recovered(trial: DrillTrial) -> None:
    """Every phase of its strategy in order, right sums, nothing left over."""
    has = STRATEGIES[trial.strategy].phases_of(trial.fault)
    assert trial.recovered, trial.outcome
    assert {name for name, value in trial.phases_ms.items() if value is not None} == set(has)
    times = [trial.phases_ms[name] or 0.0 for name in PHASES if name in has]
    assert times == sorted(times), trial.phases_ms
    assert trial.correct
    assert trial.leftover_processes == 0


def drill(*options: str | Path, **settings: Any) -> Outcome:
    """``ncclbench drill`` to its end."""
    return run(sys.executable, "-m", "ncclbench", "drill", *options, **settings)


@contextmanager
def long_drill(folder: Path, trials_done: int, spare: str = "warm") -> Iterator[Running]:
    """A drill that goes on until it is hurt; so many trials are on disk."""
    words = (sys.executable, "-m", "ncclbench", "drill", "--trials", "1000", "--spare", spare)
    with Running(*words, "--out", folder) as running:
        wait_until(lambda: bool(running.descendants()) and lines(folder) >= trials_done, "the trials")
        wait_until(lambda: len(running.descendants()) >= NRANKS, "the ranks of the next one")
        yield running


def open_things(temporary: Path) -> dict[str, int]:
    """What a leak would add to: descriptors, sockets, threads and mappings of this process, and files.

    Args:
        temporary: the folder for temporary files.
    """
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "sockets": sum("socket:" in _link(path) for path in Path("/proc/self/fd").iterdir()),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": Path("/proc/self/maps").read_text().count("ncclbench-drill"),
        "temporary files": len(os.listdir(temporary)),
    }


def shared_memory() -> set[str]:
    """Names in /dev/shm."""
    return set(os.listdir("/dev/shm"))


def used_by_others(names: set[str]) -> set[str]:
    """Those of the names that a living process other than this one has mapped."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if maps.parent.name != str(os.getpid()):
            try:
                text = maps.read_text()
            except OSError:
                continue
            used |= {name for name in names if f"/dev/shm/{name}" in text}
    return used


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
