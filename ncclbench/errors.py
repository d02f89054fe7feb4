"""The errors that end a command, each with the exit code the command line promises."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

EXIT_OK = 0
EXIT_BAD_ANSWER = 1
EXIT_BAD_REQUEST = 2
EXIT_FAILED = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class NcclbenchError(Exception):
    """Base of every error a user may see: one line that says what, where and how to mend it.

    Attributes:
        run: the folder of the run that it is about and that is kept; None where there is none.
    """

    exit_code = EXIT_FAILED
    run: Path | None = None


class RequestError(NcclbenchError):
    """The request was wrong; nothing was measured."""

    exit_code = EXIT_BAD_REQUEST


class MeasurementError(NcclbenchError):
    """The measurement failed; what was measured before is kept."""

    exit_code = EXIT_FAILED


class Interrupted(NcclbenchError):
    """A signal ended the command; what was measured before is kept.

    ``signal_number`` decides the exit code: 128 plus the number, as shells do it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class WriteRefused(MeasurementError):
    """A file of a run could not be written.

    Attributes:
        refusal: the first half of the line: what, where, and what to do about it, without how to go on.
    """

    def __init__(self, refusal: str, mend: str) -> None:
        super().__init__(f"{refusal}: {mend}" if refusal.endswith(")") else f"{refusal}; {mend}")
        self.refusal = refusal


class StoreLost(MeasurementError, RuntimeError):
    """The store that supervisors meet at does not answer any more; torch's own error for it is no user's."""


def brief(error: BaseException) -> str:
    """What a library says of its error, on one line and not too long, to stand in a line of ours."""
    return " ".join(str(error).split())[:200]


def refused_by_system(error: BaseException) -> NcclbenchError | None:
    """The line for what the operating system refuses any program: files, processes, memory, disk.

    Whoever was refused may have said it in words of its own (torch, the import of a library), so what led to
    the error and its text count, too. None where it is something else.
    """
    for each in _chain(error):
        for number, (kind, mend) in _REFUSALS.items():
            in_words = number in _SAID_BY_LIBRARIES and os.strerror(number) in str(each)
            if in_words or (isinstance(each, OSError) and each.errno == number):
                place = f" at {each.filename}" if isinstance(each, OSError) and each.filename else ""
                return kind(f"{os.strerror(number).lower()}{place}: {mend.format(**_limits())}")
        if isinstance(each, MemoryError):
            return MeasurementError(f"out of memory: {_REFUSALS[errno.ENOMEM][1]}")
    return None


# What these say can mean nothing else; "resource temporarily unavailable" is also what a network says.
_SAID_BY_LIBRARIES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
_ROOM = "make room, or point TMPDIR and --out at a file system that has some"
_REFUSALS: dict[int, tuple[type[NcclbenchError], str]] = {
    errno.EMFILE: (RequestError, "this process may open {files} (ulimit -n): raise it, to 1024 at least"),
    errno.ENFILE: (RequestError, "the whole machine may open no more (fs.file-max): end others, or raise it"),
    errno.ENOMEM: (MeasurementError, "smaller sizes (-e), fewer ranks, or a larger limit (ulimit -v)"),
    errno.EAGAIN: (RequestError, "no more processes or threads for this user (ulimit -u, cgroup pids.max)"),
    errno.ENOSPC: (MeasurementError, _ROOM),
    errno.EDQUOT: (MeasurementError, _ROOM),
    errno.EROFS: (RequestError, "choose a folder that can be written (--out, TMPDIR, HOME)"),
}


def _limits() -> dict[str, int]:
    return {"files": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
