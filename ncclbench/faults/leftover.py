"""Processes that a trial has left behind: children, and whatever bears its mark."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

import psutil

from ncclbench.faults.model import MARKER

# A process that was killed is not gone at once.
_SETTLE_S = 1.0


def children() -> set[int]:
    """Pids of all processes below this one."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def end_leftovers(before: Collection[int], token: str) -> int:
    """How many processes of a trial are still alive; they are ended here.

    Args:
        before: pids of children that there were before it.
        token: of the trial. A forked process has no environment of its own to be known by, and is a child;
            one that was started anew is known by its environment, wherever its parent is.
    """
    deadline = time.monotonic() + _SETTLE_S
    while (left := _left(before, token)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in left:
        try:
            process.kill()
            process.wait(_SETTLE_S)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired):
            continue
    return len(left)


def _left(before: Collection[int], token: str) -> list[psutil.Process]:
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        if process.pid != os.getpid() and process.pid not in found and _has_token(process, token):
            found[process.pid] = process
    return [process for pid, process in found.items() if pid not in before and _is_alive(process)]


def _has_token(process: psutil.Process, token: str) -> bool:
    try:
        return bool(process.environ().get(MARKER) == token)
    except (psutil.Error, OSError):
        return False  # somebody else's


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
