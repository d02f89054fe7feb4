"""Supervisors that meet: everybody is waited for, and unlike ones are refused before anything starts."""

from __future__ import annotations

import threading
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
