"""Slots: the places of this host's ranks, and the one worker process that is in each at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from ncclbench.supervise.orphans import die_with
from ncclbench.worker.board import Board, Place
from ncclbench.worker.stacks import STACK_SIGNAL, answer_with_stacks

# A stopped process does not answer; any other prints its stack within a moment.
_ANSWER_S = 1.0
_LOG_TAIL_BYTES = 20_000


@dataclass(slots=True)
class Exit:
    """How a worker ended: the exit code, or the number of the signal that killed it."""

    code: int | None
    signal_number: int | None

    def __str__(self) -> str:
        if self.signal_number is not None:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(self.signal_number).name}"
            return f"was killed by signal {self.signal_number}"
        return f"exited with code {self.code}"


@dataclass(slots=True)
class Slot:
    """One rank's place and the worker in it.

    Attributes:
        rank: global rank.
        place: the worker's progress, in shared memory.
        pid: of the worker.
        pidfd: becomes readable when it ends.
        pipe: to it; None once it is closed.
        log: what it has written to stdout and stderr, stacks included.
        exit: how it ended; None while it runs.
    """

    rank: int
    place: Place
    pid: int
    pidfd: int
    pipe: Connection | None
    log: IO[bytes]
    exit: Exit | None = None

    def log_tail(self) -> str:
        """The end of what the worker has written."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _LOG_TAIL_BYTES))
        return self.log.read().decode(errors="replace")

    def last_words(self) -> str:
        """The last line that the worker has written."""
        lines = [line.strip() for line in self.log_tail().splitlines() if line.strip()]
        return lines[-1] if lines else "it left no word"


@dataclass(slots=True)
class Happening:
    """Something that a worker has said, or its end (``message`` is then its Exit)."""

    slot: Slot
    message: Any


@dataclass(slots=True)
class Slots:
    """This host's workers of one launch. Use as a context: nothing outlives it."""

    slots: list[Slot] = field(default_factory=list)

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        for slot in self.slots:
            os.close(slot.pidfd)
            if slot.pipe is not None:
                slot.pipe.close()
            slot.log.close()

    def start(self, ranks: Iterable[int], board: Board, work: Callable[[int, Connection], None]) -> None:
        """Fork a worker for each rank; ``work(slot, pipe)`` runs in it.

        The parent holds no CUDA context and has made no tensor operation, which is what makes a fork
        of it a clean start.
        """
        for number, rank in enumerate(ranks):
            ours, theirs = Pipe()
            log = _log_file()
            place = board.place(number)
            place.reset()
            flush_streams()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become_worker(parent, log)
                ours.close()
                for other in self.slots:
                    if other.pipe is not None:
                        other.pipe.close()
                _leave_with(partial(work, number, theirs))
            theirs.close()
            self.slots.append(Slot(rank, place, pid, os.pidfd_open(pid), ours, log))

    @property
    def running(self) -> list[Slot]:
        """Slots whose worker has not ended."""
        return [slot for slot in self.slots if slot.exit is None]

    def happenings(self, timeout_s: float, wakeup: int) -> list[Happening]:
        """What has come since the last call; waits up to ``timeout_s`` for something.

        A worker's messages come before its end.

        Args:
            wakeup: a file descriptor that ends the wait when it becomes readable.
        """
        sources: dict[Any, Slot] = {}
        for slot in self.slots:
            if slot.pipe is not None:
                sources[slot.pipe] = slot
            if slot.exit is None:
                sources[slot.pidfd] = slot
        ready = wait([*sources, wakeup], timeout_s)
        found: list[Happening] = []
        for slot in self.slots:
            if slot.pipe is not None and slot.pipe in ready:
                found += self._messages(slot)
            if slot.pidfd in ready and slot.exit is None:
                found += self._messages(slot)
                _, status = os.waitpid(slot.pid, 0)
                slot.exit = _read_status(status)
                found.append(Happening(slot, slot.exit))
        return found

    def _messages(self, slot: Slot) -> list[Happening]:
        found = []
        while slot.pipe is not None and slot.pipe.poll():
            try:
                found.append(Happening(slot, slot.pipe.recv()))
            except (EOFError, OSError):
                slot.pipe.close()
                slot.pipe = None
        return found

    def answering(self) -> set[int]:
        """Ranks whose worker still reacts: asks each for its stack, which lands in its log."""
        before = {slot.rank: slot.log.seek(0, os.SEEK_END) for slot in self.running}
        for slot in self.running:
            with contextlib.suppress(ProcessLookupError):
                _ask_for_stack(slot.pid)
        deadline = time.monotonic() + _ANSWER_S
        answered: set[int] = set()
        while time.monotonic() < deadline and len(answered) < len(before):
            for slot in self.running:
                if slot.log.seek(0, os.SEEK_END) > before[slot.rank]:
                    answered.add(slot.rank)
            time.sleep(0.02)
        return answered

    def kill(self) -> None:
        """End every worker that still runs, and wait until it has ended."""
        for slot in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot.pid, signal.SIGKILL)
        for slot in self.running:
            _, status = os.waitpid(slot.pid, 0)
            slot.exit = _read_status(status)


def _log_file() -> IO[bytes]:
    """A file without a name; in memory where no folder for temporary files can be written."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return os.fdopen(os.memfd_create("ncclbench-log"), "r+b")


def _ask_for_stack(pid: int) -> None:
    """Of a worker, or where a script has started it of the whole group: the script ignores it."""
    try:
        os.killpg(pid, STACK_SIGNAL)
    except ProcessLookupError:
        os.kill(pid, STACK_SIGNAL)


def flush_streams() -> None:
    """Write out what standard output and error still hold; either may be closed or full."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def _read_status(status: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)


def _become_worker(parent: int, log: IO[bytes]) -> None:
    """In the child: die with the parent, leave Ctrl-C to it, and write to the log, not to its terminal."""
    die_with(parent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    answer_with_stacks()


def _leave_with(work: Callable[[], None]) -> None:
    """Run the work and leave at once: no exit handler of the parent may run in the child."""
    code = 1
    try:
        work()
        code = 0
    finally:
        flush_streams()
        os._exit(code)
