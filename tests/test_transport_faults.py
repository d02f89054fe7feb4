"""Peers that die or stand still in the middle of a transfer, and libraries that crash when they are ended."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from sweeping import lines
from transporting import TINY, transport, with_fake_nixl

pytest.importorskip("torch.distributed._transport", reason="torch < 2.15 has no transports")

from ncclbench.faults.transfer_cells import Fault, run_cell
from ncclbench.faults.transfer_rank import CellTask
from ncclbench.store.reader import load_run
from ncclbench.store.transfers import TransferFault
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.transferring import LATENCY_BYTES

TASK = CellTask(
    way="broadcast",
    arm=("gloo", "gloo"),
    device="cpu",
    nbytes=1 << 20,
    timeout_s=1.0,
    seed=0,
    share_gpu=False,
)


def cell(way: str, fault: Fault) -> TransferFault:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with EndSignals() as signals:
        arm = None if way.startswith("cpu-") else TASK.arm
        found = run_cell(replace(TASK, way=way, arm=arm), fault, signals)
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert left == []
    return found


@pytest.mark.parametrize("way", ["broadcast", "send-recv", "cpu-write", "cpu-read"])
def test_a_killed_peer_is_an_error_soon(way: str) -> None:
    found = cell(way, "peer-dies")
    assert (found.outcome, found.way, found.fault) == ("raised", way, "peer-dies")
    assert found.arm == (None if way.startswith("cpu-") else "gloo")
    assert found.seconds < 5
    if way.startswith("cpu-"):
        assert "has ended" in found.said


def test_a_stopped_peer_is_an_error_at_the_timeout_two_sided_and_nothing_one_sided() -> None:
    broadcast = cell("broadcast", "timeout")
    assert broadcast.outcome == "raised"
    assert 0.5 < broadcast.seconds < 10
    for way in ("cpu-write", "cpu-read"):
        assert cell(way, "timeout").outcome == "completed"


def test_a_cell_that_does_not_come_as_far_as_its_fault_says_nothing_of_it() -> None:
    with EndSignals() as signals:
        found = run_cell(replace(TASK, arm=("nccl2", "nccl2"), device="cuda"), "peer-dies", signals)
    assert found.outcome == "not-made"
    assert found.said


def test_an_interrupted_cell_ends_at_once() -> None:
    from ncclbench.errors import Interrupted

    with EndSignals() as signals:
        os.kill(os.getpid(), 15)
        began = time.monotonic()
        with pytest.raises(Interrupted):
            run_cell(TASK, "peer-dies", signals)
        assert time.monotonic() - began < 5
    assert psutil.Process().children() == []


def test_faults_of_a_run_are_in_its_document(tmp_path: Path) -> None:
    done = transport(*TINY, "--ways", "cpu-write", "--faults", "--json", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = [(fault["fault"], fault["outcome"]) for fault in done.document["faults"]]
    assert found == [("peer-dies", "raised"), ("timeout", "completed")]
    assert load_run(tmp_path / "run").meta["status"] == "complete"


@pytest.mark.full
def test_faults_are_made_on_the_arms_that_can_be_had(tmp_path: Path) -> None:
    """Here the first is none of them."""
    ways = ("--ways", "send-recv,cpu-read", "--backends", "nccl2,gloo")
    done = transport(*TINY, *ways, "--faults", "--json", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = [(fault["way"], fault["arm"], fault["outcome"]) for fault in done.document["faults"]]
    assert found == [
        ("send-recv", "gloo", "raised"),
        ("send-recv", "gloo", "raised"),
        ("cpu-read", None, "raised"),
        ("cpu-read", None, "completed"),
    ]


# --- libraries that crash


def test_a_library_that_aborts_when_the_interpreter_ends_loses_nothing(tmp_path: Path) -> None:
    """The stand-in registers an abort with atexit: workers leave by os._exit, and the run is complete."""
    options = (*TINY, "--ways", "nixl-write,nixl-read")
    done = transport(*options, "--json", "--out", tmp_path / "run", env=with_fake_nixl(tmp_path))
    assert done.code == 0, done.err
    rows = {row["way"]: row for row in done.document["rows"]}
    assert [rows[way]["status"] for way in ("nixl-write", "nixl-read")] == ["ok", "ok"]
    assert [rows[way]["wrong"] for way in ("nixl-write", "nixl-read")] == [0, 0]
    assert load_run(tmp_path / "run").meta["status"] == "complete"


@pytest.mark.full
def test_its_cells_say_what_they_saw_before_they_end(tmp_path: Path) -> None:
    options = (*TINY, "--ways", "nixl-write,nixl-read", "--faults")
    done = transport(*options, "--json", "--out", tmp_path / "run", env=with_fake_nixl(tmp_path))
    assert done.code == 0, done.err
    outcomes = {(fault["way"], fault["fault"]): fault["outcome"] for fault in done.document["faults"]}
    assert [outcomes[way, "peer-dies"] for way in ("nixl-write", "nixl-read")] == ["raised", "raised"]
    assert [outcomes[way, "timeout"] for way in ("nixl-write", "nixl-read")] == ["completed", "completed"]


def test_a_library_that_aborts_when_it_is_closed_loses_nothing_of_its_visit(tmp_path: Path) -> None:
    """Its endpoints are closed after the visit of the first epoch, which is on disk by then."""
    env = with_fake_nixl(tmp_path, "close")
    options = (*TINY, "--epochs", "2", "--ways", "nixl-write")
    done = transport(*options, "--json", "--out", tmp_path / "run", env=env)
    assert done.code == 3
    assert "rank 0" in done.document["message"]
    assert "SIGABRT" in done.document["message"]
    assert done.err.splitlines()[-1].startswith("ncclbench: error: rank 0 ")
    (row,) = done.document["rows"]
    assert (row["status"], row["wrong"], row["n"]) == ("ok", 0, 1)
    loaded = load_run(tmp_path / "run")
    assert (loaded.meta["status"], loaded.problems) == ("failed", [])
    assert lines(tmp_path / "run") == 1 + len(LATENCY_BYTES)


def test_a_library_that_only_says_that_it_is_done_is_found_out(tmp_path: Path) -> None:
    """Every byte is wrong: they are counted, it ends with 1, and its speed counts for nothing."""
    env = with_fake_nixl(tmp_path, "lies")
    options = ("--ways", "broadcast,nixl-write", "--exit-zero")
    done = transport(*TINY, *options, "--json", "--out", tmp_path / "run", env=env)
    assert done.code == 1
    assert done.document["message"] == "WRONG DATA by nixl-write"
    rows = {row["way"]: row for row in done.document["rows"]}
    assert (rows["broadcast"]["status"], rows["nixl-write"]["status"]) == ("ok", "wrong")
    assert rows["nixl-write"]["wrong"] == 1 << 20
    assert rows["nixl-write"]["ratio"] is None


def test_a_library_that_says_that_it_is_done_before_it_is_is_found_out(tmp_path: Path) -> None:
    """In the end every byte is there: what counts is when the generator was told so."""
    env = with_fake_nixl(tmp_path, "late")
    done = transport(*TINY, "--ways", "nixl-write", "--json", "--out", tmp_path / "run", env=env)
    assert done.code == 1, done.err
    (row,) = done.document["rows"]
    assert (row["status"], row["wrong"]) == ("wrong", 64)
