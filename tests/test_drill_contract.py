"""Contract cases with real ranks, killed and stopped: what is told of them, and that nothing is left."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from ncclbench.errors import Interrupted, RequestError
from ncclbench.faults.cases import CASES, ORCHESTRATOR_KILLED
from ncclbench.faults.contract import TORCH_TIMEOUT_S, run_contract
from ncclbench.faults.contract_orphans import ALONE_S
from ncclbench.faults.contract_rank import ContractRank
from ncclbench.faults.contract_scripts import SCRIPTS
from ncclbench.faults.contract_stage import Stage, Told, agree
from ncclbench.store.drills import ContractOutcome
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Slots
from ncclbench.worker.board import Board

TIMEOUT_S = 10.0
GRACE_S = 13.0
KILLED = "killed on purpose"


def holdings() -> tuple[set[int], int, set[str]]:
    """Children of this process, how many sockets it has open, and what lies in shared memory."""
    gc.collect()
    sockets = sum(
        os.path.islink(f"/proc/self/fd/{number}")
        and os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        for number in os.listdir("/proc/self/fd")
    )
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    shared = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    return children, sockets, shared


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    children, sockets, shared = holdings()
    yield
    children_after, sockets_after, shared_after = holdings()
    assert children_after <= children
    assert sockets_after <= sockets
    assert shared_after <= shared


def play(name: str, grace_s: float = GRACE_S) -> ContractOutcome:
    kept: list[ContractOutcome] = []
    with EndSignals() as signals:
        (outcome,) = run_contract([name], kept.append, signals, TIMEOUT_S, grace_s)
    assert kept == [outcome]
    assert outcome.case == name
    assert outcome.command == f"ncclbench drill --contract {name}"
    assert outcome.expected == CASES[name].expected
    assert set(outcome.outcomes) == {str(rank) for rank in range(CASES[name].nranks)}
    return outcome


def test_every_case_has_a_script() -> None:
    assert {*SCRIPTS, ORCHESTRATOR_KILLED} == set(CASES)


def test_unknown_case_is_a_wrong_request() -> None:
    with EndSignals() as signals, pytest.raises(RequestError, match="did you mean 'two-faults'"):
        run_contract(["two-fault"], lambda outcome: None, signals, TIMEOUT_S)


@pytest.mark.parametrize(
    ("kinds", "same"),
    [
        (("ok", "ok"), True),
        (("error", "error"), True),
        (("ok", "error"), False),
        (("hung", "hung"), False),
        (("error", "hung"), False),
        (("ended", "ended"), False),
    ],
)
def test_told_the_same_or_not(kinds: tuple[str, ...], same: bool) -> None:
    told = {rank: Told(kind, kind, 0.1, 0.1) for rank, kind in enumerate(kinds)}  # type: ignore[arg-type]
    assert agree(told) is same


def test_told_too_late_is_not_consistent() -> None:
    told = {0: Told("error", "x", 0.1, 0.1), 1: Told("error", "x", 9.0, 9.0, is_late=True)}
    assert not agree(told)


def test_a_stale_handle_is_refused_by_every_rank() -> None:
    outcome = play("stale-handle")
    assert outcome.consistent
    assert outcome.recovered
    assert "handle is not part of the new communicator" in outcome.outcomes["1"]
    assert all("Error" in text and "the old group goes on" in text for text in outcome.outcomes.values())


def test_a_victim_that_wakes_up_is_told_and_taken_in_again() -> None:
    outcome = play("late-victim")
    assert outcome.recovered
    assert outcome.consistent
    assert [outcome.outcomes[rank] for rank in "012"] == ["ok"] * 3
    assert "Error" in outcome.outcomes["3"]


def test_ranks_end_with_their_orchestrator() -> None:
    outcome = play(ORCHESTRATOR_KILLED)
    assert outcome.consistent
    assert outcome.recovered is None
    assert max(outcome.seconds.values()) < ALONE_S


def test_a_signal_ends_a_case_at_once() -> None:
    with EndSignals() as signals:
        os.kill(os.getpid(), 15)
        began = time.monotonic()
        with pytest.raises(Interrupted):
            run_contract(["reused-uuid"], lambda outcome: None, signals, TIMEOUT_S)
    assert time.monotonic() - began < 5


@pytest.mark.full
def test_a_reused_uuid_is_no_hang_of_ours() -> None:
    outcome = play("reused-uuid")
    assert outcome.recovered
    assert any("already used" in text for text in outcome.outcomes.values())


def test_a_rank_that_never_answers_is_called_hung() -> None:
    meeting, board = meet_alone(), Board(2)

    def work(slot: int, pipe: Connection) -> None:
        ContractRank(slot, 2, lambda: meeting.worker_store(0), board.place(slot), 2.0).serve(pipe)

    with EndSignals() as signals, Slots() as slots:
        slots.start(range(2), board, work)
        stage = Stage(slots, signals, 2.0, 20.0)
        stage.begin()
        stage.deadline_s = 0.5
        told = stage.ask(range(2), "run")
        assert [one.text for one in told.values()] == ["hung until the deadline of 0.5 s"] * 2
        assert all(0.5 <= one.seconds < 1.5 for one in told.values())
        assert not agree(told)
        assert not stage.recovers(range(2))


@pytest.mark.full
def test_an_absent_member_is_told_to_everybody() -> None:
    outcome = play("absent-member")
    assert outcome.outcomes["2"] == KILLED
    assert all("Error" in outcome.outcomes[rank] for rank in "01")
    assert outcome.recovered


@pytest.mark.full
def test_a_set_of_handles_does_not_keep_the_order() -> None:
    outcome = play("set-of-handles")
    assert outcome.consistent
    assert outcome.recovered
    assert outcome.outcomes["2"] == "ok: rank 2 by list, 4 by set"
    assert outcome.outcomes["10"] == "ok: rank 10 by list, 1 by set"


@pytest.mark.full
@pytest.mark.parametrize("name", ["two-faults", "fault-during-recovery"])
def test_two_deaths_are_survived(name: str) -> None:
    outcome = play(name)
    assert [outcome.outcomes[rank] for rank in "34"] == [KILLED, KILLED]
    assert all("Error" in outcome.outcomes[rank] for rank in "012")
    assert outcome.recovered
    assert max(outcome.seconds.values()) < TORCH_TIMEOUT_S + GRACE_S


@pytest.mark.full
def test_cases_again_and_again_leave_nothing() -> None:
    for _ in range(3):
        for name in ("stale-handle", "absent-member", ORCHESTRATOR_KILLED):
            play(name)
