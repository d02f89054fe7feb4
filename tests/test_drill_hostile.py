"""Drills on bad days: spares that die, machines that are busy, environments that torch cannot read."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from drill_fixtures import make_trial
from drilling import assert_recovered, plan, trials
from msgspec.structs import replace
from sweeping import wait_until

from ncclbench.cli.app import run
from ncclbench.faults import signs
from ncclbench.faults.available import why_unavailable
from ncclbench.faults.keeper import kept_folder
from ncclbench.faults.leftover import children
from ncclbench.faults.model import TrialRequest
from ncclbench.faults.orchestrator import Broken, Orchestrator
from ncclbench.faults.shortening import shortened
from ncclbench.faults.signs import Sign, busy_words, mistaken, told_alike
from ncclbench.faults.talk import Ready
from ncclbench.stats.recovery import recoveries
from ncclbench.supervise.signals import EndSignals
from ncclbench.terminal.drill import drill_lines, sentence

# --- a rank that is not slow enough


def test_a_rank_that_is_not_slow_enough_is_left_alone_and_soon() -> None:
    began = time.monotonic()
    (trial,) = trials(fault="slow", slow_factor=1.0, nranks=3, victim=2)
    assert time.monotonic() - began < 30
    assert trial.recovered
    assert trial.slow_steps_per_s is not None
    assert set(trial.phases_ms.values()) == {None}
    assert trial.outcome is not None
    assert trial.outcome.startswith("the policy left all as they are: ")
    assert "\n" not in trial.outcome
    (recovery,) = recoveries([trial])
    assert recovery.only_watched
    assert sentence(recovery).startswith("slow, reconfigure: once, nobody was detached, steps a second: ")
    assert f"# 1 of 1: {trial.outcome}" in drill_lines([trial])


# --- who is meant


def test_a_spare_that_has_died_is_called_the_replacement_at_once() -> None:
    with EndSignals() as signals:
        request = TrialRequest(plan(nranks=3, victim=1), "rebuild", 0, "token", signals)
        with Orchestrator(request) as ranks:
            ranks.start_ranks()
            ranks.gather(range(3), Ready, 60, "while starting")
            os.kill(ranks.pids()[-1], signal.SIGKILL)
            deadline = time.monotonic() + 10
            while not ranks.gone and time.monotonic() < deadline:
                ranks.hear(0.05)
            ranks.start_replacement()
            with pytest.raises(
                Broken, match=r"^the replacement of rank 1 was killed by SIGKILL while starting"
            ):
                ranks.gather([1], Ready, 60, "while starting")


def test_another_rank_that_looks_failed_is_blamed_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(signs.os, "getloadavg", lambda: (6.25, 1.0, 1.0))
    said = mistaken(Sign(1, "rank 1 stood still for 2.0 s", True), 3)
    assert said.startswith(
        "rank 1 stood still for 2.0 s and was taken for the failed one, which was rank 3: "
    )
    assert "a load of 6.2 on 2 cores is too busy to tell" in said
    assert busy_words() in said
    # A death is a death, whatever the load.
    died = mistaken(Sign(1, "rank 1 was killed by SIGKILL", False), 3)
    assert died == "rank 1 was killed by SIGKILL, though the fault fell on rank 3"
    monkeypatch.setattr(signs.os, "getloadavg", lambda: (0.5, 1.0, 1.0))
    assert busy_words() == ""


def test_ranks_that_were_told_the_same_stand_together() -> None:
    assert told_alike({0: "told", 1: "waited", 2: "told"}) == "ranks 0,2 told; rank 1 waited"


def test_a_long_outcome_has_a_line_for_each_word() -> None:
    said = told_alike({rank: f"told after {rank} s: {'words ' * 8}".strip() for rank in range(4)})
    trial = make_trial("abort")
    lines = drill_lines([replace(trial, outcome=said)])
    at = lines.index("# 1 of 1:")
    assert [line.partition(" told")[0] for line in lines[at + 1 : at + 5]] == [
        f"#   rank {rank}" for rank in range(4)
    ]


def test_a_condition_of_gloos_source_is_no_news() -> None:
    error = "[enforce fail at /__w/gloo/device.cc:84] ifa != nullptr. Unable to find address for: nonsense"
    assert shortened(error) == "Unable to find address for: nonsense"


# --- what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--backends", "nccl2"), "nccl2 needs GPUs, and this machine has none"),
        (("--backends", "nccl-legacy", "--strategy", "rebuild"), "nccl-legacy needs GPUs"),
        (("--backends", "nccl2", "--contract", "all"), "contract cases are of gloo, not of nccl2"),
        (("--timeout", "0.5s"), "take 1s or longer"),
        (("--when", "step:1000000"), "take step:0 to step:999999"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ncclbench.cli.drill.count_gpus", lambda: 0)
    assert run(["drill", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", "verbose"),
        ("TORCH_FR_BUFFER_SIZE", "many"),
        ("TORCH_FR_BUFFER_SIZE", ""),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2k"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "yes"),
    ],
)
def test_what_torch_cannot_read_is_refused(
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """torch raises while it is imported, or a group that is made never comes back."""
    monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for command in ("drill", "sweep", "calibrate", "env"):
        assert run([command]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert f"{name}={value!r} is nothing that torch can read: set it to " in err
    assert not list(tmp_path.glob("results/*")), "no folder of a run that never began"


# --- what is left


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kept_folder_is_gone_however_its_process_ends(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pid = os.fork()
    if pid == 0:
        with kept_folder("kept-") as folder:
            (folder / "words").write_text("x")
            time.sleep(60)
        os._exit(0)
    wait_until(lambda: any(tmp_path.glob("kept-*/words")), "the folder")
    os.kill(pid, number)
    os.waitpid(pid, 0)
    wait_until(lambda: not list(tmp_path.iterdir()), "the keeper")


def test_a_kept_folder_and_its_keeper_are_gone_on_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children()
    with kept_folder("kept-") as folder:
        (folder / "words").write_text("x")
        assert len(children() - before) == 1
    assert list(tmp_path.iterdir()) == []
    assert children() <= before


def test_asking_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where whoever asks is killed there is nobody to remove one."""

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a name in the folder for temporary files")

    for name in ("mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile"):
        monkeypatch.setattr(tempfile, name, refuse)
    with EndSignals() as signals:
        assert why_unavailable(["reconfigure", "rebuild"], "gloo", signals) == {}


def test_first_of_three_is_replaced_by_a_warm_spare() -> None:
    (trial,) = trials(victim=0, nranks=3, spare="warm")
    assert_recovered(trial)
