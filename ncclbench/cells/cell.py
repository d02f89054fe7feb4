"""One cell: its ranks forked, watched until they are done or the deadline has passed, and ended.

The deadline runs from the moment at which all ranks have their group. Whatever happens, no process is left:
ranks are killed at the end, and die with this process where it is killed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from ncclbench.cells.rank import Calling, CellTask, Ended, Opened, Work, serve
from ncclbench.errors import MeasurementError
from ncclbench.faults.leftover import children
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slots
from ncclbench.worker.board import Board

# For the ranks to have their group: the first start on a GPU loads libraries of gigabytes.
_START_S = 120.0
_TICK_S = 0.2

# On a GPU the first message of a pair may make a communicator, which takes seconds, and a rank that waits
# spins: so there a cell has this much more from the start, and one deadline.
COLD_GPU_S = 10.0

# On the CPU two ranks of gloo that wait for each other use 0.2 to 0.7 % of a core, as they wake up at times.
# Those that use this share, or want a core whenever it is looked, are at work, on a machine that is slow, and
# get another deadline; so many in all.
_AT_WORK = 0.02
MOST_DEADLINES = 10

# Signals that no library sends to its own process.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


class NotHere(Exception):
    """Cells of an arm cannot be made, or no more of them; the text says why."""


@dataclass(slots=True)
class CellResult:
    """How a cell ended.

    Attributes:
        reason: why its group cannot be had; then nothing else is known. None where it was there.
        implementation, device: what the group was, and where its tensors lived.
        values: by rank, what its work returned; ``errors``: what it raised, or how its process ended.
        standing: by rank that had not ended at the deadline, what it had called last.
        disturbed: ranks of which the outcome says nothing of torch: killed or stopped from outside, or still
            at work at the last deadline.
        seconds: from the word to go until the outcome was known.
        leftover_processes: alive after the end though they should not be.
    """

    reason: str | None = None
    implementation: str | None = None
    device: str | None = None
    values: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    standing: dict[int, str] = field(default_factory=dict)
    disturbed: set[int] = field(default_factory=set)
    seconds: float = 0.0
    leftover_processes: int = 0

    @property
    def outcome(self) -> str:
        """ "raised" where a rank did, else "deadlocked" where one had not ended, else "completed"."""
        return "raised" if self.errors else "deadlocked" if self.standing else "completed"


def run_cell(
    task: CellTask,
    work: Work,
    deadline_s: float,
    signals: EndSignals,
    before: Callable[[], None] = lambda: None,
) -> CellResult:
    """Fork the ranks, let them do ``work``, and end them.

    Args:
        before: called before the start and before each further deadline, and may end the cell by raising.

    Raises:
        MeasurementError: the ranks did not come as far as their group.
        Interrupted: an ending signal came.
    """
    before()
    meeting = meet_alone()
    # The store of the meeting is a process too, and ends with it.
    there = children()
    board = Board(task.nranks)

    def rank_work(slot: int, pipe: Connection) -> None:
        serve(task, slot, meeting.worker_store(0), pipe, work)

    with Slots() as slots:
        slots.start(range(task.nranks), board, rank_work)
        result = _Watch(slots, signals, task, deadline_s, before).result()
    result.leftover_processes = len(children() - there)
    return result


class _Watch:
    """Listens to the ranks of one cell."""

    def __init__(
        self,
        slots: Slots,
        signals: EndSignals,
        task: CellTask,
        deadline_s: float,
        before: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._signals = signals
        self._task = task
        self._deadline_s = deadline_s
        self._before = before
        self._opened: dict[int, Opened] = {}
        self._result = CellResult()

    def result(self) -> CellResult:
        """From the start to the outcome."""
        result = self._result
        self._await_groups()
        reasons = [opened.reason for opened in self._opened.values() if opened.reason is not None]
        if reasons:
            return CellResult(reason=reasons[0])
        first = self._opened[0]
        result.implementation, result.device = first.implementation, first.device
        result.standing = dict.fromkeys(range(self._task.nranks), "nothing yet")
        began = time.monotonic()
        for slot in self._slots.slots:
            if slot.pipe is not None:
                slot.pipe.send("go")
        self._await_ends()
        result.seconds = time.monotonic() - began
        return result

    def _await_groups(self) -> None:
        limit = time.monotonic() + _START_S
        while len(self._opened) < self._task.nranks:
            if self._result.errors:
                rank, how = next(iter(self._result.errors.items()))
                words = self._slots.slots[rank].last_words()
                raise MeasurementError(
                    f"rank {rank} of a cell on {self._task.arm.id}: {how} at start ({words})"
                )
            if time.monotonic() > limit:
                raise MeasurementError(
                    f"a cell on {self._task.arm.id} had no group after {_START_S:.0f} s: is the machine busy?"
                )
            self._listen(_TICK_S)

    def _await_ends(self) -> None:
        """Until all ranks have ended, or a deadline passes in whose second half none was at work."""
        on_cpu = self._result.device == "cpu"
        if not on_cpu:
            self._await_ends_for(COLD_GPU_S)
        half_s = self._deadline_s / 2
        for _ in range(MOST_DEADLINES):
            self._await_ends_for(half_s)
            before_s, wanted = self._core_s(), self._want_a_core()
            self._await_ends_for(half_s)
            at_work = self._core_s() - before_s > _AT_WORK * half_s or (wanted and self._want_a_core())
            if not self._result.standing or not on_cpu or not at_work:
                break
            self._before()
        else:
            self._tell_at_work()
        self._tell_stopped()

    def _await_ends_for(self, seconds: float) -> None:
        """Listen for so long, not counting what this process was itself stopped or kept from its core."""
        left_s = seconds
        while self._result.standing and left_s > 0:
            began = time.monotonic()
            self._listen(min(left_s, _TICK_S))
            left_s -= min(time.monotonic() - began, 2 * _TICK_S)

    def _tell_at_work(self) -> None:
        """On a machine that is overloaded, or with a backend that spins: the reader is to know."""
        for rank, step in self._result.standing.items():
            self._result.standing[rank] = f"{step}, still at work"
            self._result.disturbed.add(rank)

    def _tell_stopped(self) -> None:
        """A rank that was stopped from outside (SIGSTOP, a debugger) waits for nobody: it is no deadlock."""
        for slot in self._slots.running:
            if slot.rank in self._result.standing and _is_stopped(slot.pid):
                self._fail(slot.rank, "the process was stopped by a signal")
                self._result.disturbed.add(slot.rank)

    def _of_threads(self, file: str) -> list[str]:
        """A file of /proc of every thread of ranks that run."""
        texts = []
        for slot in self._slots.running:
            for path in Path(f"/proc/{slot.pid}/task").glob(f"*/{file}"):
                with suppress(OSError):  # a thread that has ended
                    texts.append(path.read_text())
        return texts

    def _core_s(self) -> float:
        """Seconds of a core that the ranks have had, finer than the ticks of clock that ps shows."""
        return sum(int(text.split()[0]) for text in self._of_threads("schedstat")) / 1e9

    def _want_a_core(self) -> bool:
        """Whether a thread runs or would run, were there a core for it."""
        return any(text.rpartition(")")[2].split()[0] == "R" for text in self._of_threads("stat"))

    def _listen(self, timeout_s: float) -> None:
        result = self._result
        for happening in self._slots.happenings(timeout_s, self._signals.wakeup):
            rank = happening.slot.rank
            match happening.message:
                case Opened():
                    self._opened[rank] = happening.message
                case Calling(step=step):
                    if rank in result.standing:
                        result.standing[rank] = step
                case Ended(value=value, error=None):
                    result.standing.pop(rank, None)
                    result.values[rank] = value
                case Ended(error=str() as error):
                    self._fail(rank, error)
                case Exit() as how if rank not in result.values and rank not in result.errors:
                    if rank not in self._opened or self._opened[rank].reason is None:
                        self._fail(rank, f"the process {how}")
                        if how.signal_number in _FROM_OUTSIDE:
                            result.disturbed.add(rank)
        self._signals.check()

    def _fail(self, rank: int, error: str) -> None:
        where = self._result.standing.pop(rank, "")
        self._result.errors[rank] = f"{where}: {error}" if where else error


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False
