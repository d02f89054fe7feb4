"""Runs that hang or fail with --flight-recorder: dumps are kept, and the last line says who was stuck."""

from __future__ import annotations

import glob
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import SWEEP, Outcome, Running, lines, wait_until

_NRANKS = 3
# Large messages, so that whoever is hurt is hurt in an operation, and not at a fence between two.
_LONG = ("--sizes", "64,16M", "--modes", "back-to-back", "-n", "900", "-c", "0")
_WHERE = ("--nproc-per-node", str(_NRANKS), "--timeout", "4s")


def in_the_second_case(folder: Path) -> None:
    """Wait for its operations, of which each takes some ten milliseconds and all of them half a minute."""
    wait_until(lambda: lines(folder) >= _NRANKS, "the first unit")
    time.sleep(3.0)


@pytest.fixture
def long_sweep(tmp_path: Path) -> Iterator[Running]:
    """A sweep in its second case, which lasts."""
    folder = tmp_path / "run"
    with Running(*SWEEP, *_LONG, *_WHERE, "--flight-recorder", "--out", folder) as running:
        running.workers(_NRANKS)
        in_the_second_case(folder)
        yield running


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "flight").iterdir())


def last_line(outcome: Outcome) -> str:
    return outcome.err.strip().splitlines()[-1]


def nothing_is_left(running: Running) -> None:
    assert running.left_behind(2.0) == []
    assert glob.glob(f"{tempfile.gettempdir()}/ncclbench-*/socket") == []


def test_a_stopped_rank_is_named_by_the_dumps_of_the_others(long_sweep: Running, tmp_path: Path) -> None:
    long_sweep.workers(_NRANKS)[1].suspend()
    outcome = long_sweep.wait()
    assert outcome.code == 3
    nothing_is_left(long_sweep)
    folder = tmp_path / "run"
    assert kept(folder) == ["rank0-gloo.json", "rank2-gloo.json"]
    said = last_line(outcome)
    assert "rank 1 on " in said
    assert "flight recorders: " in said
    assert "rank 1" in said.partition("flight recorders: ")[2]
    assert said.partition("error: ")[2].startswith(json.loads((folder / "run.json").read_text())["message"])
    assert json.loads((folder / "flight" / "rank0-gloo.json").read_bytes())["entries"]


def test_a_killed_rank_leaves_the_dumps_of_the_others(long_sweep: Running, tmp_path: Path) -> None:
    long_sweep.workers(_NRANKS)[2].kill()
    outcome = long_sweep.wait()
    assert outcome.code == 3
    nothing_is_left(long_sweep)
    assert kept(tmp_path / "run") == ["rank0-gloo.json", "rank1-gloo.json"]
    assert "rank 2 on " in last_line(outcome)
    assert "SIGKILL" in last_line(outcome)


def test_without_the_option_nothing_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Running(*SWEEP, *_LONG, *_WHERE, "--out", folder) as running:
        running.workers(_NRANKS)
        wait_until(lambda: lines(folder) >= _NRANKS, "the first unit")
        running.workers(_NRANKS)[2].kill()
        assert "flight" not in last_line(running.wait())
    assert not (folder / "flight").exists()


@pytest.mark.full
def test_resumed_run_forgets_the_dumps_of_the_attempt_before(tmp_path: Path) -> None:
    """Also where it keeps none itself: they would be shown as those of a run that is whole."""
    folder = tmp_path / "run"
    short = ("--sizes", "64,4K", "--modes", "isolated", "-n", "800", "--epochs", "5")
    with Running(*SWEEP, *short, *_WHERE, "--flight-recorder", "--out", folder) as running:
        running.workers(_NRANKS)
        wait_until(lambda: lines(folder) >= _NRANKS, "the first unit")
        running.workers(_NRANKS)[2].kill()
        assert running.wait().code == 3
    assert kept(folder)
    with Running(*SWEEP, "--resume", folder) as running:
        assert running.wait().code == 0
    assert not (folder / "flight").exists()


@pytest.mark.full
def test_under_torchrun_rank_0_has_the_dumps_of_all_supervisors(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(_NRANKS))
    command = (*launcher, "-m", "ncclbench", *SWEEP[3:], *_LONG, "--timeout", "4s", "--flight-recorder")
    with Running(*command, "--out", folder) as running:
        in_the_second_case(folder)
        supervisors = [process for process in running.descendants() if process.ppid() == running.pid]
        parents = {process.pid for process in supervisors}
        workers = [process for process in running.descendants() if process.ppid() in parents]
        assert len(workers) == _NRANKS
        ranks = {int(process.environ()["RANK"]): process for process in supervisors}
        (victim,) = [worker for worker in workers if worker.ppid() == ranks[1].pid]
        victim.suspend()
        outcome = running.wait()
        assert running.left_behind(3.0) == []
    assert kept(folder) == ["rank0-gloo.json", "rank2-gloo.json"]
    (said,) = [line for line in outcome.err.splitlines() if "ncclbench: error:" in line]
    assert "rank 1 on " in said
    assert "rank 1" in said.partition("flight recorders: ")[2]


@pytest.mark.full
def test_a_search_keeps_them_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = (sys.executable, "-m", "ncclbench", "suspects", *_WHERE, "--flight-recorder", "--out", folder)
    with Running(*command) as running:
        wait_until(lambda: lines(folder) >= 2 * _NRANKS, "the first tests")
        running.workers(_NRANKS)[1].suspend()
        outcome = running.wait()
        assert running.left_behind(2.0) == []
    assert outcome.code == 3
    assert kept(folder) == ["rank0-gloo.json", "rank2-gloo.json"]
    assert "rank 1 on " in last_line(outcome)
    assert "who is stuck" in (folder / "report.html").read_text("utf-8").lower()
