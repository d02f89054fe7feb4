"""What each way of moving weights does when a peer dies or stands still in the middle.

Each cell has two processes of its own, which move weights again and again until the victim is killed or
stopped; what is seen is on the side that is left. Whatever that does, no cell is longer than its deadline,
and no process outlives it.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any, Literal

from ncclbench.faults.shortening import shortened
from ncclbench.faults.transfer_rank import NRANKS, Broke, CellTask, Moved, Opened, run_side
from ncclbench.store.transfers import TransferFault
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slots
from ncclbench.worker.board import Board

Fault = Literal["peer-dies", "timeout"]
FAULTS: dict[Fault, signal.Signals] = {"peer-dies": signal.SIGKILL, "timeout": signal.SIGSTOP}

# What ways are given: longer would only make the cells longer.
TIMEOUT_S = 2.0
# Beyond that; gloo may wait 10 s for a connection, whatever its timeout is.
GRACE_S = 13.0
_START_S = 90.0
CELL_BYTES = 32 << 20

# Transfers before the fault, and begun after it until it counts as not noticed.
_BEFORE, _AFTER = 3, 5
_TICK_S = 0.2


def run_cell(task: CellTask, fault: Fault, signals: EndSignals, grace_s: float = GRACE_S) -> TransferFault:
    """One cell.

    Raises:
        Interrupted: an ending signal came; no process is left in any case.
    """
    cell = _Cell(task, fault, signals, task.timeout_s + grace_s)
    outcome, said, seconds = cell.play()
    arm = None if task.arm is None else task.arm[0]
    return TransferFault(way=task.way, arm=arm, fault=fault, outcome=outcome, said=said, seconds=seconds)


_Seen = tuple[Literal["raised", "hung", "completed", "crashed", "not-made"], str, float]


class _Cell:
    """The two processes, and what the acting one says."""

    def __init__(self, task: CellTask, fault: Fault, signals: EndSignals, deadline_s: float) -> None:
        self._task = task
        self._fault = fault
        self._signals = signals
        self._deadline_s = deadline_s
        self._opened = 0
        self._moved: list[Moved] = []
        self._end: Broke | Exit | Opened | None = None
        self._faulted = False

    def play(self) -> _Seen:
        """From the fork of both to the end of the last."""
        meeting = meet_alone()

        def work(rank: int, pipe: Connection) -> None:
            run_side(self._task, rank, meeting.worker_store(0), pipe)

        with Slots() as self._slots:
            self._slots.start(range(NRANKS), Board(NRANKS), work)
            began = time.monotonic()
            up = self._take_until(lambda: self._opened == NRANKS and len(self._moved) >= _BEFORE, _START_S)
            if self._end is not None:
                _, said, seconds = self._said(began)
                return "not-made", said, seconds
            if not up:
                return "not-made", f"nothing was moved in {_START_S:g} s", time.monotonic() - began
            victim = self._slots.slots[1 - self._task.acting]
            at = time.monotonic()
            self._faulted = True
            os.kill(victim.pid, FAULTS[self._fault])
            self._moved.clear()
            unnoticed = self._take_until(lambda: self._after(at) >= _AFTER, self._deadline_s)
            if self._end is not None:
                return self._said(at)
            seconds = time.monotonic() - at
            if unnoticed:
                return "completed", f"{_AFTER} more transfers ended as if nothing were", seconds
            return "hung", f"no answer until the deadline of {self._deadline_s:g} s", seconds

    def _after(self, at: float) -> int:
        return sum(moved.began_s > at for moved in self._moved)

    def _said(self, since: float) -> _Seen:
        """What the end was, of a cell that has one."""
        match self._end:
            case Broke():
                return "raised", shortened(self._end.text), max(0.0, self._end.at_s - since)
            case Opened():
                return "raised", shortened(str(self._end.reason)), time.monotonic() - since
            case _:
                words = self._slots.slots[self._task.acting].last_words()
                return "crashed", f"{self._end}: {shortened(words)}", time.monotonic() - since

    def _take_until(self, done: Any, limit_s: float) -> bool:
        """Take what they say until ``done()``, the acting side's end, or for ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while not done() and self._end is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            for happening in self._slots.happenings(min(_TICK_S, left_s), self._signals.wakeup):
                self._take(happening.slot.rank == self._task.acting, happening.message)
            self._signals.check()
        return True

    def _take(self, is_acting: bool, message: Any) -> None:
        match message:
            case Opened(reason=None):
                self._opened += 1
            case Opened() if self._end is None:
                self._end = message
            case Moved() if is_acting:
                self._moved.append(message)
            case Broke() | Exit() if (is_acting or not self._faulted) and self._end is None:
                # Before the fault nobody ends by itself; afterwards the victim's end is no news.
                self._end = message
