"""Writing files: the one place that replaces a file, so that no reader ever finds half of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that at any moment, also after a crash, its old or its new content is there whole.

    Args:
        path: in a folder that is there.

    Raises:
        OSError: the system refuses; the old content stands and nothing else is left.
    """
    # The process id keeps two commands from sharing one temporary file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # there only where something went wrong
            temporary.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
