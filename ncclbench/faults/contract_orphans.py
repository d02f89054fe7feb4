"""The orchestrator is killed: it and its ranks are processes of their own, and this one looks on."""

from __future__ import annotations

import os
import select
import signal
import time
from multiprocessing.connection import Connection

from ncclbench.errors import MeasurementError
from ncclbench.faults.contract_rank import ContractRank
from ncclbench.faults.contract_scripts import Seen
from ncclbench.faults.contract_stage import Stage
from ncclbench.faults.heir import heir
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slots
from ncclbench.worker.board import Board

# So long after it a rank must have ended by itself.
ALONE_S = 2.0

# So long ranks run before their orchestrator is killed.
_RUNNING_S = 0.2


def orchestrator_killed(nranks: int, signals: EndSignals, timeout_s: float, deadline_s: float) -> Seen:
    """Fork an orchestrator that forks ranks, kill it while they are in an operation, and see how they end.

    Raises:
        MeasurementError: the ranks did not get as far as that.
        Interrupted: an ending signal came.
    """
    board = Board(1)

    def work(slot: int, pipe: Connection) -> None:
        _orchestrate(nranks, pipe, timeout_s, deadline_s)

    with heir(), Slots() as slots:
        slots.start([0], board, work)
        pids = _pids_of_ranks(slots, signals, deadline_s)
        ends = {rank: os.pidfd_open(pid) for rank, pid in enumerate(pids)}
        try:
            time.sleep(_RUNNING_S)
            began = time.monotonic()
            os.kill(slots.slots[0].pid, signal.SIGKILL)
            seconds = _await_ends(ends, began)
        finally:
            for end in ends.values():
                os.close(end)
    outcomes = {
        rank: "ended by itself" if rank in seconds else f"still ran after {ALONE_S:g} s, and was ended"
        for rank in range(nranks)
    }
    full = {rank: seconds.get(rank, ALONE_S) for rank in range(nranks)}
    return Seen(outcomes, full, len(seconds) == nranks, None)


def _orchestrate(nranks: int, pipe: Connection, timeout_s: float, deadline_s: float) -> None:
    """In the orchestrator: bring its ranks into an endless loop, tell their process ids, wait for the end."""
    meeting = meet_alone()
    board = Board(nranks)

    def work(slot: int, to_rank: Connection) -> None:
        place = board.place(slot)
        ContractRank(slot, nranks, lambda: meeting.worker_store(0), place, timeout_s).serve(to_rank)

    with EndSignals() as signals, Slots() as slots:
        slots.start(range(nranks), board, work)
        stage = Stage(slots, signals, timeout_s, deadline_s)
        try:
            stage.begin()
        except MeasurementError as error:
            pipe.send(str(error))
            return
        for rank in range(nranks):
            stage.tell(rank, "run")
        steps = [slot.place.steps for slot in slots.slots]
        stage.take_until(
            lambda: all(slot.place.steps > steps[slot.rank] + 2 for slot in slots.slots), deadline_s
        )
        pipe.send([slot.pid for slot in slots.slots])
        stage.await_all(range(nranks))


def _pids_of_ranks(slots: Slots, signals: EndSignals, deadline_s: float) -> list[int]:
    deadline = time.monotonic() + 4 * deadline_s
    while time.monotonic() < deadline:
        for happening in slots.happenings(0.2, signals.wakeup):
            if isinstance(happening.message, list):
                return happening.message
            if isinstance(happening.message, str):
                raise MeasurementError(happening.message)
            if isinstance(happening.message, Exit):
                words = happening.slot.last_words()
                raise MeasurementError(f"the orchestrator {happening.message} too early ({words})")
        signals.check()
    raise MeasurementError(f"the orchestrator had no ranks running after {4 * deadline_s:g} s")


def _await_ends(ends: dict[int, int], began: float) -> dict[int, float]:
    """Seconds after ``began`` at which each process ended, of those that did within ALONE_S."""
    seconds: dict[int, float] = {}
    poll = select.poll()
    for end in ends.values():
        poll.register(end, select.POLLIN)
    rank_of = {end: rank for rank, end in ends.items()}
    while len(seconds) < len(ends):
        left_s = began + ALONE_S - time.monotonic()
        ready = poll.poll(max(0.0, left_s) * 1e3)
        for end, _ in ready:
            seconds[rank_of[end]] = time.monotonic() - began
            poll.unregister(end)
        if not ready and left_s <= 0:
            break
    return seconds
