"""A sweep that is hurt: what was measured stays, the rank is named, nothing is left, --resume goes on."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import SWEEP, Outcome, Running, alive, by_status, lines, sweep, wait_until
from tools import require_mount

from ncclbench.store.reader import load_run

_NRANKS = 3
# Two quick cases, then one that lasts: whoever is hurt is hurt in the last.
_LONG = ("--sizes", "64,4K,1M", "--modes", "isolated", "-n", "900", "--nproc-per-node", str(_NRANKS))


@pytest.fixture
def long_sweep(tmp_path: Path) -> Iterator[Running]:
    """A sweep of three cases with at least one unit on disk."""
    folder = tmp_path / "run"
    with Running(*SWEEP, *_LONG, "--timeout", "4s", "--out", folder) as running:
        running.workers(_NRANKS)
        wait_until(lambda: lines(folder) > _NRANKS, "the first unit")
        yield running


def finish(folder: Path) -> Outcome:
    """Resume a run with fewer iterations left to do than it was begun with."""
    outcome = sweep("--resume", folder, "--json")
    assert outcome.code == 0, outcome.err
    assert by_status(outcome.document["rows"]) == {"ok": 3}
    loaded = load_run(folder)
    for units in loaded.units.values():
        assert [unit.epoch for unit in units] == [0, 1, 2]
    return outcome


def test_a_killed_rank_is_named_at_once_and_the_rest_is_measured_on_resume(
    long_sweep: Running, tmp_path: Path
) -> None:
    long_sweep.workers(_NRANKS)[1].kill()
    outcome = long_sweep.wait()
    assert outcome.code == 3
    last = outcome.err.strip().splitlines()[-1]
    assert "rank 1 on " in last
    assert "SIGKILL" in last
    assert "all_reduce float32 sum" in last
    assert "epoch" in last
    assert "if nobody did that, memory ran out: see dmesg" in last
    assert long_sweep.left_behind(2.0) == []
    before = {key: units[0].total_us.tolist() for key, units in load_run(tmp_path / "run").units.items()}
    assert before
    finish(tmp_path / "run")
    after = load_run(tmp_path / "run")
    assert all(after.units[key][0].total_us.tolist() == times for key, times in before.items())
    assert {unit.attempt for units in after.units.values() for unit in units} == {0, 1}


def test_a_stopped_rank_is_named_within_the_deadline(long_sweep: Running, tmp_path: Path) -> None:
    long_sweep.workers(_NRANKS)[2].suspend()
    outcome = long_sweep.wait()
    assert outcome.code == 3
    last = outcome.err.strip().splitlines()[-1]
    assert "rank 2 on " in last
    assert "does not react" in last
    assert long_sweep.left_behind(2.0) == []
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert meta["status"] == "failed"
    assert "rank 2" in meta["message"]
    stack = (tmp_path / "run" / "worker-0.log").read_text()
    assert "fence" in stack or "all_reduce" in stack


def test_workers_end_with_their_supervisor_and_the_run_can_be_resumed(
    long_sweep: Running, tmp_path: Path
) -> None:
    workers = long_sweep.workers(_NRANKS)
    long_sweep.signal(signal.SIGKILL)
    assert long_sweep.wait().code == -signal.SIGKILL
    wait_until(lambda: not any(alive(worker) for worker in workers), "the workers' end", within_s=2.0)
    finish(tmp_path / "run")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_save_and_end_with_their_code(
    long_sweep: Running, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    long_sweep.signal(number)
    outcome = long_sweep.wait()
    assert outcome.code == code
    assert number.name in outcome.err
    assert "--resume" in outcome.err
    assert long_sweep.left_behind(2.0) == []
    assert (tmp_path / "run" / "report.html").exists()
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert meta["status"] == "interrupted"


@pytest.mark.full
def test_a_torn_last_line_is_dropped_and_measured_again(long_sweep: Running, tmp_path: Path) -> None:
    long_sweep.signal(signal.SIGKILL)
    long_sweep.wait()
    samples = tmp_path / "run" / "samples.jsonl"
    with samples.open("ab") as file:
        file.write(b'{"type":"samples","case":"all_red')
    assert any("torn" in problem for problem in load_run(tmp_path / "run").problems)
    finish(tmp_path / "run")
    assert load_run(tmp_path / "run").problems == []


def test_a_run_in_use_is_refused(long_sweep: Running, tmp_path: Path) -> None:
    outcome = sweep("--resume", tmp_path / "run")
    assert outcome.code == 2
    assert f"in use by process {long_sweep.pid}" in outcome.err


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    assert sweep("--sizes", "64", "-n", "2", "--epochs", "1", "--out", tmp_path / "run").code == 0
    before = lines(tmp_path / "run")
    outcome = sweep("--sizes", "64", "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "already holds a run" in outcome.err
    assert lines(tmp_path / "run") == before


@pytest.mark.full
def test_a_full_disk_is_one_clear_line_and_keeps_what_was_measured(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=160) as small:
        outcome = sweep(
            "--sizes", "64,128,256,512", "--modes", "isolated", "-n", "1500", "--out", small / "run"
        )
        assert outcome.code == 3
        assert "disk full" in outcome.err
        assert "Traceback" not in outcome.err
        loaded = load_run(small / "run")
        assert loaded.units
        assert all(unit.total_us.shape[0] == 2 for units in loaded.units.values() for unit in units)


@pytest.mark.full
def test_a_disk_that_is_full_for_the_page_alone_asks_for_no_more_measuring(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=160) as small:
        words = ("--sizes", "64", "--modes", "isolated", "-n", "3", "--out", small / "run")
        outcome = sweep(*words)
        assert outcome.code == 3
        last = outcome.err.strip().splitlines()[-1]
        assert "disk full at " in last
        assert last.endswith(f"the run is whole; its page is written by ncclbench report {small / 'run'}")


@pytest.mark.full
def test_two_sweeps_at_once_do_not_meet(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []

    def one(name: str) -> None:
        outcomes.append(sweep("--sizes", "64,4K", "--json", "--out", tmp_path / name))

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert {outcome.document["run"] for outcome in outcomes} == {str(tmp_path / "a"), str(tmp_path / "b")}


@pytest.mark.full
def test_under_torchrun_a_killed_worker_ends_every_rank_with_the_same_code(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(_NRANKS))
    with Running(*launcher, "-m", "ncclbench", *SWEEP[3:], *_LONG[:-2], "--out", folder) as running:
        wait_until(lambda: lines(folder) > _NRANKS, "the first unit")
        # Supervisors are the launcher's children, workers are theirs.
        supervisors = {process.pid for process in running.descendants() if process.ppid() == running.pid}
        workers = [process for process in running.descendants() if process.ppid() in supervisors]
        assert len(workers) == _NRANKS
        workers[-1].kill()
        outcome = running.wait()
        assert outcome.code == 1, "the launcher's own code for a failed job"
        assert "was killed by SIGKILL in all_reduce" in outcome.err
        assert outcome.err.count("ncclbench: error:") == 1
        assert outcome.err.count("exitcode  : 3") == _NRANKS
        assert running.left_behind(3.0) == []
    assert load_run(folder).units


@pytest.mark.full
def test_under_torchrun_a_stopped_worker_is_named_by_one_supervisor_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(_NRANKS))
    words = (*SWEEP[3:], *_LONG[:-2], "--timeout", "15s", "--out", folder)
    with Running(*launcher, "-m", "ncclbench", *words) as running:
        wait_until(lambda: lines(folder) > _NRANKS, "the first unit")
        supervisors = {process.pid for process in running.descendants() if process.ppid() == running.pid}
        stopped = [process for process in running.descendants() if process.ppid() in supervisors][-1]
        stopped.suspend()
        outcome = running.wait()
        assert outcome.code == 1, "the launcher's own code for a failed job"
        said = [line for line in outcome.err.splitlines() if "ncclbench: error:" in line]
        assert len(said) == 1
        assert "does not react (stopped, or stuck in the kernel)" in said[0]
        assert outcome.err.count("exitcode  : 3") == _NRANKS
        assert running.left_behind(3.0) == []
