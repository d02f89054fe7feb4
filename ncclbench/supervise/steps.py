"""Steps of a preset: each a command of this very ncclbench as a child, ended in time and with its parent.

Under a launcher every rank's command runs the same steps in the same order, each as a child of its own; rank
0 says through the store what the next step is and when one is over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import ncclbench
from ncclbench.errors import MeasurementError
from ncclbench.supervise.elsewhere import become
from ncclbench.supervise.launcher import STEP_VARIABLE
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slots, flush_streams
from ncclbench.worker.board import Board

if TYPE_CHECKING:
    from ncclbench.supervise.launch import Job

# For a step that is asked to end: what it measured is to be written and shown. torchrun waits for 30 s.
_GRACE_S = 25.0
# For a rank's step to end by itself once rank 0's has.
_FOLLOW_S = 20.0
_LOOK_S = 0.2
# Of a follower, for rank 0's next word: it may be writing everything down.
_NEXT_WORD_S = 600.0
_MOST_OUTPUT_BYTES = 512 << 20

# This very package, whatever else is installed under its name.
_BEGIN = """
import importlib.util, sys
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "ncclbench", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["ncclbench"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from ncclbench.cli import main
main()
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step's command ended.

    Attributes:
        exit: its code, or the signal that killed it.
        seconds: wall-clock time that it took.
        output: what it has written to standard output.
        overdue: it was ended because its deadline had passed.
    """

    exit: Exit
    seconds: float
    output: bytes
    overdue: bool


class Company(Protocol):
    """The other ranks that run the same steps."""

    def begin(self, number: int, words: Sequence[str], name: str, deadline_s: float) -> Mapping[str, str]:
        """Tell them of a step; the variables that its ranks need to meet."""
        ...

    def over(self, number: int) -> int:
        """Tell them that it is over, and wait for them; how many have not come back."""
        ...


class Alone:
    """No other ranks: the steps supervise theirs themselves."""

    def begin(self, number: int, words: Sequence[str], name: str, deadline_s: float) -> Mapping[str, str]:
        """Nobody to tell."""
        return {}

    def over(self, number: int) -> int:
        """Nobody to wait for."""
        return 0


class Leading:
    """Rank 0 of a job that a launcher has placed."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def begin(self, number: int, words: Sequence[str], name: str, deadline_s: float) -> Mapping[str, str]:
        """Publish the step."""
        told = {"words": list(words), "name": name, "deadline_s": deadline_s}
        self._job.meeting.publish(f"step/{number}", told)
        return _variables(number, name)

    def over(self, number: int) -> int:
        """Publish its end; others have so long to end theirs, by force where they must."""
        meeting = self._job.meeting
        meeting.publish(f"stepover/{number}", True)
        wanted, deadline = meeting.world_size - 1, time.monotonic() + _FOLLOW_S + _GRACE_S + 10.0
        while (come := meeting.count(f"stepdone/{number}")) < wanted and time.monotonic() < deadline:
            if self._job.signals.received is not None:
                break
            time.sleep(meeting.pause_s(0.05))
        return wanted - come


def follow_steps(job: Job) -> int:
    """A rank other than 0 of a command that may have several steps: do what rank 0 tells of; the exit code.

    Raises:
        Interrupted: an ending signal came to this process.
        MeasurementError: rank 0 has gone silent.
    """
    meeting, number = job.meeting, 0
    while True:
        deadline = time.monotonic() + _NEXT_WORD_S
        while not meeting.known(f"step/{number}"):
            if number == 0 and meeting.known("assignment/0"):
                from ncclbench.supervise.session import follow

                return follow(job)
            if meeting.known("exit"):
                return int(meeting.read("exit", 1.0))
            job.signals.check()
            if time.monotonic() > deadline:
                raise MeasurementError(f"rank {meeting.rank} waited {_NEXT_WORD_S:.0f} s for rank 0 to go on")
            time.sleep(meeting.pause_s(0.05))
        told: dict[str, Any] = meeting.read(f"step/{number}", 1.0)
        run_step(
            told["words"],
            _variables(number, told["name"]),
            told["deadline_s"] + 2 * _GRACE_S,
            job.signals,
            _Over(job, number),
            keeps_output=False,
        )
        meeting.count(f"stepdone/{number}", 1)
        job.signals.check()
        number += 1


def run_step(
    words: Sequence[str],
    variables: Mapping[str, str],
    deadline_s: float,
    signals: EndSignals,
    is_over: Callable[[], bool] = lambda: False,
    keeps_output: bool = True,
) -> Ended:
    """Run one command to its end; what it says on standard error is passed on.

    An ending signal that has come to this process goes to the command, too. When this returns, or this
    process is killed, nothing of the command is left.

    Args:
        words: of the command line, from the command's name on.
        variables: beside those of this process.
        is_over: asked now and then; once true the command is to end soon.
    """
    start = time.monotonic()
    errors = _copy_of(2)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, errors)
        output = stack.enter_context(tempfile.TemporaryFile())
        slots = stack.enter_context(Slots())
        where = output if keeps_output else None
        slots.start([0], Board(1), lambda slot, pipe: _become(words, variables, where, errors))
        overdue = _Watch(slots, start + deadline_s, signals, is_over).run()
        ended = slots.slots[0].exit
        assert ended is not None
        return Ended(ended, time.monotonic() - start, _content(output), overdue)


class _Watch:
    """Looks on until the one child has ended, and sees to it that it does."""

    def __init__(
        self, slots: Slots, deadline: float, signals: EndSignals, is_over: Callable[[], bool]
    ) -> None:
        self._slots = slots
        self._slot = slots.slots[0]
        self._deadline = deadline
        self._signals = signals
        self._is_over = is_over
        self._over_since: float | None = None
        self._asked: float | None = None

    def run(self) -> bool:
        """Until it has ended; whether its deadline had passed before."""
        overdue = False
        try:
            while not self._ended():
                now = time.monotonic()
                if self._asked is not None:
                    if now > self._asked + _GRACE_S:
                        break
                elif self._signals.received is not None:
                    self._ask(self._signals.received)
                elif now > self._deadline:
                    overdue = True
                    self._ask(signal.SIGTERM)
                elif self._told_over(now):
                    self._ask(signal.SIGTERM)
        finally:
            if self._slot.exit is None:
                self._kill_group()
                self._slots.kill()
        return overdue

    def _ended(self) -> bool:
        sources: list[Any] = [self._slot.pidfd]
        if self._signals.received is None:
            sources.append(self._signals.wakeup)
        if self._slot.pidfd not in wait(sources, _LOOK_S):
            return False
        self._kill_group()
        self._slots.happenings(0, self._signals.wakeup)
        return self._slot.exit is not None

    def _kill_group(self) -> None:
        """What is left of it; called before the child is reaped, so that its number is not another's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._slot.pid, signal.SIGKILL)

    def _told_over(self, now: float) -> bool:
        if self._over_since is None and self._is_over():
            self._over_since = now
        return self._over_since is not None and now > self._over_since + _FOLLOW_S

    def _ask(self, number: int) -> None:
        """A stopped process hears nothing until it goes on."""
        self._asked = time.monotonic()
        for each in (number, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._slot.pid, each)


class _Over:
    """Whether rank 0 has said that a step is over; it is not asked all the time."""

    def __init__(self, job: Job, number: int) -> None:
        self._job = job
        self._key = f"stepover/{number}"
        self._next = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._job.meeting.pause_s(1.0)
        try:
            return self._job.meeting.known(self._key)
        except RuntimeError:  # rank 0's process has taken the store with it
            return True


def _variables(number: int, name: str) -> dict[str, str]:
    return {STEP_VARIABLE: f"{number}-{name}"}


def _become(
    words: Sequence[str], variables: Mapping[str, str], output: IO[bytes] | None, errors: int
) -> None:
    """In the forked child: be that command. It dies with its parent, as every worker does."""
    # Ctrl-C reaches a terminal's foreground group: it is passed on by the parent, once.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.dup2(errors, 2)
    if output is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    else:
        os.dup2(output.fileno(), 1)
    folder = str(Path(ncclbench.__file__).resolve().parent)
    command = [sys.executable, "-P", "-c", _BEGIN, folder, *words]
    flush_streams()
    become(command, variables)


def _copy_of(descriptor: int) -> int:
    """A descriptor for the same file, or for nothing where it is closed."""
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _content(output: IO[bytes]) -> bytes:
    output.seek(0)
    content = output.read(_MOST_OUTPUT_BYTES + 1)
    return b"" if len(content) > _MOST_OUTPUT_BYTES else content
