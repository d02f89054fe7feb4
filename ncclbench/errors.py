"""The errors that end a command, each with the exit code the command line promises."""

from __future__ import annotations

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
