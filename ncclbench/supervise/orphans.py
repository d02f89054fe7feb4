"""A forked process that does not outlive its parent, SIGKILL included, and what it starts not it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# For ps; the kernel keeps so many characters.
_NAME = b"ncclbench-guard"


def die_with(parent: int) -> None:
    """In the child: be killed when the parent ends; leave at once where it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def guard_group() -> None:
    """Make this process the head of a group that ends with it, whatever it becomes and starts by then.

    A script that starts its Python as a child would leave it behind: a signal to the script is not one to
    the child, and the wish to die with the parent is not inherited. A process beside it waits for its end and
    kills the rest of the group.
    """
    os.setpgid(0, 0)
    head = os.getpid()
    pidfd = os.pidfd_open(head)
    if os.fork() == 0:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME)
            os.setpgid(0, 0)
            # Neither the pipe nor the log nor anybody's terminal stays open because of it.
            os.closerange(0, pidfd)
            os.closerange(pidfd + 1, os.sysconf("SC_OPEN_MAX"))
            select.select([pidfd], [], [])
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head, signal.SIGKILL)
        finally:
            os._exit(0)
    os.close(pidfd)
