"""A sweep under rough handling: odd streams, texts, launchers and edited runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeping import SWEEP, Running, lines, run, sweep, wait_until

from ncclbench.store.reader import load_run

_BRIEF = ("--sizes", "64", "--modes", "isolated", "-n", "4", "--epochs", "2")


@pytest.mark.full
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_cost_nothing(closed: str, tmp_path: Path) -> None:
    command = f"{' '.join(SWEEP)} {' '.join(_BRIEF)} --out {tmp_path / 'run'} {closed}"
    assert subprocess.run(command, shell=True, timeout=100, check=False).returncode == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "complete"
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.full
def test_a_label_beyond_the_locale_is_kept_and_one_that_is_no_text_refused(tmp_path: Path) -> None:
    ascii_only = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    kept = sweep(*_BRIEF, "--label", "größe", "--out", tmp_path / "run", env=ascii_only)
    assert kept.code == 0, kept.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["label"] == "größe"
    assert run(sys.executable, "-m", "ncclbench", "report", tmp_path / "run").code == 0
    refused = sweep(*_BRIEF, "--label", os.fsdecode(b"bad\xff"), "--out", tmp_path / "other")
    assert refused.code == 2
    assert "not valid UTF-8" in refused.err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("option", ["--out", "--resume", "--label"])
def test_an_empty_text_is_refused(option: str, tmp_path: Path) -> None:
    outcome = sweep(option, "", cwd=tmp_path)
    assert outcome.code == 2
    assert f"{option} is empty" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_samples_that_were_lost_are_measured_again_though_the_run_says_complete(tmp_path: Path) -> None:
    assert sweep(*_BRIEF, "--out", tmp_path / "run").code == 0
    samples = tmp_path / "run" / "samples.jsonl"
    kept = [line for line in samples.read_text().splitlines(True) if '"epoch":1' not in line]
    samples.write_text("".join(kept))
    outcome = sweep("--resume", tmp_path / "run", "--json")
    assert outcome.code == 0
    assert [row["epochs"] for row in outcome.document["rows"]] == [2]
    (units,) = load_run(tmp_path / "run").units.values()
    assert [(unit.epoch, unit.attempt) for unit in units] == [(0, 0), (1, 1)]


@pytest.mark.full
def test_a_command_that_was_stopped_itself_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--sizes", "64,1M", "--modes", "isolated", "-n", "600", "--timeout", "3s", "--out", folder)
    with Running(*SWEEP, *options) as running:
        workers = running.workers(2)
        wait_until(lambda: lines(folder) > 2, "the first unit")
        for process in workers:
            process.suspend()
        running.signal(signal.SIGSTOP)
        time.sleep(5)
        running.signal(signal.SIGCONT)
        for process in workers:
            process.resume()
        outcome = running.wait()
    assert outcome.code == 0, outcome.err


def test_an_unknown_master_is_said_at_once(tmp_path: Path) -> None:
    variables = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "no-such-host.invalid",
        "MASTER_PORT": "29998",
    }
    before = time.monotonic()
    outcome = sweep(*_BRIEF, "--out", tmp_path / "run", env=variables)
    assert outcome.code == 2
    assert time.monotonic() - before < 60
    assert "Traceback" not in outcome.err


@pytest.mark.full
def test_waiting_for_a_master_heeds_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with Running(*SWEEP, *_BRIEF, "--out", tmp_path / "run") as running:
        time.sleep(8)
        running.signal(signal.SIGTERM)
        before = time.monotonic()
        assert running.wait().code == 143
        assert time.monotonic() - before < 5
