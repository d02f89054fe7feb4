"""Supervisors that meet: everybody is waited for, and unlike ones are refused before anything starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from ncclbench.errors import Interrupted, RequestError
from ncclbench.supervise import rendezvous
from ncclbench.supervise.rendezvous import Rendezvous
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.topologies import Placement

NRANKS = 4


class Meeting:
    """Supervisors of one job in one process, with a store between them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        store = HashStore()
        self.of = [Rendezvous(store, "test", rank, NRANKS, ("127.0.0.1", 0)) for rank in range(NRANKS)]

    def introduce(self, rank: int, host: str, version: str = "1.0") -> None:
        self._patch.setattr(rendezvous, "__version__", version)
        self._patch.setattr(rendezvous, "host_identity", lambda: (host, f"boot of {host}"))
        self.of[rank].introduce()

    def meet(self, signals: Any = None) -> None:
        with EndSignals() as heeded:
            self.of[0].meet_everybody(signals or heeded)


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Meeting:
    return Meeting(monkeypatch)


def test_the_placement_is_what_each_has_told(meeting: Meeting) -> None:
    for rank, host in enumerate(("b", "a", "b", "a")):
        meeting.introduce(rank, host)
    meeting.meet()
    assert meeting.of[0].placement() == Placement((0, 1, 0, 1))


def test_another_version_is_refused_with_the_rank_and_its_host(meeting: Meeting) -> None:
    for rank in range(NRANKS):
        meeting.introduce(rank, f"n{rank // 2}", "0.9" if rank == 3 else "1.0")
    with pytest.raises(RequestError) as refused:
        meeting.meet()
    assert str(refused.value) == (
        "ncclbench differs between ranks: 0.9 on rank 3 (n1), 1.0 on rank 0 (n0): "
        "install one version on all hosts"
    )


def test_who_comes_late_is_waited_for(meeting: Meeting) -> None:
    for rank in range(NRANKS - 1):
        meeting.introduce(rank, "n0")
    late = threading.Timer(0.3, meeting.introduce, (NRANKS - 1, "n1"))
    late.start()
    meeting.meet()
    late.join()
    assert meeting.of[0].placement() == Placement((0, 0, 0, 1))


def test_who_does_not_come_is_named(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "CONNECT_S", 0.1)
    for rank in (0, 3):
        meeting.introduce(rank, "n0")
    with pytest.raises(RequestError, match=r"^ranks 1-2 of 4 did not come within 0 s: .*launcher$"):
        meeting.meet()


def test_a_signal_ends_the_wait(meeting: Meeting) -> None:
    meeting.introduce(0, "n0")

    class Signalled:
        def check(self) -> None:
            raise Interrupted("ended by SIGTERM", 15)

    with pytest.raises(Interrupted):
        meeting.meet(Signalled())


def test_nobody_who_leaves_waits_for_who_has_not_come(meeting: Meeting) -> None:
    """A launcher that ends a job gives it half a minute: none of it may go to ranks that are absent."""
    for rank in (0, 2):
        meeting.introduce(rank, "n0")
    other = threading.Thread(target=meeting.of[2].leave_together)
    other.start()
    started = time.monotonic()
    meeting.of[0].leave_together()
    other.join()
    assert time.monotonic() - started < 5


def test_a_listener_that_is_no_store_leaves_a_rank_that_can_be_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        env = os.environ | {
            "RANK": "1",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(server.getsockname()[1]),
        }
        command = (
            sys.executable,
            "-m",
            "ncclbench",
            "sweep",
            "--sizes",
            "64",
            "--out",
            str(tmp_path / "run"),
        )
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            held = [server.accept()[0] for _ in range(2)]  # a look whether somebody listens, then torch's
            process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            try:
                process.communicate(timeout=60)
            finally:
                process.kill()
            assert time.monotonic() - started < 20
            assert process.returncode == 128 + signal.SIGTERM
            for connection in held:
                connection.close()
