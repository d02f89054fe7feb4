"""Folders of presets for tests of what they answer: real runs on gloo, and copies that were altered.

A copy can stand for the two NCCL process groups: the times of the new arm are then those of the old one,
made longer or noisier, so that what the answer must be is known.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sweeping import run

from ncclbench.compare.decisions import Decision, DecisionLine, decide
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line, encode_unit
from ncclbench.store.model import Run
from ncclbench.store.preset import StoredPreset, StoredStep, write_preset

OLD, NEW = "nccl-legacy", "nccl2"
_NAMES = {"gloo": OLD, "gloo#2": NEW}
_REALLY = {OLD: "ProcessGroupNCCL (nccl)", NEW: "ProcessGroupNCCL2 (nccl2)"}

# What each step of the folder "real" measured; small, and the same for every test.
COMMANDS = {
    "sweep": "sweep --ops all_reduce --sizes 4K,256K --modes back-to-back --backends gloo,gloo -n 48",
    "groups": "groups --counts 1 --backends gloo,gloo --epochs 1",
    "p2p": "p2p --parts first,ordering --orders batched,send-send --backends gloo,gloo --sizes 8 --epochs 1 "
    "--deadline 500ms",
    "drill": "drill --backends gloo --trials 1 --nproc-per-node 3",
    "suspects": "suspects --quick",
}

Line = dict[str, Any]


def real_runs(factory: pytest.TempPathFactory, *names: str) -> Path:
    """The folder of real runs with those of these names, each measured once for all workers of the tests."""
    base = factory.getbasetemp()
    root = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = root / "presets-real"
    with (root / "presets-real.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            if not (folder / name / "run.json").exists():
                words = [*COMMANDS[name].split(), "--out", str(folder / name)]
                done = run(sys.executable, "-m", "ncclbench", *words)
                assert done.code in (0, 1), f"{name}: {done.err}"
    return folder


def step(name: str, command: str = "", **changes: Any) -> StoredStep:
    """A step that is done."""
    fields: dict[str, Any] = {"status": "done", "exit_code": 0, "seconds": 12.5, "message": "all is well"}
    words = ["ncclbench", *(command or COMMANDS[name]).split()]
    return StoredStep(name=name, folder=name, command=words, **{**fields, **changes})


def preset(folder: Path, decision: str | None, *steps: StoredStep, name: str = "") -> Path:
    """A folder with its preset.json."""
    stored = StoredPreset(
        schema=1,
        ncclbench="0.1.0",
        preset=name or decision or "training",
        decision=decision,  # type: ignore[arg-type]
        command=["ncclbench", "sweep", "--preset", str(decision)],
        nranks=2,
        local_ranks=2,
        steps=list(steps),
    )
    folder.mkdir(exist_ok=True)
    write_preset(folder, stored)
    return folder


def stored(path: Path, run: Run) -> Path:
    """A run made of numbers, through the real writer."""
    with RunFolder.create(path) as folder:
        folder.write_meta(run.meta)
        with folder.samples() as samples:
            for units in run.units.values():
                samples.append(b"".join(map(encode_unit, units)))
            samples.append(b"".join(encode_line(line) for line in (*run.probes, *run.trials, *run.results)))
    return path


def altered(
    path: Path,
    line: Callable[[Line], Line | None] | None = None,
    meta: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Change the lines of a run folder and its run.json in place; a line that becomes None is gone."""
    if line is not None:
        file = path / "samples.jsonl"
        lines = [line(json.loads(text)) for text in file.read_text().splitlines()]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in lines if each is not None))
    if meta is not None:
        content = json.loads((path / "run.json").read_text())
        meta(content)
        (path / "run.json").write_text(json.dumps(content))
    return path


def copied(real: Path, folder: Path, *names: str) -> Path:
    """Some of the real runs in a folder of their own."""
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copytree(real / name, folder / name)
    return folder


def as_nccl(path: Path, factor: float = 1.0, noise: float = 0.002, only: str | None = None) -> Path:
    """Make a run of gloo and gloo#2 one of nccl-legacy and nccl2.

    Args:
        factor: of the new arm's times against the old one's.
        noise: by how much that differs from epoch to epoch, up and down.
        only: what the arm becomes of a run that has one.
    """
    names = _NAMES if only is None else {"gloo": only}
    samples: dict[tuple[Any, ...], Line] = {}

    def case_of(each: Line) -> tuple[Any, ...]:
        return tuple(each[key] for key in ("case", "epoch", "rank"))

    def learn(each: Line) -> Line:
        if each["type"] == "samples" and each["arm"] == "gloo":
            samples[case_of(each)] = each
        return each

    def change(each: Line) -> Line:
        if each["type"] == "samples" and each["arm"] == "gloo#2":
            sway = factor * (1 + noise * (1 if each["epoch"] % 2 else -1))
            each = {**samples[case_of(each)], "arm": "gloo#2", "wrong": each["wrong"]}
            each["total_us"] = [sway * time_us for time_us in each["total_us"]]
        if each.get("arm") in names:
            each = {**each, "arm": names[each["arm"]]}
            if each.get("implementation"):
                each["implementation"] = _REALLY[each["arm"]]
        return each

    def tell(meta: dict[str, Any]) -> None:
        for arm in meta["plan"]["arms"]:
            arm["id"] = arm["backend"] = names[arm["id"]]
        meta["plan"]["base_arm"] = names[meta["plan"]["base_arm"]]
        meta["arms"] = {names[arm]: told for arm, told in (meta.get("arms") or {}).items()}
        for arm, told in meta["arms"].items():
            if told.get("implementation"):
                told["implementation"] = _REALLY[arm]

    altered(path, learn)
    return altered(path, change, tell)


def answered(folder: Path, decision: str, *steps: StoredStep) -> Decision:
    """What the folder answers."""
    return decide(decision, folder, steps)


def lines_of(decision: Decision, evidence: str) -> list[DecisionLine]:
    """Those of one kind."""
    return [line for line in decision.lines if line.evidence == evidence]


def words(decision: Decision) -> Mapping[str, str]:
    """Verdicts by subject."""
    return {line.subject: line.verdict for line in decision.lines}
