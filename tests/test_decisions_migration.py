"""Migration: what says "switch", and what each thing against it and each open question says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deciding import (
    NEW,
    OLD,
    Line,
    altered,
    answered,
    as_nccl,
    copied,
    lines_of,
    preset,
    real_runs,
    step,
    words,
)

from ncclbench.compare.decisions import DECISIONS, Decision, decide
from ncclbench.errors import RequestError
from ncclbench.store.preset import StoredStep

# On a busy machine the commands that are looked at take their time.
pytestmark = pytest.mark.timeout(400)

MEASURED = ("sweep", "groups", "p2p")
STEPS = [*map(step, MEASURED), step("new", "drill --backends nccl2"), step("old", "drill --backends gloo")]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_runs(tmp_path_factory, *MEASURED, "drill")


@pytest.fixture(scope="module")
def alike(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both NCCL process groups, the new one as fast as the old one."""
    folder = copied(real, tmp_path_factory.mktemp("alike") / "runs", *MEASURED)
    for name in MEASURED:
        as_nccl(folder / name)
    for name, arm in (("new", NEW), ("old", OLD)):
        shutil.copytree(real / "drill", folder / name)
        as_nccl(folder / name, only=arm)
    return folder


@pytest.fixture
def folder(alike: Path, tmp_path: Path) -> Path:
    """A copy that may be altered."""
    return Path(shutil.copytree(alike, tmp_path / "runs"))


def migration(folder: Path, *steps: StoredStep) -> Decision:
    return answered(folder, "migration", *(steps or STEPS))


def waits(decision: Decision, evidence: str, *said: str) -> None:
    """It does not say switch, and one line of that kind says why, as does the answer."""
    assert decision.ok is not True
    assert decision.answer.startswith("wait, because ")
    own = [line for line in lines_of(decision, evidence) if line.verdict != "for"]
    assert own, decision
    told = " | ".join(f"{line.subject}: {line.sentence}" for line in own)
    for text in said:
        assert text in told
    assert own[0].sentence[:40] in decision.answer


def test_two_that_are_alike_say_switch(alike: Path) -> None:
    decision = migration(alike)
    assert (decision.answer, decision.ok, decision.wrong) == ("switch", True, False)
    assert set(words(decision).values()) == {"for"}
    evidence = {line.evidence for line in decision.lines}
    assert evidence >= {"data", "speed", "cold", "memory", "groups", "orders", "recovery"}
    assert decision.as_json()["lines"][0]["verdict"] == "for"
    assert len(decision.hosts) == 1


def test_slower_beyond_the_margin_is_against(real: Path, folder: Path) -> None:
    shutil.rmtree(folder / "sweep")
    as_nccl(copied(real, folder, "sweep") / "sweep", factor=1.2)
    decision = migration(folder)
    waits(decision, "speed", f"all_reduce against {OLD}", "in 2 of 2 cases", "worst 1.20x time [1.1")
    assert decision.ok is False
    assert decision.lines[0].verdict == "against"


def test_what_varies_is_open_and_says_how_much_it_takes(real: Path, folder: Path) -> None:
    shutil.rmtree(folder / "sweep")
    as_nccl(copied(real, folder, "sweep") / "sweep", noise=0.05)
    decision = migration(folder)
    waits(decision, "speed", "2 unclear; with about ", " epochs a difference as large as the margin")
    assert decision.ok is None
    (settle,) = {line.settle for line in lines_of(decision, "speed")}
    assert settle is not None
    assert f"to settle it: {settle}" in decision.answer
    # As many samples in each epoch as before.
    epochs, iters = (int(settle.split(f"--{name} ")[1].split()[0]) for name in ("epochs", "iters"))
    assert (iters, epochs > 8) == (6 * epochs, True)


def test_what_varies_too_much_is_not_worth_waiting_for(real: Path, folder: Path) -> None:
    shutil.rmtree(folder / "sweep")
    as_nccl(copied(real, folder, "sweep") / "sweep", noise=0.4)
    waits(migration(folder), "speed", "more than 256 epochs: a quieter machine first")


def test_worse_tail_alone_is_open(folder: Path) -> None:
    def longer_tail(each: Line) -> Line:
        if each["type"] == "samples":
            level_us = 100 + each["epoch"] / 10 + (each["epoch"] % 3 / 10 if each["arm"] == NEW else 0)
            slow = 3 if each["arm"] == NEW else 1
            each["total_us"] = [level_us] * 12 + [slow * level_us] * 3
            each["start_us"] = each["launch_us"] = [1.0] * 15
            each["visits"], each["turns"] = [15], [0]
        return each

    altered(folder / "sweep", longer_tail)
    waits(migration(folder), "speed", "2 same; the slow tenth is worse in 2")


@pytest.mark.parametrize(
    ("arms", "verdict", "ok"),
    [({NEW}, "against", False), ({NEW, OLD}, "open", None), ({OLD}, "for", None)],
)
def test_wrong_data_count_against_who_has_them(
    folder: Path, arms: set[str], verdict: str, ok: bool | None
) -> None:
    def spoil(each: Line) -> Line:
        if each["type"] == "samples" and each["arm"] in arms and each["rank"] == 1:
            each["wrong"] = 7
        return each

    altered(folder / "sweep", spoil)
    decision = migration(folder)
    assert decision.wrong
    # Where either side is wrong no time counts, so that the speed is open.
    assert decision.ok is ok
    (line,) = [line for line in lines_of(decision, "data") if "WRONG DATA" in line.sentence]
    assert line.verdict == verdict
    assert all(arm in line.sentence for arm in arms)


def test_failed_and_unchecked_cases(folder: Path) -> None:
    def unchecked(each: Line) -> Line:
        return {**each, "wrong": None} if each["type"] == "samples" else each

    altered(folder / "sweep", unchecked)
    waits(migration(folder), "data", "data: not checked in 2 cases")
    lines = (folder / "sweep" / "samples.jsonl").read_text()
    key = lines.split('"case": "')[1].split('"')[0]
    status = {"type": "status", "case": key, "arm": NEW, "status": "failed", "reason": "rank 1 hung"}
    (folder / "sweep" / "samples.jsonl").write_text(f"{lines}{json.dumps(status)}\n")
    waits(migration(folder), "data", f"failed on {NEW}", "rank 1 hung")


def set_costs(folder: Path, arm: str, **changes: Any) -> None:
    """Change what groups cost on an arm; a number for ``device_bytes`` is what is held once they are used."""

    def change(each: Line) -> Line:
        if each["type"] == "group-costs":
            for moment, reading in each["readings"].items():
                held = changes.get("device_bytes", 0) if each["arm"] == arm and moment == "used" else 0
                reading["device_bytes"] = [10**9 + held] * len(reading["files"])
            if each["arm"] == arm:
                each.update({name: value for name, value in changes.items() if name != "device_bytes"})
        return each

    altered(folder / "groups", change)


def test_costs_of_groups(folder: Path) -> None:
    set_costs(folder, NEW, device_bytes=2 << 30, communicators=[9, 9])
    decision = migration(folder)
    waits(decision, "memory", f"device memory of 1 group against {OLD}: 2 GiB a rank, before 0 B")
    waits(decision, "groups", f"communicators of 1 group against {OLD}: 9 connections a rank, before 1")
    set_costs(folder, NEW, first_us=[5e6], communicators=[1, 1])
    # One epoch has no interval: it may be chance.
    waits(migration(folder), "cold", f"time of 1 group against {OLD}", "takes 5")
    set_costs(folder, OLD, device_bytes=2 << 30, first_us=[5e6])
    assert migration(folder).answer == "switch"


def test_orders_that_end_with_one_alone(folder: Path) -> None:
    def swap(each: Line) -> Line:
        if each["type"] == "ordering" and each["order"] == "batched" and each["arm"] == NEW:
            each.update(outcome="deadlocked", said={"0": "in wait", "1": "in wait"})
        return each

    altered(folder / "p2p", swap)
    waits(
        migration(folder),
        "orders",
        f"batched deadlocks from 8 on on {NEW} and completes on {OLD}",
    )

    def other_way(each: Line) -> Line:
        if each["type"] == "ordering":
            each.update(outcome="completed" if each["arm"] == NEW else "deadlocked")
        return each

    altered(folder / "p2p", other_way)
    decision = migration(folder)
    assert decision.answer == "switch"
    (line,) = lines_of(decision, "orders")
    assert "batched, send-send ends where it did not before" in line.sentence


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"recovered": False}, "against", "reconfigure did not recover in 1 of 1 trial on nccl2"),
        ({"correct": False}, "against", "reconfigure gave WRONG DATA in 1 of 1 trial on nccl2"),
        ({"leftover_processes": 2}, "against", "left 2 processes behind"),
        ({"slow": 60_000}, "against", "works again after 6"),
    ],
)
def test_recovery_that_was_better_before(
    folder: Path, changes: dict[str, Any], verdict: str, said: str
) -> None:
    def change(each: Line) -> Line:
        if each["type"] == "trial":
            slow = changes.get("slow", 0)
            each["phases_ms"] = {
                name: None if time_ms is None else time_ms + slow
                for name, time_ms in each["phases_ms"].items()
            }
            each.update({name: value for name, value in changes.items() if name != "slow"})
        return each

    altered(folder / "new", change)
    decision = migration(folder)
    waits(decision, "recovery", said)
    assert lines_of(decision, "recovery")[0].verdict == verdict
    # Both sides alike: nothing that the new one has lost.
    if "recovered" in changes:
        altered(folder / "old", change)
        assert lines_of(migration(folder), "recovery")[0].verdict == "open"


def test_strategy_that_is_gone_is_against(folder: Path) -> None:
    altered(folder / "new", meta=lambda meta: meta.update(unavailable={"reconfigure": "NCCL 2.27"}))

    def other(each: Line) -> Line:
        return {**each, "strategy": "rebuild"} if each["type"] == "trial" else each

    altered(folder / "new", other)
    waits(migration(folder), "recovery", "which recovers on nccl-legacy, is not to be had: NCCL 2.27")


@pytest.mark.parametrize(
    ("left_out", "evidence", "said", "settle"),
    [
        ("groups", "groups", "what groups cost on nccl-legacy and nccl2", "ncclbench groups"),
        ("p2p", "orders", "in which orders messages end", "ncclbench p2p"),
        ("new", "recovery", "no rank was made to fail on nccl2", "ncclbench drill --backends nccl2"),
        ("old", "recovery", "no rank was made to fail on nccl-legacy", "drill --backends nccl-legacy"),
        ("sweep", "speed", "the time of collectives on nccl-legacy and nccl2", "ncclbench sweep"),
    ],
)
def test_what_was_not_looked_at_is_open(
    alike: Path, left_out: str, evidence: str, said: str, settle: str
) -> None:
    decision = migration(alike, *(each for each in STEPS if each.name != left_out))
    waits(decision, evidence, said)
    (line,) = [line for line in lines_of(decision, evidence) if line.verdict == "open"]
    assert line.settle is not None
    assert settle in line.settle


def test_steps_that_say_less_than_they_should_are_open(folder: Path) -> None:
    failed = step("p2p", status="failed", reason="it was ended after its deadline of 9 s")
    decision = migration(folder, *(failed if each.name == "p2p" else each for each in STEPS))
    waits(decision, "steps", "p2p: p2p failed: it was ended after its deadline of 9 s")
    (line,) = lines_of(decision, "steps")
    assert line.settle == f"ncclbench sweep --resume {folder}"
    (folder / "groups" / "run.json").write_text('{"schema": 1, "pl')
    waits(migration(folder), "steps", "groups cannot be read", "is not JSON")
    shutil.rmtree(folder / "groups")
    waits(migration(folder), "steps", "groups cannot be read: its folder is not there")
    altered(folder / "p2p", meta=lambda meta: meta.update(status="interrupted"))
    waits(migration(folder), "steps", "p2p is not whole: its run is interrupted")


def test_arms_are_what_they_are_and_not_what_was_asked_for(folder: Path) -> None:
    def pretend(meta: dict[str, Any]) -> None:
        meta["arms"][NEW]["implementation"] = "ProcessGroupNCCL (nccl)"

    altered(folder / "sweep", meta=pretend)
    waits(migration(folder), "arms", "it really was ProcessGroupNCCL (nccl), so nothing is compared")

    def refuse(meta: dict[str, Any]) -> None:
        meta["arms"][NEW] = {"status": "unavailable", "reason": "needs torch >= 2.15"}

    altered(folder / "sweep", meta=refuse)
    waits(migration(folder), "arms", "it is not to be had here: needs torch >= 2.15")


def test_gloo_beside_itself_decides_nothing(real: Path) -> None:
    decision = migration(real, *map(step, (*MEASURED, "drill")))
    assert decision.ok is None
    assert "gloo and gloo#2 stand in" in decision.answer
    assert "decides nothing about NCCL" in decision.answer
    assert decision.answer.endswith(
        "to settle it: ncclbench sweep --preset migration, on a machine with GPUs"
    )


def test_one_arm_compares_nothing(real: Path) -> None:
    waits(migration(real, step("drill")), "arms", "measured gloo: it takes nccl2 and nccl-legacy")
    waits(migration(real / "none", step("drill")), "arms", "nothing was measured")


def test_a_question_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="acceptance, migration"):
        decide("divorce", preset(tmp_path / "p", None, step("sweep")), [step("sweep")])
    assert list(DECISIONS) == ["acceptance", "migration"]
