"""The run folder of a command that writes: made, locked, and its run.json replaced whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.store.files import (
    LOCK_FILE,
    META_FILE,
    REPORT_FILE,
    SAMPLES_FILE,
    SUMMARY_FILE,
    disk_error,
    kind_of_run,
)
from ncclbench.store.writer import SampleWriter
from ncclbench.writing import write_whole

__all__ = [
    "LOCK_FILE",
    "META_FILE",
    "REPORT_FILE",
    "SAMPLES_FILE",
    "SUMMARY_FILE",
    "RunFolder",
    "replace_file",
]

_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)


class RunFolder:
    """A run folder that this process holds the lock of, from ``create`` or ``reopen`` until ``close``.

    The lock is POSIX's record lock: it belongs to the process, is not inherited by forked children, and
    goes with the process however that ends, so a stale one cannot exist. (It also goes when this
    process closes any descriptor of the lock file, so nothing else here may open that.)
    """

    def __init__(self, path: Path) -> None:
        """Lock ``path``, which exists; use ``create`` or ``reopen``."""
        self.path = path
        self._is_ours = False
        self._lock: int | None = _locked(path)

    @classmethod
    def create(cls, path: Path, must_be_new: bool = False) -> RunFolder:
        """Make the folder (an empty one will do, unless it must be new) and lock it.

        Raises:
            FileExistsError: it must be new, and something is there.
            RequestError: it already holds a run, is in use, is no folder or cannot be written.
        """
        is_new = must_be_new or not os.path.lexists(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(exist_ok=not must_be_new)
        except (FileExistsError, NotADirectoryError):
            if must_be_new and os.path.isdir(path):
                raise
            raise RequestError(f"{path} is a file, not a folder: choose another with --out") from None
        except OSError as error:
            raise _not_writable(path, error) from None
        folder = cls(path)
        folder._is_ours = is_new
        for name in (META_FILE, SAMPLES_FILE):
            if os.path.lexists(path / name):
                folder.close()
                kind = kind_of_run(path) or "sweep"
                go_on = f"continue it with --resume {path}"
                if kind != "sweep":
                    go_on = f"see what is in it with ncclbench report {path}"
                refused = RequestError(
                    f"{path} already holds a run ({name}): choose another folder with --out, or {go_on}"
                )
                refused.run = path
                raise refused
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Lock a folder that holds a run.

        Raises:
            RequestError: there is no run, it is in use, or it cannot be written.
        """
        if not os.path.isfile(path / META_FILE):
            raise RequestError(f"{path} holds no run: there is no {META_FILE} in it")
        return cls(path)

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace run.json: a reader finds the old one or the new one, whole, also after a crash.

        Raises:
            MeasurementError: the system refuses the write; the old one stands.
        """
        text = json.dumps(meta, indent=1, allow_nan=False) + "\n"
        replace_file(self.path / META_FILE, text.encode())

    def samples(self) -> SampleWriter:
        """The end of samples.jsonl, a torn last line cut off.

        Raises:
            MeasurementError: the system refuses.
        """
        return SampleWriter(self.path / SAMPLES_FILE)

    def close(self) -> None:
        """Release the lock; of a run that never began nothing is left. Again does nothing."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            if self._is_ours and [entry.name for entry in self.path.iterdir()] == [LOCK_FILE]:
                (self.path / LOCK_FILE).unlink()
                self.path.rmdir()
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any moment, also after a crash, its old or its new content is there whole.

    Raises:
        MeasurementError: the system refuses; the old content stands.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise disk_error(path, error) from None


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock, whose file tells who holds it."""
    path = folder / LOCK_FILE
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _not_writable(folder, error) from None
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        holder = ""
        with contextlib.suppress(OSError):  # no file, but a pipe
            holder = os.pread(lock, 300, 0).decode(errors="replace").strip()
        os.close(lock)
        if error.errno in _HELD_BY_OTHERS:
            raise RequestError(f"{folder} is in use by {holder or 'another process'}") from None
        raise _not_writable(folder, error) from None
    return lock


def _not_writable(folder: Path, error: OSError) -> NcclbenchError:
    if error.errno == errno.ENOLCK:
        return RequestError(f"{folder} lies on a file system without locks: choose another with --out")
    return RequestError(f"cannot write to {folder} ({error.strerror}): choose another folder with --out")
