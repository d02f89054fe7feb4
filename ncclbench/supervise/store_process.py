"""The store of a run, served by a process of its own.

A TCPStore serves from a thread, which looks up the name of whoever connects (torch 2.15). The C library
holds locks meanwhile, and a worker that is forked at that moment inherits them as held: it waits for good at
its own first look-up. So a process that forks workers serves no store.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import weakref
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ncclbench.errors import RequestError, StoreLost
from ncclbench.supervise.orphans import die_with

_PR_SET_NAME = 15
# For ps; the kernel keeps so many characters.
_NAME = b"ncclbench-store"
# For the server to listen, or to say why it cannot.
_START_S = 30.0
# To reach this very host, whatever it is busy with.
_REACH_S = 10.0


class StoreProcess:
    """A process that serves a store, until ``end``, until nobody holds this object, or until its parent ends.

    Attributes:
        address: host and port, to connect to.
        pid: of the process.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Return when it can be connected to.

        Args:
            host: "127.0.0.1" listens there alone; any other listens on all interfaces, as torch does.
            port: 0 takes a free one, on the loopback only.
            timeout_s: of the store.

        Raises:
            RequestError: it cannot listen; the text is the reason alone.
        """
        listener = None
        if port == 0:
            listener = socket.create_server((host, port))
            port = listener.getsockname()[1]
            _reach((host, port))
        self.address = (host, port)
        ours, theirs = Pipe()
        parent = os.getpid()
        heeded = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        self.pid = os.fork()
        if self.pid == 0:
            # Signals stay blocked: the store is needed until the supervisors have left together.
            ours.close()
            _serve(parent, theirs, self.address, listener, timeout_s)
        signal.pthread_sigmask(signal.SIG_SETMASK, heeded)
        theirs.close()
        if listener is not None:
            listener.close()
        self._end = weakref.finalize(self, _end, parent, self.pid)
        with ours:
            reason = f"it took more than {_START_S:.0f} s"
            if ours.poll(_START_S):
                reason = _told(ours)
        if reason:
            self.end()
            raise RequestError(reason)

    def end(self) -> None:
        """End the process; again does nothing."""
        self._end()

    def check(self, nothing_moves: bool = False) -> None:
        """Whether it still serves, at the cost of one system call.

        Args:
            nothing_moves: one that is stopped is to blame, too. As a rule it may be, as by Ctrl-Z, and
                goes on a moment after whoever asks.

        Raises:
            StoreLost: it has ended though nobody here asked it to.
        """
        if not self._end.alive:
            return
        kinds = os.WEXITED | os.WNOHANG | os.WNOWAIT | (os.WSTOPPED if nothing_moves else 0)
        try:
            what = os.waitid(os.P_PID, self.pid, kinds)
        except ChildProcessError:
            how = "has ended"
        else:
            if what is None:
                return
            how = f"exited with code {what.si_status}"
            if what.si_code != os.CLD_EXITED:
                how = f"was killed by {_signal_name(what.si_status)}"
            if what.si_code == os.CLD_STOPPED:
                how = f"was stopped by {_signal_name(what.si_status)}"
        raise StoreLost(
            f"process {self.pid} ({_NAME.decode()}), where the ranks meet, {how}: "
            "leave it alone as long as the command runs, and look for what kills processes here"
        )


def _reach(address: tuple[str, int]) -> None:
    """Find out at once what torch tries for long: no way there, or no port left to come from.

    Raises:
        RequestError: it cannot be reached; the text is the reason alone.
    """
    try:
        socket.create_connection(address, timeout=_REACH_S).close()
    except OSError as error:
        raise RequestError(error.strerror or str(error)) from None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _told(pipe: Connection) -> str:
    try:
        return str(pipe.recv())
    except (EOFError, OSError):
        return "its process ended"


def _end(owner: int, pid: int) -> None:
    # A forked worker that drops its copy of the object ends nothing.
    if os.getpid() == owner:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _serve(
    parent: int, pipe: Connection, address: tuple[str, int], listener: socket.socket | None, timeout_s: float
) -> NoReturn:
    """In the child: serve until killed."""
    try:
        die_with(parent)
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            # Whoever reads the supervisor's output waits for nobody but the supervisor.
            os.dup2(nowhere, standard)
        reason = ""
        try:
            store = TCPStore(
                *address,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(seconds=timeout_s),
                master_listen_fd=None if listener is None else listener.detach(),
            )
        except (RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        pipe.send(reason)
        pipe.close()
        while not reason:
            signal.pause()
        del store
    finally:
        os._exit(0)
