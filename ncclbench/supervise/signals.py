"""Signals that ask a command to end: noted at once, acted on where it is safe."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

from ncclbench.errors import Interrupted, MeasurementError

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    """While active, an ending signal is remembered and wakes whoever waits on ``wakeup``.

    Nothing is raised out of a handler, so no write is ever cut in two by one.

    Args:
        launcher: process id of what started this one and ends it, as torchrun does; None where nobody does.

    Attributes:
        received: number of the first ending signal, or None.
        wakeup: file descriptor that becomes readable with it.
    """

    def __init__(self, launcher: int | None = None) -> None:
        self._launcher = launcher
        self.received: int | None = None
        self.wakeup, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._former: dict[int, Any] = {}

    def __enter__(self) -> EndSignals:
        for number in _ENDING:
            # What nohup or a shell's background job was told to ignore stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self.wakeup)
        os.close(self._write)

    def check(self) -> None:
        """End here if an ending signal has come, or if the launcher has been killed and can send none.

        Raises:
            Interrupted: a signal has come.
            MeasurementError: the launcher is gone.
        """
        if self.received is not None:
            raise Interrupted(f"ended by {signal.Signals(self.received).name}", self.received)
        if self._launcher is not None and os.getppid() != self._launcher:
            raise MeasurementError(
                f"the launcher of this rank (process {self._launcher}) is gone: launch the job again"
            )

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            os.write(self._write, b"!")
