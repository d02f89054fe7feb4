"""Files in which dumps may be: found, and read as bytes; what is no plain file is refused."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ncclbench.flight.model import Refused
from ncclbench.units import format_memory

# Hundred thousand operations with their frames.
MOST_BYTES = 64 << 20
MOST_FILES = 100_000
_MOST_FOLDERS = 10_000
_NO_FILE = "is a device, a pipe or a folder"
_GZIP = b"\x1f\x8b"


def find_files(paths: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[Refused]]:
    """All files that are named, and all in the folders that are, by name; each with whether it was named.

    Hidden files are passed over. Links are followed where they are named, and nowhere else.
    """
    found: dict[Path, bool] = {}
    refused: list[Refused] = []
    for path in paths:
        if not _is_folder(path):
            found[path] = True
            continue
        for file in _in_folder(path, refused):
            found.setdefault(file, False)
            if len(found) > MOST_FILES:
                refused.append(Refused(str(path), f"more than {MOST_FILES:,} files: the rest was not read"))
                return list(found.items()), refused
    return list(found.items()), refused


def read_file(path: Path, is_named: bool) -> tuple[bytes, int]:
    """What is in a file, and when it was last written (UNIX nanoseconds).

    Raises:
        ValueError: it is no plain file, empty, too large, or cannot be read; in a few words.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if is_named else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError:  # a NUL in it
        raise ValueError("cannot be read: no file can be called that") from None
    except OSError as error:
        reasons = {errno.ELOOP: "is a link: name it, or what it leads to", errno.ENXIO: _NO_FILE}
        raise ValueError(reasons.get(error.errno or 0, f"cannot be read: {error.strerror}")) from None
    try:
        with open(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(_NO_FILE)
            _check_size(found.st_size)
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    _check_size(len(content))
    return content, found.st_mtime_ns


def unpacked(content: bytes) -> bytes:
    """The content, or what is packed in it as gzip.

    Raises:
        ValueError: it is damaged, or too large unpacked.
    """
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"is damaged gzip: {error}") from None
    _check_size(len(content))
    return content


def _check_size(nbytes: int) -> None:
    if not nbytes:
        raise ValueError("is empty")
    if nbytes > MOST_BYTES:
        raise ValueError(f"has more than the {format_memory(MOST_BYTES)} that are read of a dump")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _in_folder(top: Path, refused: list[Refused]) -> Iterator[Path]:
    """Files below, in the order of their names, numbers by their size."""
    errors: list[OSError] = []
    for count, (folder, folders, names) in enumerate(os.walk(top, onerror=errors.append)):
        if count >= _MOST_FOLDERS:
            refused.append(Refused(str(top), f"more than {_MOST_FOLDERS:,} folders: the rest was not read"))
            break
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        refused += [Refused(os.path.join(folder, name), "is a link to a folder: name it") for name in links]
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=_natural)
        for name in sorted(names, key=_natural):
            if not name.startswith("."):
                yield Path(folder, name)
    for error in errors:
        refused.append(Refused(str(error.filename), f"cannot be read: {error.strerror}"))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that puts rank_9 before rank_10."""
    parts = re.findall(r"\d{1,18}|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
