"""How a worker tells where it stands, even while its main thread waits inside a library."""

from __future__ import annotations

import faulthandler
import signal

STACK_SIGNAL = signal.SIGUSR1


def answer_with_stacks() -> None:
    """From now on the signal, and a crash, write this process's stack to its standard error."""
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=False)
    faulthandler.enable(file=2)
