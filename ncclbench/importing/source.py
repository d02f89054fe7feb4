"""Files before anything is read of them: refused where they cannot be read safely, or their first text."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ncclbench.errors import RequestError
from ncclbench.importing.model import SNIFFED_BYTES
from ncclbench.store.folder import META_FILE
from ncclbench.units import format_memory

STDIN = "-"

# A day of NCCL_DEBUG=TRACE of a large job. More is no log of a benchmark.
MOST_BYTES = 4 << 30
# Standard input is kept in a temporary file, where room may be small.
MOST_STDIN_BYTES = 512 << 20
# What is parsed at once, and not line by line.
MOST_JSON_BYTES = 256 << 20

_ARCHIVES = {
    b"\x1f\x8b": "gunzip -k",
    b"PK\x03\x04": "unzip",
    b"PK\x05\x06": "unzip",
    b"BZh": "bunzip2 -k",
    b"\xfd7zXZ\x00": "unxz -k",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"7z\xbc\xaf\x27\x1c": "7z x",
    b"\x04\x22\x4d\x18": "unlz4",
}
_TAR_MAGIC_AT = 257


def check_file(path: Path) -> None:
    """Look at a file from outside; a link is followed.

    Raises:
        RequestError: it is not there, no plain file, empty, or too large.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:  # a NUL in it
        raise RequestError(f"cannot read {str(path)!r}: no file can be called that") from None
    if stat.S_ISDIR(found.st_mode):
        is_run = os.path.exists(path / META_FILE)
        mend = (
            f"it is a run already, see it with ncclbench report {path}" if is_run else "name the files in it"
        )
        raise RequestError(f"{path} is a folder: {mend}")
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(f"{path} is a device or a pipe: write it to a file, or pipe it in and name it -")
    if found.st_size == 0:
        raise RequestError(f"{path} is empty")
    check_size(path, found.st_size, MOST_BYTES)


def check_size(path: Path, nbytes: int, most: int) -> None:
    """Refuse what is too large to be what it should be.

    Raises:
        RequestError: it is.
    """
    if nbytes > most:
        raise RequestError(
            f"{path} has more than the {format_memory(most)} that are read: "
            "keep the lines of the benchmark and leave out the debug output"
        )


def read_bytes(path: Path, most: int = MOST_JSON_BYTES) -> bytes:
    """All of a file that is parsed at once.

    Raises:
        RequestError: it cannot be read, or is too large for that.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
            if len(content) > most:
                check_size(path, path.stat().st_size, most)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    return content


def first_text(path: Path) -> str:
    """The beginning of a file, ``SNIFFED_BYTES`` at most, as text.

    Raises:
        RequestError: it cannot be read, or is an archive.
    """
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED_BYTES)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    for magic, tool in _ARCHIVES.items():
        if head.startswith(magic):
            raise RequestError(f"{path} is compressed: unpack it first, with {tool}")
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        raise RequestError(f"{path} is an archive: unpack it first, with tar xf")
    return decoded(head)


def last_text(path: Path) -> str:
    """The end of a file of which ``first_text`` is not the whole, as long at most.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(SNIFFED_BYTES, length - SNIFFED_BYTES))
            return file.read(SNIFFED_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None


def decoded(content: bytes) -> str:
    """Text of bytes in whatever encoding: UTF-16 where a mark says so, else UTF-8; strange bytes replaced."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")


@contextmanager
def standard_input(stream: BinaryIO) -> Iterator[Path]:
    """Standard input as a file, for as long as the context lasts.

    Raises:
        RequestError: it is empty, or does not end.
    """
    with tempfile.NamedTemporaryFile(prefix="ncclbench-", suffix=".txt") as file:
        nbytes = 0
        while chunk := stream.read(1 << 20):
            nbytes += len(chunk)
            check_size(Path("standard input"), nbytes, MOST_STDIN_BYTES)
            file.write(chunk)
        file.flush()
        if not nbytes:
            raise RequestError("standard input is empty")
        yield Path(file.name)
