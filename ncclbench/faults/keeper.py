"""A temporary folder that is removed however this process ends, SIGKILL included."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

# Whoever writes into the folder ends with this process, but not at the same moment.
_PATIENCE_S = 5.0


@contextlib.contextmanager
def kept_folder(prefix: str) -> Iterator[Path]:
    """A folder that is gone on the way out.

    A small process waits for the end of this one and removes what is left then. A signal that is meant for
    the whole job, as Ctrl-C is, does not end it before.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    theirs, ours = os.pipe()  # closed on exec, so that a keeper waits for nobody but this process
    heeded = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    pid = os.fork()
    if pid == 0:
        _keep(folder, theirs)
    signal.pthread_sigmask(signal.SIG_SETMASK, heeded)
    os.close(theirs)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(ours)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _keep(folder: Path, theirs: int) -> NoReturn:
    """In the keeper: nothing of Python's own end is wanted, which would flush what the parent holds."""
    try:
        os.setsid()
        keep = {0, 1, 2, theirs}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in keep:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.read(theirs, 1)
        deadline = time.monotonic() + _PATIENCE_S
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.05)
        # Somebody may have been about to write: once more when all are gone.
        time.sleep(0.5)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)
