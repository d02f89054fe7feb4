"""Commands hurt at a few fixed moments (benchmarks/random_signals.py), a clock set back, a folder in use."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from attributing import load
from sweeping import SWEEP, Running, lines, run, sweep, wait_until

from ncclbench.store.reader import load_run

pytestmark = pytest.mark.full

_NCCLBENCH = (sys.executable, "-m", "ncclbench")
_BRIEF = ("--backends", "gloo", "--nproc-per-node", "2", "--sizes", "64,4K", "--modes", "isolated")

# What a clock that is set back does to whoever asks for the time of day, from the second question on.
_SET_BACK = """
import datetime, time
asked, real, day = [0], time.time, datetime.datetime
def back():
    asked[0] += 1
    return real() - 86400.0 * min(asked[0] - 1, 5)
class SetBack(day):
    @classmethod
    def now(cls, tz=None):
        return day.fromtimestamp(back(), tz)
time.time = back
datetime.datetime = SetBack
"""


@pytest.fixture(scope="module")
def hurting() -> ModuleType:
    """benchmarks/random_signals.py."""
    return load("random_signals", "hurting")


@pytest.mark.parametrize(
    ("what", "to", "number", "part"),
    [
        ("sweep", "launcher", signal.SIGTERM, 0.15),
        ("sweep", "launcher", signal.SIGINT, 0.8),
        ("teams", "worker", signal.SIGKILL, 0.4),
        ("teams", "worker", signal.SIGSTOP, 0.6),
        ("teams", "launcher", signal.SIGKILL, 0.5),
    ],
)
def test_hurt_at_a_moment(
    hurting: ModuleType, tmp_path: Path, what: str, to: str, number: signal.Signals, part: float
) -> None:
    trial = hurting.Trial(0, what, to, number, part * {"sweep": 4.0, "teams": 7.0}[what])
    hurting.hurt(trial, tmp_path / "trial")
    assert trial.faults == [], str(trial)


def test_ranks_whose_launcher_is_killed_while_they_start_end(tmp_path: Path) -> None:
    """It can tell them nothing any more, and the store where they would meet went with it."""
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ncclbench")
    with Running(sys.executable, *words, "sweep", "--sizes", "8", "--out", tmp_path / "run") as torchrun:
        wait_until(lambda: len(torchrun.descendants()) >= 2, "the ranks")
        time.sleep(0.7)  # they know by now who launched them, and import torch for longer
        torchrun.signal(signal.SIGKILL)
        assert torchrun.left_behind(15.0) == []


def test_the_judge_finds_what_is_faulty(hurting: ModuleType, tmp_path: Path) -> None:
    assert sweep(*_BRIEF, "-n", "4", "--epochs", "2", "--out", tmp_path / "run").code == 0
    samples = tmp_path / "run" / "samples.jsonl"
    first = next(line for line in samples.read_text().splitlines(True) if '"samples"' in line)
    with samples.open("a") as file:
        file.write(first)
    trial = hurting.Trial(0, "sweep", "launcher", signal.SIGTERM, 0.0, code=3)
    assert hurting._resumed(trial, tmp_path / "run")
    assert "exit 3" in hurting._wrong_end(trial, "")[0]
    assert "a fault in ncclbench" in hurting._wrong_end(trial, "KeyError (a fault in ncclbench)")


def test_a_clock_that_is_set_back_changes_no_result(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_SET_BACK)
    root = Path(__file__).resolve().parent.parent
    env = {"PYTHONPATH": f"{tmp_path / 'site'}:{root}"}
    options = (*_BRIEF, "-n", "40", "--epochs", "6", "--time-budget", "60s")
    outcome = sweep(*options, "--label", "late", "--json", cwd=tmp_path, env=env)
    assert outcome.code == 0, outcome.err
    rows = outcome.document["rows"]
    assert {(row["status"], row["epochs"]) for row in rows} == {("ok", 6)}
    assert all(0 < row["median_us"] < 1e6 for row in rows)
    folder = tmp_path / outcome.document["run"]
    assert re.fullmatch(r"20\d{6}-\d{6}-late", folder.name)
    attempt = json.loads((folder / "run.json").read_text())["attempts"][0]
    assert attempt["ended"] < attempt["started"], "the clock was not set back"
    for units in load_run(folder).units.values():
        assert all((unit.start_us >= 0).all() and (unit.total_us > 0).all() for unit in units)
    shown = run(*_NCCLBENCH, "report", folder, env=env)
    assert shown.code == 0, shown.err
    assert sweep("--resume", folder, env=env).code == 0


def test_a_second_command_into_one_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = (
        "--sizes",
        "64,1M",
        "--modes",
        "isolated",
        "--epochs",
        "2000",
        "-n",
        "20000",
        "--nproc-per-node",
        "2",
    )
    with Running(*SWEEP, *long, "--backends", "gloo", "--out", folder) as running:
        wait_until(lambda: lines(folder) >= 4, "the first unit")
        for words in (
            (*SWEEP, *_BRIEF, "--out", folder),
            (*_NCCLBENCH, "matrix", "--backends", "gloo", "--nproc-per-node", "2", "--out", folder),
        ):
            second = run(*words)
            assert second.code == 2
            assert f"in use by process {running.pid}" in second.err.strip().splitlines()[-1]
        # Reading is anybody's, and two may write the page.
        assert run(*_NCCLBENCH, "report", folder).code == 0
        running.signal(signal.SIGTERM)
        assert running.wait().code == 143
