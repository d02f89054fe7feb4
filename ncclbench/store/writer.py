"""Appending to samples.jsonl so that what was acknowledged survives a kill and a full disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

from ncclbench.store.files import disk_error

_CHUNK_BYTES = 1 << 20


class SampleWriter:
    """The open end of a samples.jsonl. One process writes at a time: the run folder's lock sees to it."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` for appending, made if missing; a torn last line is cut off first.

        Raises:
            MeasurementError: the system refuses.
        """
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            end = _end_of_last_line(self._fd)
            if end < os.fstat(self._fd).st_size:
                os.ftruncate(self._fd, end)
        except OSError as error:
            raise disk_error(path, error) from None

    def append(self, lines: bytes) -> None:
        """Write whole lines and wait until they are on disk: all of them, or none.

        Raises:
            MeasurementError: they did not fit; the file is as it was before.
        """
        before = os.fstat(self._fd).st_size
        rest = memoryview(lines)
        try:
            # One write as a rule; a short one is tried again so that the system says why.
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fdatasync(self._fd)
        except OSError as error:
            # Where even this is refused, readers drop what is torn.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, before)
            raise disk_error(self.path, error) from None

    def close(self) -> None:
        """Release the file; nothing is left to be written."""
        os.close(self._fd)

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_of_last_line(fd: int) -> int:
    """Bytes up to and with the last newline."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
