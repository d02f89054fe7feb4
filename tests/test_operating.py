"""A tired operator's machine: limits, lost stores, odd folders, signals that come at a bad moment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sweeping import SWEEP, Running, lines, run, sweep, wait_until
from tools import require_mount, require_tool

from ncclbench.cli.files import new_run_folder
from ncclbench.cli.output import as_failure
from ncclbench.errors import EXIT_BAD_REQUEST, EXIT_FAILED, MeasurementError, RequestError, StoreLost
from ncclbench.plan.model import Plan
from ncclbench.store.folder import replace_file
from ncclbench.store.reader import load_run
from ncclbench.supervise.store_process import StoreProcess

_NCCLBENCH = (sys.executable, "-m", "ncclbench")
_BRIEF = ("--backends", "gloo", "--nproc-per-node", "2", "--sizes", "64", "--modes", "isolated", "-n", "4")
_STORE = "ncclbench-store"


def _only_line(text: str) -> str:
    (line,) = text.strip().splitlines()
    assert "Traceback" not in line
    assert "a fault in ncclbench" not in line
    return line


def test_a_killed_store_is_noticed_at_once_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--sizes", "64,1M", "--modes", "isolated", "-n", "900", "--nproc-per-node", "2")
    with Running(*SWEEP, *options, "--backends", "gloo", "--out", folder) as running:
        running.workers(2)
        wait_until(lambda: lines(folder) >= 4, "the first unit")
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        (store,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == _STORE)
        os.kill(int(store), signal.SIGKILL)
        killed_s = time.monotonic()
        outcome = running.wait()
        assert time.monotonic() - killed_s < 10  # the page is written, too
        assert running.left_behind(2.0) == []
    assert outcome.code == EXIT_FAILED
    last = outcome.err.strip().splitlines()[-1]
    assert f"process {store} ({_STORE})" in last
    assert "SIGKILL" in last
    assert "--resume" in last
    assert load_run(folder).units


def test_a_stopped_store_is_to_blame_only_where_nothing_moves() -> None:
    server = StoreProcess("127.0.0.1", 0, 20.0)
    server.check(nothing_moves=True)
    os.kill(server.pid, signal.SIGSTOP)
    wait_until(lambda: " T " in Path(f"/proc/{server.pid}/stat").read_text()[:60], "the stop")
    server.check()
    with pytest.raises(StoreLost, match="was stopped by SIGSTOP"):
        server.check(nothing_moves=True)
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(StoreLost, match="was killed by SIGKILL"):
        wait_until(lambda: server.check() is not None, "its end", 5.0)
    server.end()
    server.check()


@pytest.mark.parametrize("command", [("sweep", *_BRIEF), ("env",), ("drill", "--backends", "gloo")])
def test_too_few_open_files_are_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    words = " ".join((*_NCCLBENCH, *command))
    outcome = run("sh", "-c", f"ulimit -n 24; exec {words}", cwd=tmp_path)
    assert outcome.code == EXIT_BAD_REQUEST
    assert "ulimit -n" in _only_line(outcome.err)
    assert "24" in outcome.err


def test_what_the_system_refuses_is_no_fault_of_ours() -> None:
    for error, words in (
        (OSError(24, "Too many open files"), "ulimit -n"),
        (RuntimeError("socket: Too many open files"), "ulimit -n"),
        (OSError(28, "No space left on device", "/tmp/x"), "/tmp/x: make room"),
        (MemoryError(), "out of memory"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "ulimit -u"),
    ):
        failure = as_failure(error)
        assert words in str(failure)
        assert "fault" not in str(failure)
    outer = ImportError("no module")
    outer.__cause__ = OSError(24, "Too many open files")
    assert "ulimit -n" in str(as_failure(outer))
    assert "a fault in ncclbench" in str(as_failure(KeyError("key")))
    kept = RequestError("as it is")
    assert as_failure(kept) is kept


def test_a_folder_that_is_gone_and_no_network_are_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = " ".join((*_NCCLBENCH, "sweep", *_BRIEF, "--out", str(tmp_path / "run")))
    outcome = run("sh", "-c", f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {command}")
    assert outcome.code == EXIT_BAD_REQUEST
    assert "cd to one that is there" in _only_line(outcome.err)
    if os.geteuid() == 0:
        begun_s = time.monotonic()
        outcome = run(require_tool("unshare"), "--net", "sh", "-c", f"exec {command}")
        assert outcome.code == EXIT_BAD_REQUEST
        assert "ip address show lo" in _only_line(outcome.err)
        assert time.monotonic() - begun_s < 25
    assert not (tmp_path / "run").exists()


def test_a_busy_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        job = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        outcome = sweep("--backends", "gloo", "--out", tmp_path / "run", env=job | where)
    assert outcome.code == EXIT_BAD_REQUEST
    assert "a free port" in _only_line(outcome.err)


def test_runs_of_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made, together = [], threading.Barrier(8)

    def make() -> None:
        together.wait()
        made.append(new_run_folder(None, "twin"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({folder.path for folder in made}) == 8
    for folder in made:
        folder.close()
    assert list((tmp_path / "results").iterdir()) == []


def test_a_write_that_is_interrupted_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "run.json"
    replace_file(file, b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(file, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    assert file.read_bytes() == b"old"


def test_a_report_that_is_ended_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    # Ends itself in the middle of the write, as somebody's kill might.
    script = """
import os, signal, sys
from ncclbench.cli import app
fsync = os.fsync
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(app.run(sys.argv[1:]))
"""
    assert sweep(*_BRIEF, "--epochs", "1", "--out", tmp_path / "run").code == 0
    before = sorted(each.name for each in (tmp_path / "run").iterdir())
    outcome = run(sys.executable, "-c", script, "report", tmp_path / "run")
    assert outcome.code == 143
    assert _only_line(outcome.err) == "ncclbench: error: ended by SIGTERM"
    assert sorted(each.name for each in (tmp_path / "run").iterdir()) == before


@pytest.mark.full
def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--sizes", "64,1M", "--modes", "isolated", "-n", "200", "--nproc-per-node", "2")
    nohup = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with Running(*nohup, *SWEEP, *options, "--backends", "gloo", "--out", folder) as running:
        wait_until(lambda: lines(folder) >= 4, "the first unit")
        running.signal(signal.SIGHUP)
        assert running.wait().code == 0
    assert load_run(folder).meta["status"] == "complete"


def test_a_disk_full_from_the_start_is_called_that(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=4) as small:
        outcome = sweep(*_BRIEF, "--out", small / "run")
        assert outcome.code == EXIT_FAILED
        assert "disk full" in outcome.err.strip().splitlines()[-1]
        assert "is not a run" not in outcome.err
        assert not list(small.rglob("*.tmp"))


@pytest.mark.full
def test_a_page_that_does_not_fit_asks_for_no_resume(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=400) as small:
        outcome = sweep(*_BRIEF, "--out", small / "run")
        assert outcome.code == EXIT_FAILED
        last = outcome.err.strip().splitlines()[-1]
        assert "disk full" in last
        assert f"ncclbench report {small / 'run'}" in last
        assert "--resume" not in last
        subprocess.run(["mount", "-o", "remount,size=20m", small], check=True)
        assert run(*_NCCLBENCH, "report", small / "run").code == 0


def test_planned_cases_are_listed_once() -> None:
    from report_fixtures import make_run

    plan: Plan = make_run(Path("results/x"), sizes=(4, 8)).plan
    assert plan.planned is plan.planned
    assert [case.key for case in plan.planned] == [entry.case.key for entry in plan.cases]


def test_a_lost_store_is_a_measurement_error() -> None:
    assert issubclass(StoreLost, MeasurementError)
    assert StoreLost("gone").exit_code == EXIT_FAILED
