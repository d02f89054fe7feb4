"""What supervisors make of their ranks' dumps: who hears what, what is believed, what is not sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flight_reading import as_json, document, entry
from torch.distributed import HashStore  # type: ignore[attr-defined]

from ncclbench.supervise import evidence as evidence_module
from ncclbench.supervise.blame import Failure
from ncclbench.supervise.capture import Recorders
from ncclbench.supervise.evidence import FlightEvidence
from ncclbench.supervise.rendezvous import Rendezvous

KILLED = Failure(1, "rank 1 on a was killed by SIGKILL", True)
OTHER = Failure(0, "rank 0 on a raised ValueError: no", False)
NOBODY = Failure(0, "all 2 ranks have waited for 60 s", True, names=False)


def issued(operations: int, *, waits: bool = False) -> bytes:
    """The dump of one of two ranks of gloo after so many all_reduces; it may wait in the last."""
    entries = [
        entry(
            number,
            profiling_name="gloo:all_reduce",
            state="scheduled",
            time_discovered_started_ns=0,
            time_discovered_completed_ns=0,
            retired=not waits or number + 1 < operations,
        )
        for number in range(operations)
    ]
    return as_json(
        document(entries, pg_config={"": {"desc": "", "name": "", "ranks": "[0, 1]"}}, pg_status={})
    )


WAITING, GONE = issued(5, waits=True), issued(4)


@pytest.fixture
def recorders() -> Iterator[Recorders]:
    with Recorders() as made:
        yield made


def supervisor(recorders: Recorders, store: Any, rank: int, run: Path, world_size: int = 2) -> FlightEvidence:
    meeting = Rendezvous(store, "test", rank, world_size, ("127.0.0.1", 0))
    return FlightEvidence(recorders, meeting, run, 2, leads=rank == 0)


def test_alone_it_writes_what_it_heard_and_says_who_never_came(recorders: Recorders, tmp_path: Path) -> None:
    alone = supervisor(recorders, HashStore(), 0, tmp_path, world_size=1)
    alone.hear(0, [("gloo", WAITING)])
    alone.hear(1, [("gloo", GONE)])
    said = alone.conclude(KILLED)
    assert said.startswith(f"{KILLED.text}; flight recorders: ")
    assert "rank 1" in said.partition("flight recorders: ")[2]
    assert sorted(path.name for path in (tmp_path / "flight").iterdir()) == [
        "rank0-gloo.json",
        "rank1-gloo.json",
    ]


def test_verdict_on_somebody_else_is_believed_only_where_nobody_is_named(
    recorders: Recorders, tmp_path: Path
) -> None:
    alone = supervisor(recorders, HashStore(), 0, tmp_path, world_size=1)
    alone.hear(0, [("gloo", WAITING)])
    alone.hear(1, [("gloo", GONE)])
    assert alone.conclude(OTHER) == OTHER.text
    assert "flight recorders: " in alone.conclude(NOBODY)


def test_first_dump_of_a_rank_stays(recorders: Recorders, tmp_path: Path) -> None:
    alone = supervisor(recorders, HashStore(), 0, tmp_path, world_size=1)
    alone.hear(0, [("gloo", WAITING)])
    alone.hear(0, [("gloo", issued(9))])
    alone.conclude(KILLED)
    assert (tmp_path / "flight" / "rank0-gloo.json").read_bytes() == WAITING


def test_nothing_heard_leaves_nothing(recorders: Recorders, tmp_path: Path) -> None:
    assert supervisor(recorders, HashStore(), 0, tmp_path, 1).conclude(KILLED) == KILLED.text
    assert list(tmp_path.iterdir()) == []


def test_dumps_that_cannot_be_read_hide_no_failure(recorders: Recorders, tmp_path: Path) -> None:
    alone = supervisor(recorders, HashStore(), 0, tmp_path, world_size=1)
    alone.hear(0, [("gloo", b'{"entries": [')])
    assert alone.conclude(KILLED).startswith(KILLED.text)


def test_rank_0_gathers_through_the_store(recorders: Recorders, tmp_path: Path) -> None:
    store = HashStore()
    leader, other = (supervisor(recorders, store, rank, tmp_path) for rank in (0, 1))
    leader.hear(0, [("gloo", WAITING)])
    other.hear(1, [("gloo", GONE)])
    assert other.conclude(KILLED) == KILLED.text
    assert "rank 1" in leader.conclude(NOBODY).partition("flight recorders: ")[2]
    assert (tmp_path / "flight" / "rank1-gloo.json").read_bytes() == GONE


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_too_large_to_send_is_written_where_it_is(
    recorders: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(evidence_module, "_SHARED_BYTES", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = tmp_path / "run"
    run.mkdir()
    if shared:  # a host that sees the run folder
        (run / "run.json").write_text("{}")
    store = HashStore()
    leader, other = (supervisor(recorders, store, rank, run) for rank in (0, 1))
    leader.hear(0, [("gloo", WAITING)])
    other.hear(1, [("gloo", GONE)])
    other.share()
    said = leader.conclude(KILLED)
    if shared:
        assert "lie" not in said
        assert "flight recorders: " in said
        assert (run / "flight" / "rank1-gloo.json").read_bytes() == GONE
    else:
        (folder,) = tmp_path.glob("ncclbench-flight-*")
        assert said.endswith(f"in {folder} (rank 1)")
        assert (folder / "rank1-gloo.json").read_bytes() == GONE


def test_a_supervisor_that_is_gone_is_not_waited_for_long(
    recorders: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_module, "_GATHER_S", 0.2)
    leader = supervisor(recorders, HashStore(), 0, tmp_path)
    leader.hear(0, [("gloo", WAITING)])
    assert "rank 1" in leader.conclude(KILLED).partition("flight recorders: ")[2]
