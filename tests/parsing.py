"""What a parser of foreign text or bytes may do: give a value, or refuse in one line; in time and memory."""

from __future__ import annotations

import contextlib
import io
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.cli.app import run as run_command
from ncclbench.errors import RequestError
from ncclbench.terminal.streams import one_line

# A refusal quotes what was typed, and no more of a file than a few words.
LONGEST_LINE = 20_000
_GIB = 1 << 30


@dataclass(frozen=True)
class Parser:
    """One way in for what others wrote.

    Attributes:
        name: of the entry.
        call: takes the bytes the way users bring them in, and raises RequestError where it refuses.
        seeds: small inputs that it takes.
        refuses: whether it may refuse; what reads the machine it runs on takes anything.
        is_slow: it takes some ten milliseconds, so that fewer inputs are tried.
    """

    name: str
    call: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    refuses: bool = True
    is_slow: bool = False

    def refusal(self, content: bytes) -> str | None:
        """The line that refuses an input; None where it is taken. Anything else is raised."""
        try:
            self.call(content)
        except RequestError as error:
            line = one_line(str(error))
            assert self.refuses, f"{self.name} refuses: {line}"
            assert line
            assert line.isprintable()
            assert len(line) < LONGEST_LINE + 20 * len(content)
            return line
        return None


class TooSlow(BaseException):
    """No ``except Exception`` on the way takes it for something else."""


@contextlib.contextmanager
def bounded(seconds: float, more_bytes: int = _GIB) -> Iterator[None]:
    """Whatever is done inside ends in time, and with so much more memory than now."""

    def out_of_time(number: int, frame: object) -> None:
        raise TooSlow(f"not done within {seconds} s")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


def said_by(words: Sequence[str]) -> Said:
    """A command, in this process: what it prints is lines of printable characters, and never a traceback.

    Raises:
        AssertionError: it failed, or printed what a terminal would act on.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(list(words))
    said = Said(code, out.getvalue(), err.getvalue())
    assert code in (0, 1, 2), said.err[-2000:]
    assert "Traceback" not in said.err
    assert "fault in ncclbench" not in said.err
    for line in (said.out + said.err).split("\n"):
        assert line.isprintable(), f"{line[:300]!r} of {words}"
    if code == 2:
        line = said.err.splitlines()[-1]  # import tells of each file before it says that there is nothing
        assert line.startswith("ncclbench: error: ")
    return said


def command(*words: str) -> Said:
    """As ``said_by``.

    Raises:
        RequestError: the command refuses.
    """
    said = said_by(words)
    if said.code == 2:
        raise RequestError(said.err.removeprefix("ncclbench: error: ").rstrip("\n"))
    return said


def as_typed(content: bytes) -> str:
    """Bytes as an argument of the command line comes in."""
    return content.decode("utf-8", "surrogateescape")
