"""A real torchrun whose job loses a rank: what is seen of the restart, and that nothing of it is left."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ncclbench.errors import Interrupted
from ncclbench.faults.heir import heir
from ncclbench.faults.model import MARKER, DrillPlan, TrialRequest
from ncclbench.faults.restart import OWN_STORE, limit_s, run_trial
from ncclbench.store.drills import DrillTrial
from ncclbench.supervise.signals import EndSignals

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert list(tmp_path.iterdir()) == []


def request(signals: EndSignals, **changes: Any) -> TrialRequest:
    usual: dict[str, Any] = {
        "fault": "kill",
        "victim": 2,
        "step": 5,
        "strategies": ("restart",),
        "trials": 1,
        "spare": "cold",
        "nranks": 3,
        "backend": "gloo",
        "timeout_s": 5.0,
        "nbytes": 1 << 16,
    }
    return TrialRequest(DrillPlan(**{**usual, **changes}), "restart", 0, secrets.token_hex(8), signals)


def marked(token: str) -> list[int]:
    """Processes that carry the trial's token."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == token:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def drill(**changes: Any) -> DrillTrial:
    with EndSignals() as signals:
        asked = request(signals, **changes)
        trial = run_trial(asked)
    assert marked(asked.token) == []
    return trial


def assert_recovered(trial: DrillTrial) -> None:
    assert trial.outcome is None
    assert trial.recovered
    assert trial.correct
    at = trial.phases_ms
    reached = [at[name] for name in ("first_notice", "replacement_ready", "rejoin", "first_good_n")]
    assert None not in reached
    assert reached == sorted(reached, key=float)  # type: ignore[arg-type]
    assert at["detach"] is None
    assert at["first_good_n_minus_1"] is None
    assert set(trial.notices_ms) == {"0", "1", "2"} - {str(trial.victim)}
    assert trial.before_GBs is not None
    assert trial.after_GBs is not None


@pytest.mark.full
def test_a_killed_rank_is_started_again_with_all_others() -> None:
    assert_recovered(drill())


@pytest.mark.full
@pytest.mark.parametrize("fault", ["exit", "exception"])
def test_a_rank_that_ends_is_started_again(fault: str) -> None:
    assert_recovered(drill(fault=fault, victim=0))


@pytest.mark.full
def test_a_stopped_rank_costs_the_timeout_and_the_grace() -> None:
    trial = drill(fault="hang", timeout_s=3.0)
    assert_recovered(trial)
    first_good = trial.phases_ms["first_good_n"]
    assert first_good is not None
    assert first_good > 30_000


@pytest.mark.full
def test_a_slow_rank_is_nobodys_business() -> None:
    trial = drill(fault="slow")
    assert trial.phases_ms["first_notice"] is None
    assert trial.phases_ms["first_good_n"] is None
    assert "not slow ones" in (trial.outcome or "")


@pytest.mark.full
def test_torchs_default_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one store for both starts the restart fails on gloo, or works: in any case it is said."""
    monkeypatch.setenv(OWN_STORE, "0")
    trial = drill()
    assert trial.recovered == (trial.outcome is None)
    if not trial.recovered:
        assert trial.phases_ms["first_good_n"] is None
        assert "raised" in (trial.outcome or "") or "torchrun" in (trial.outcome or "")


def test_a_signal_ends_torchrun_and_its_ranks() -> None:
    with EndSignals() as signals:
        asked = request(signals, step=10_000)
        threading.Timer(4.0, os.kill, (os.getpid(), 15)).start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            run_trial(asked)
        assert time.monotonic() - began < 8
    assert marked(asked.token) == []


@pytest.mark.full
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_nothing_outlives_a_killed_orchestrator(processes: int, tmp_path: Path) -> None:
    """Killed when so many processes of the job are there: torchrun alone, or with ranks that just begin."""
    with EndSignals() as signals:
        asked = request(signals, step=100_000)
        orchestrator = os.fork()
        if orchestrator == 0:
            run_trial(asked)
            os._exit(0)
        deadline = time.monotonic() + 60
        while len(marked(asked.token)) < processes and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(orchestrator, 9)
        os.waitpid(orchestrator, 0)
        deadline = time.monotonic() + 5
        while (left := marked(asked.token)) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert left == []
    for folder in tmp_path.iterdir():
        shutil.rmtree(folder)


def test_the_bound_grows_with_what_torch_may_wait() -> None:
    with EndSignals() as signals:
        short, long = (limit_s(request(signals, timeout_s=wait).plan) for wait in (1.0, 100.0))
    assert short > 60
    assert long > short + 100


def test_orphans_of_any_depth_are_inherited_and_ended() -> None:
    with heir():
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                os.setsid()
                time.sleep(60)
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.1)
        assert psutil.Process().children(recursive=True)
    assert not psutil.Process().children(recursive=True)
