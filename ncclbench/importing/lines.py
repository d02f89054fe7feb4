"""Lines of any file, in bounded memory and time, and without what launchers and terminals put around them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from ncclbench.errors import RequestError
from ncclbench.importing.model import LONGEST_LINE

# What lies beyond this in one line is passed over in pieces of this length.
_PIECE = 1 << 16

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = dict.fromkeys((*range(32), 127, 0xFEFF), "") | {ord("\t"): " "}

# Open MPI's --tag-output (version 5 writes the job's name into it) and --timestamp-output. They stand at the
# start of what a process wrote in one piece, which is not always the start of a line.
_TAG = re.compile(
    r"(?:\[([\w.@:-]{1,100},(?:mpirank:)?\d+)\])?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?"
    r"<std(?:out|err|diag)>:? ?"
)

_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    rf"""\s*(?:
      \[(?:(?P<rank>\d+|default\d+|rank\d+|pod/[^\]\s]+)|{_DATE}|\d\d:\d\d:\d\d)\]:?  # srun, torchrun ...
    | (?P<label>\d{{1,6}}):(?=\ |$)                                       # srun --label
    | {_DATE}(?=\s)
    | <\d+>
    | >(?=\ |$)                                                               # quoted in a mail or a ticket
    )""",
    re.VERBOSE,
)
# The name of a host (pdsh, clush) or a container (compose): taken off only before what is a table's own line.
_NAME = re.compile(r"\s*([A-Za-z][\w./@-]{0,99})(?::|\s{0,20}\|)(?=\s*(?:\#|\d+\s+\d+\s))")


def raw_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1, as it stands, at most LONGEST_LINE characters of it.

    UTF-8 and UTF-16 are told apart; what is neither reads as replacement characters. Lines end with LF, CRLF
    or CR. A line of any length takes the memory of a short one.

    Raises:
        RequestError: the file cannot be read.
    """
    try:
        encoding = _encoding(file)
        with file.open(encoding=encoding, errors="replace") as stream:
            number = 0
            while piece := stream.readline(_PIECE):
                number += 1
                line = piece
                while len(piece) == _PIECE and piece[-1] != "\n":
                    piece = stream.readline(_PIECE)
                yield number, line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE]
    except OSError as error:
        reason = error.strerror or str(error)
        raise RequestError(f"{file}: {reason}: give a file that can be read") from error


def clean(line: str) -> str:
    """The line without colours, control characters and prefixes of launchers, wherever they stand."""
    return unprefixed(line)[0]


def unprefixed(line: str) -> tuple[str, str]:
    """The line as ``clean`` makes it, and who wrote it: what its prefixes name, "" where they name nobody.

    That is a rank of a job, a host or a container, without the stream: what a rank writes to standard error
    is as much its own as the rest.
    """
    if not line.isprintable():
        if "\x1b" in line:
            line = _TERMINAL.sub("", line)
        line = line.translate(_CONTROL)
    writers: list[str] = []
    if "<std" in line:
        # Output of two ranks in one line is nobody's.
        tags = set(_TAG.findall(line))
        writers += tags if len(tags) == 1 else ()
        line = _TAG.sub("", line)
    for _ in range(4):
        prefix = _PREFIX.match(line)
        if prefix is None:
            break
        writers += [prefix[prefix.lastgroup]] if prefix.lastgroup else ()
        line = line[prefix.end() :]
    name = _NAME.match(line)
    if name is not None:
        writers.append(name[1])
        line = line[name.end() :]
    # A row of a Markdown table.
    text = line.strip(" |").replace("|", " ") if line.lstrip()[:1] == "|" else line.rstrip()
    return text, " ".join(filter(None, writers))


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1, clean.

    Raises:
        RequestError: the file cannot be read.
    """
    for number, line in raw_lines(file):
        yield number, clean(line)


def _encoding(file: Path) -> str:
    with file.open("rb") as stream:
        start = stream.read(4096)
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    # Text in UTF-16 without a mark: every other byte of what is mostly ASCII is zero.
    if len(start) >= 64:
        for offset, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
            half = start[offset::2]
            if half.count(0) > 0.9 * len(half) and start[1 - offset :: 2].count(0) < 0.1 * len(half):
                return encoding
    return "utf-8"
