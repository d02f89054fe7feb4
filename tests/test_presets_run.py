"""Presets of several steps for real: children killed, stopped and asked to end, resumed, under torchrun."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from sweeping import SWEEP, Running, lines, run, sweep, wait_until

from ncclbench.store.preset import StoredPreset, StoredStep, read_preset, write_preset

TWO = """
name = "two"
title = "where it is, and one sweep"
[[steps]]
name = "where"
command = "env"
[[steps]]
name = "many"
command = "sweep"
[steps.options]
sizes = "1K"
modes = "isolated"
epochs = 60
iters = 60
[[steps]]
name = "absent"
command = "env"
needs = "cuda"
"""

FAILING = """
name = "failing"
title = "one that is killed, one that stands still, and one that is well"
[[steps]]
name = "killed"
command = "sweep"
[steps.options]
sizes = "1K"
modes = "isolated"
epochs = 2000
iters = 2000
[[steps]]
name = "stopped"
command = "env"
deadline = "1500ms"
[[steps]]
name = "well"
command = "env"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def statuses(folder: Path) -> dict[str, str]:
    return {step.name: step.status for step in read_preset(folder).steps}


def step_process(running: Running, command: str, folder: Path) -> psutil.Process:
    """The child that runs a step."""
    found: list[psutil.Process] = []

    def there() -> bool:
        for process in running.descendants():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if command in words and any(str(folder) in word for word in words):
                found.append(process)
                return True
        return False

    wait_until(there, command)
    return found[0]


@pytest.mark.full
def test_a_preset_is_ended_resumed_killed_and_resumed_to_its_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    many = out / "many"
    with Running(*SWEEP, "--preset", written(tmp_path, TWO), "--out", out, "--json") as running:
        wait_until(lambda: lines(many) > 20, "samples")
        running.signal(signal.SIGTERM)
        ended = running.wait()
        assert running.left_behind(5.0) == []
    assert ended.code == 143
    assert ended.document["ok"] is False
    assert f"ncclbench sweep --resume {out}" in ended.document["message"]
    assert statuses(out) == {"where": "done", "many": "interrupted", "absent": "not run"}
    first, former = read_preset(out).steps[0], lines(many)
    assert json.loads((out / "where" / "answer.json").read_text())["command"] == "env"

    with Running(*SWEEP, "--resume", out) as running:
        wait_until(lambda: lines(many) > former + 10, "more samples")
        again = sweep("--resume", out)
        assert (again.code, "is in use by process" in again.err) == (2, True)
        running.signal(signal.SIGKILL)
        running.wait()
        assert running.left_behind(5.0) == []

    whole = sweep("--resume", out, "--json")
    assert whole.code == 0, whole.err
    assert statuses(out) == {"where": "done", "many": "done", "absent": "not run"}
    assert read_preset(out).steps[0] == first
    meta = json.loads((many / "run.json").read_text())
    assert len(meta["attempts"]) == 3
    steps = whole.document["steps"]
    assert [step["ok"] for step in steps] == [True, True, None]
    assert steps[2]["reason"] == "takes GPUs, there are none"
    assert json.loads(Path(steps[1]["answer"]).read_text())["rows"][0]["epochs"] == 60


def test_steps_that_fail_do_not_stop_the_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Running(*SWEEP, "--preset", written(tmp_path, FAILING), "--out", out) as running:
        step_process(running, "sweep", out / "killed").kill()
        wait_until(lambda: statuses(out)["killed"] == "failed", "its end")
        wait_until(lambda: any("env" in each.cmdline() for each in running.descendants()), "the next")
        running.descendants()[0].suspend()
        ended = running.wait()
        assert running.left_behind(5.0) == []
    assert ended.code == 3, ended.err
    killed, stopped, well = read_preset(out).steps
    assert (killed.status, killed.exit_code) == ("failed", None)
    assert killed.reason == "its process was killed by SIGKILL"
    assert (stopped.status, stopped.reason) == ("failed", "it was ended after its deadline of 1.5 s")
    assert stopped.seconds < 30
    assert (well.status, well.exit_code) == ("done", 0)
    assert "3 steps: 2 failed, 1 done; try killed, stopped again with ncclbench sweep --resume" in ended.out


def prepared(out: Path, **more: Any) -> None:
    """A preset that has not begun, as one that was interrupted at once leaves it."""
    out.mkdir()
    steps = [
        StoredStep(name="where", command=["ncclbench", "env"], folder="where"),
        StoredStep(
            name="small",
            command=["ncclbench", "sweep", "--sizes=1K", "--modes=isolated", "--iters=40", "--epochs=40"],
            folder="small",
        ),
    ]
    whole = {"schema": 1, "ncclbench": "0", "preset": "two", "decision": None, "command": ["ncclbench"]}
    write_preset(out, StoredPreset(**{**whole, "nranks": 2, "local_ranks": 2, "steps": steps, **more}))


@pytest.mark.full
@pytest.mark.parametrize("own_store", ["0", "1"])
def test_torchrun_restarts_a_preset_and_it_goes_on(
    own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks run the same steps; those of the second start meet under names of their own."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", own_store)
    out = tmp_path / "out"
    prepared(out)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    resume = ("-m", "ncclbench", "sweep", "--resume", out, "--json")
    with Running(*torchrun, "--max-restarts", "1", *resume) as running:
        wait_until(lambda: statuses(out)["where"] == "done" and lines(out / "small") > 4, "samples")
        ranks = [
            process
            for process in psutil.Process(running.pid).children()
            if process.environ().get("RANK") == "1"
        ]
        ranks[0].kill()
        ended = running.wait()
        assert running.left_behind(5.0) == []
    assert ended.code == 0, ended.err
    assert statuses(out) == {"where": "done", "small": "done"}
    assert json.loads((out / "small" / "run.json").read_text())["attempts"][-1]["launcher"] == "torchrun"
    refused = run(*torchrun, "-m", "ncclbench", "sweep", "--preset", "quick", "--resume", out)
    assert refused.code == 1
    assert "leave --preset away" in refused.err
