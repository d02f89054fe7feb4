"""Grandchildren that lose their parent come to this process, which sees to their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_PATIENCE_S = 5.0


@contextlib.contextmanager
def heir() -> Iterator[None]:
    """What is started inside, whoever started it and in whatever session, is gone on the way out.

    Orphans become this process' own children, so they can be found, killed and waited for. Processes that
    were there before are left alone.
    """
    libc: Any = ctypes.CDLL(None, use_errno=True)
    former = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(former), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    myself = psutil.Process()
    before = {child.pid for child in myself.children(recursive=True)}
    try:
        yield
    finally:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            # Again and again: whoever is killed may have started another one meanwhile.
            left = [child.pid for child in myself.children(recursive=True) if child.pid not in before]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.005)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, former.value, 0, 0, 0)
