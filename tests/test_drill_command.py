"""``ncclbench drill`` as users run it: its document, its folder, its end by signals, and what it refuses."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from drilling import drill, long_drill
from sweeping import Running, alive, wait_until

from ncclbench.cli.app import run
from ncclbench.flight.dumps import read
from ncclbench.flight.judge import judge
from ncclbench.store.drills import PHASES
from ncclbench.store.reader import load_run

QUICK = ("--trials", "1", "--spare", "warm", "--nproc-per-node", "3")


def test_document_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    strategies = ("--strategy", "reconfigure,shrink,reconfigure+fastpath")
    done = drill(*QUICK, *strategies, "--out", folder, "--label", "a drill", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["command"] == "drill"
    assert document["ok"] is True
    assert document["run"] == str(folder)
    (trial,) = document["trials"]
    assert (trial["fault"], trial["victim"], trial["step"], trial["strategy"]) == (
        "kill",
        2,
        20,
        "reconfigure",
    )
    assert set(trial["phases_ms"]) == set(PHASES)
    assert all(value > 0 for value in trial["phases_ms"].values())
    assert trial["correct"] is True
    assert trial["leftover_processes"] == 0
    by_name = {entry["strategy"]: entry for entry in document["summary"]}
    assert by_name["reconfigure"]["status"] == "measured"
    assert by_name["reconfigure"]["phases_ms"]["detach"]["n"] == 1
    assert by_name["shrink"]["status"] == "unavailable"
    assert "does not support shrinking" in by_name["shrink"]["reason"]
    assert "nccl2" in by_name["reconfigure+fastpath"]["reason"]
    assert document["contract"] == []
    assert document["error_handling"] == "3"
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING=3" in done.err
    loaded = load_run(folder)
    assert loaded.is_drill
    assert len(loaded.trials) == 1
    assert loaded.meta["status"] == "complete"
    assert "reconfigure" in (folder / "report.html").read_text()
    # What the survivors' flight recorders held when they noticed: all waited for the victim.
    verdict = judge(read([folder / "flight"]))
    assert verdict.findings[0].arrived_ranks == (0, 1)
    assert verdict.findings[0].collective == "all_reduce"


def test_words_for_a_person(tmp_path: Path) -> None:
    done = drill(*QUICK, "--fault", "exception", "--strategy", "rebuild", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "first good collective at n-1" in done.out
    assert "exception, rebuild: 1 of 1 recovered" in done.out.splitlines()[-1]


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_drill(folder, trials_done=1) as running:
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 130
    assert done.out.splitlines()[-1].startswith("kill, reconfigure: "), "what was found until then"
    assert len(load_run(folder).trials) >= 1
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"


def test_sigterm(tmp_path: Path) -> None:
    with long_drill(tmp_path / "run", trials_done=0) as running:
        running.signal(signal.SIGTERM)
        assert running.wait().code == 143
        assert running.left_behind(within_s=2.0) == []


def test_orchestrator_killed(tmp_path: Path) -> None:
    """SIGKILL leaves it no time for anything: its ranks and the spare are gone within 2 s all the same."""
    folder = tmp_path / "run"
    with long_drill(folder, trials_done=1) as running:
        ranks = running.descendants()
        assert any(alive(rank) for rank in ranks)
        running.signal(signal.SIGKILL)
        running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert len(load_run(folder).trials) >= 1


def test_orchestrator_killed_while_a_replacement_starts(tmp_path: Path) -> None:
    """It was replaced by a fresh interpreter, and still goes with the orchestrator."""

    def replacement() -> bool:
        with suppress(psutil.NoSuchProcess):  # ranks of the trial before end meanwhile
            return any("ncclbench.faults.replacement" in one.cmdline() for one in running.descendants())
        return False

    with long_drill(tmp_path / "run", trials_done=0, spare="cold") as running:
        wait_until(replacement, "the replacement")
        running.signal(signal.SIGKILL)
        running.wait()
        assert running.left_behind(within_s=2.0) == []


def test_another_rank_fails_than_was_planned(tmp_path: Path) -> None:
    """The orchestrator goes by what it sees: a second fault is no recovery, and the answer is bad."""
    folder = tmp_path / "run"
    words = (sys.executable, "-m", "ncclbench", "drill", *QUICK, "--fault", "hang", "--timeout", "60s")
    with Running(*words, "--out", folder, "--json") as running:
        stopped: list[psutil.Process] = []

        def is_stopped() -> bool:
            with suppress(psutil.NoSuchProcess):
                found = running.descendants()
                stopped[:] = [process for process in found if process.status() == psutil.STATUS_STOPPED]
            return bool(stopped)

        wait_until(is_stopped, "the hang")
        ranks = [process for process in running.descendants() if alive(process)]
        assert ranks[2] == stopped[0]
        ranks[0].kill()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 1
    assert done.document["ok"] is False
    (trial,) = done.document["trials"]
    assert trial["recovered"] is False
    assert trial["outcome"] == "rank 0 was killed by SIGKILL, though the fault fell on rank 2"
    assert trial["phases_ms"]["decision"] is None
    assert load_run(folder).meta["status"] == "complete"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fault", "kil"), "did you mean 'kill'?"),
        (("--strategy", "rebuilt"), "did you mean 'rebuild'?"),
        (("--when", "20"), "write it like step:20"),
        (("--when", "step:-1"), "write it like step:20"),
        (("--victim", "4"), "--victim 4 is none of 4 ranks: take 0 to 3"),
        (("--victim", "last"), "is not a whole number"),
        (("--nproc-per-node", "2"), "leaves no group of survivors: take 3 or more"),
        (("--trials", "0"), "out of range"),
        (("--spare", "hot"), "--spare"),
        (("--contract", "nothing"), "unknown contract case"),
        (("--backends", "gloo,gloo"), "takes one"),
        (("--timeout", "soon"), "--timeout"),
    ],
)
def test_bad_requests(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_nothing_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["drill", "--strategy", "shrink", "--backends", "gloo"]) == 2
    assert "does not support shrinking" in capsys.readouterr().err


def test_under_a_launcher(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "TORCHELASTIC_RUN_ID": "none",
    }.items():
        monkeypatch.setenv(name, value)
    assert run(["drill"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "drill starts its ranks itself" in err
