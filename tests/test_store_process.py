"""The store of a run: served beside the process that forks, and ended with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
from sweeping import wait_until
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ncclbench.errors import RequestError
from ncclbench.supervise.store_process import StoreProcess

# Prints how many threads a process has that is about to fork workers, then the store's process.
_ABOUT_TO_FORK = """
import os, signal, sys
from ncclbench.supervise.rendezvous import meet_alone
meeting = meet_alone()
meeting.publish("key", 1)
print(len(os.listdir("/proc/self/task")), meeting._server.pid, flush=True)
signal.pause()
"""


def _connect(address: tuple[str, int]) -> TCPStore:
    return TCPStore(*address, is_master=False, timeout=timedelta(seconds=20))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_values_go_through_it() -> None:
    server = StoreProcess("127.0.0.1", 0, 20.0)
    _connect(server.address).set("key", "value")
    assert _connect(server.address).get("key") == b"value"
    server.end()
    server.end()


def test_it_ends_with_the_object() -> None:
    server = StoreProcess("127.0.0.1", 0, 20.0)
    pid = server.pid
    assert _lives(pid)
    del server
    assert not _lives(pid)


def test_a_copy_in_a_forked_process_ends_nothing() -> None:
    server = StoreProcess("127.0.0.1", 0, 20.0)
    pid = os.fork()
    if pid == 0:
        server.end()
        os._exit(0)
    os.waitpid(pid, 0)
    assert _lives(server.pid)
    server.end()


def test_a_port_that_is_taken_is_said() -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as taken,
        pytest.raises(RequestError, match=r"EADDRINUSE|in use"),
    ):
        StoreProcess("127.0.0.1", taken.getsockname()[1], 20.0)


def test_who_forks_has_one_thread_and_kill_9_takes_the_store_along() -> None:
    # With a thread of the store's in it, one in some hundred forks copied a lock that it held.
    words = [sys.executable, "-c", _ABOUT_TO_FORK]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        threads, store = map(int, process.stdout.readline().split())
        assert threads == 1
        assert _lives(store)
        process.send_signal(signal.SIGTERM)
        process.wait()
        wait_until(lambda: not _lives(store), "the end of the store's process")
