"""Writing to standard output and error, which may be closed, full, piped or a terminal."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TextIO

from ncclbench.environ import variable
from ncclbench.errors import MeasurementError

# What a terminal acts on: control characters, and those that turn text around (Unicode, UAX #9).
_ACTING = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
# Our own colours, and a line drawn anew.
_OURS = r"\r\x1b\[K|\x1b\[(?:1;31|33|1|0)m"
_ACTING_OR_OURS = re.compile(f"{_OURS}|{_ACTING}")

_COLOURS = {"red": "1;31", "yellow": "33", "bold": "1"}


def write(text: str, stream: TextIO | None) -> None:
    """Write and flush ``text``, what a terminal would act on escaped; nothing where the reader has gone.

    That is (``| head``) from then on, too.

    Raises:
        MeasurementError: the stream takes no more for another reason, a full disk for one.
    """
    if stream is None:  # closed by whoever started us
        return
    try:
        stream.write(_ACTING_OR_OURS.sub(_escaped, text))
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        raise MeasurementError(f"cannot write to {stream.name}: {error.strerror}") from error


def _escaped(match: re.Match[str]) -> str:
    """A character written out; what is our own stays."""
    return match[0] if len(match[0]) > 1 else match[0].encode("unicode_escape").decode()


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
