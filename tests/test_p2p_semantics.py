"""The self-test of point-to-point on gloo of this torch: what it asks, and what cannot be an answer."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ncclbench.cells.cell import CellResult
from ncclbench.cells.rank import CellRank
from ncclbench.cells.semantics import CHECKS, run_semantics
from ncclbench.faults.leftover import children
from ncclbench.plan.model import Arm
from ncclbench.store.p2p import SemanticsCheck
from ncclbench.supervise.signals import EndSignals

GLOO = Arm("gloo", "gloo")


def asked(name: str) -> SemanticsCheck:
    kept: list[SemanticsCheck] = []
    with EndSignals() as signals:
        run_semantics(GLOO, "cpu", False, lambda check, result: kept.append(check), signals, (name,))
    (check,) = kept
    assert check.leftover_processes == 0
    assert not children()
    return check


def test_call_alone_is_no_time_of_an_operation() -> None:
    check = asked("call-time")
    assert check.outcome == "as-documented"
    assert check.value is not None
    assert check.value > 2
    assert f"wrong by a factor of {check.value:.3g}" in check.said


def test_wait_has_nothing_to_ask_on_a_cpu() -> None:
    check = asked("wait")
    assert (check.outcome, check.value) == ("not-here", None)
    assert "wait() itself blocks" in check.said


def test_is_completed_says_false_of_a_message_that_is_there() -> None:
    check = asked("is-completed")
    assert check.outcome == "otherwise"
    assert "the message was there and it said False; after wait() True" in check.said


def test_first_irecv_returns_before_its_peer_comes() -> None:
    check = asked("first-irecv")
    assert check.outcome == "as-documented"
    assert check.value is not None
    assert check.value < 150_000


@pytest.mark.parametrize(
    ("name", "seen"),
    [("dropped-isend", "it never arrived"), ("dropped-irecv", "it was not filled, send said ok")],
)
def test_what_nobody_keeps_is_lost(name: str, seen: str) -> None:
    check = asked(name)
    assert (check.outcome, check.value) == ("otherwise", 0.0)
    assert seen in check.said
    assert "the next message did not arrive" in check.said


def test_late_receivers_get_what_was_written_after_isend() -> None:
    check = asked("early-overwrite")
    assert (check.outcome, check.value) == ("as-documented", 1.0)
    assert "to a receiver that asked afterwards: in 20 of 8, in 20 of 64K, in 20 of 4M;" in check.said


@pytest.mark.parametrize("name", ["scatter", "gather", "all_to_all"])
def test_memory_is_held_by_the_work_and_free_without_it(name: str) -> None:
    check = asked(f"memory-{name}")
    made = 192 if name == "all_to_all" else 144
    assert check.outcome == "as-documented"
    assert f"{made} MiB once they are deleted and the Work is kept, 0 B once it is gone too" in check.said


def test_memory_that_stays_is_otherwise() -> None:
    moments = ("made", "waited", "deleted", "released", "blocking", "blocking, deleted")
    kept = dict.fromkeys(moments, 144 << 20)
    told = CHECKS["memory-scatter"].judge({0: kept, 1: kept}, CellResult())
    assert (told.outcome, told.value) == ("otherwise", float(144 << 20))


def test_a_check_that_hangs_is_told_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    hanging = replace(CHECKS["first-irecv"], work=lambda rank: time.sleep(60), deadline_s=0.5)
    monkeypatch.setitem(CHECKS, "first-irecv", hanging)
    check = asked("first-irecv")
    assert check.outcome == "otherwise"
    assert check.said.startswith("rank 0 had not ended after")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_rank_hurt_from_outside_leaves_the_question_unanswered(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    def hurt(rank: CellRank) -> None:
        if rank.rank == 1:
            os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.setitem(CHECKS, "first-irecv", replace(CHECKS["first-irecv"], work=hurt, deadline_s=0.5))
    check = asked("first-irecv")
    assert check.outcome == "unanswered"
    assert "rank 1: nothing yet: the process was " in check.said


def test_bytes_that_nobody_wrote_are_no_answer_that_is_documented() -> None:
    def judged(neither: int) -> str:
        counts = {"late": [0, 20, 0, 0], "ready": [20 - neither, 0, 0, neither]}
        return (
            CHECKS["early-overwrite"]
            .judge({1: dict.fromkeys(("8", "65536", "4194304"), counts)}, CellResult())
            .outcome
        )

    assert (judged(0), judged(1)) == ("as-documented", "otherwise")
