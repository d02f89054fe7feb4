"""Writing to standard output and error, which may be closed, full, piped or a terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO

from ncclbench.environ import variable
from ncclbench.errors import MeasurementError

_COLOURS = {"red": "1;31", "yellow": "33", "bold": "1"}


def write(text: str, stream: TextIO | None) -> None:
    """Write and flush ``text``; nothing where the reader has gone (``| head``), now and from then on.

    Raises:
        MeasurementError: the stream takes no more for another reason, a full disk for one.
    """
    if stream is None:  # closed by whoever started us
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        raise MeasurementError(f"cannot write to {stream.name}: {error.strerror}") from error


def show(text: str, stream: TextIO | None) -> None:
    """Like ``write``, for lines a measurement must outlive: a stream that takes no more is left alone."""
    with suppress(MeasurementError):
        write(text, stream)


def silence(stream: TextIO) -> None:
    """Send what the stream still holds and gets to nowhere, so that its flush at exit cannot fail."""
    with suppress(OSError, ValueError):  # ValueError: no file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at it as it comes and lines can be redrawn."""
    return stream is not None and stream.isatty() and variable("TERM") != "dumb"


def coloured(text: str, colour: str, stream: TextIO | None) -> str:
    """``text`` in "red", "yellow" or "bold" where the stream is a terminal and NO_COLOR is not set."""
    if not is_terminal(stream) or variable("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def one_line(text: str) -> str:
    """``text`` on one line, control characters (of file names, of other programs' messages) escaped."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
