"""``ncclbench overlap`` as users run it: its document, its folder, its end by signals, what it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from searching import under_launcher
from sweeping import Outcome, Running, lines, run, wait_until

from ncclbench.cli.app import run as run_command
from ncclbench.store.overlaps import OverlapTimes
from ncclbench.store.reader import load_run

ROOT = Path(__file__).resolve().parent.parent
# One kernel that is compiled soon, and few repetitions.
QUICK = ("--sizes", "64K", "--compute", "triad", "--epochs", "2", "-n", "4")
OVERLAP = (sys.executable, "-m", "ncclbench", "overlap")


def overlap(*options: str | Path) -> Outcome:
    return run(*OVERLAP, *options)


@contextmanager
def long_overlap(folder: Path, *options: str) -> Iterator[Running]:
    """A run that goes on until it is hurt; two epochs are on disk."""
    endless = ("--sizes", "64K", "--compute", "triad", "--epochs", "5000")
    with Running(*OVERLAP, *endless, *options, "--out", folder) as running:
        running.workers(2)
        wait_until(lambda: lines(folder) >= 2 or not running.descendants(), "the second epoch")
        assert lines(folder) >= 2, running.wait().err
        yield running


def test_document_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = overlap(*QUICK, "--modes", "eager,graph", "--out", folder, "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["command"] == "overlap"
    assert document["ok"] is True
    assert document["run"] == str(folder)
    assert document["report"] == str(folder / "report.html")
    together, serial, *captured = document["rows"]
    assert (together["arm"], serial["arm"]) == ("together", "serial")
    for row in (together, serial):
        assert (row["op"], row["nbytes"], row["compute"], row["backend"]) == (
            "all_reduce",
            65536,
            "triad",
            "gloo",
        )
        assert row["implementation"] == "ProcessGroupGloo (gloo)"
        assert (row["n"], row["epochs"], row["status"], row["wrong"]) == (4, 2, "ok", 0)
        assert row["compute_wrong"] == 0
        for name in ("comm_us", "compute_us", "together_us"):
            assert row[name] > 0
        assert row["ci_low"] <= row["efficiency"] <= row["ci_high"]
        assert row["meaningful"] is False, "two ranks on one host"
        assert "so the two contend" in row["reason"]
    assert together["comm_slowdown"] > 0
    assert together["compute_slowdown"] > 0
    assert [row["status"] for row in captured] == ["skipped"] * 2
    assert captured[0]["reason"] == "graph needs CUDA"
    assert "no overlap figure" in document["message"]

    loaded = load_run(folder)
    assert loaded.meta["status"] == "complete"
    assert loaded.meta["kind"] == "overlap"
    times = [result for result in loaded.results if isinstance(result, OverlapTimes)]
    assert [line.epoch for line in times] == [0, 1]
    assert times[0].length == times[1].length, "calibrated once"
    assert times[0].order != times[1].order
    for line in times:
        assert line.repetitions == 2
        assert line.comm_done_us is not None, "a callback of the Work took the time"
        assert line.compute_done_us is not None
        for rank in range(2):
            for repetition in range(2):
                both = line.times_us["together"][rank][repetition]
                assert line.comm_done_us[rank][repetition] <= both
                assert line.compute_done_us[rank][repetition] <= both
    assert "no overlap figure" in (folder / "report.html").read_text()


def test_words_for_a_person_say_that_two_cores_contend(tmp_path: Path) -> None:
    done = overlap(*QUICK, "--backends", "gloo,gloo", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    *_, last = done.out.splitlines()
    assert last.startswith("gloo over lo: no overlap figure: both ranks are on one host")
    assert "gloo#2 over lo: no overlap figure" in last
    assert "so the two contend" in last
    assert done.out.count(" no figure ") == 2
    assert "# all_reduce float32 on gloo#2 (ProcessGroupGloo (gloo)), 2 ranks" in done.out


@pytest.mark.full
def test_wrong_data_and_wrong_compute_void_their_rows_and_end_with_1(tmp_path: Path) -> None:
    """An all_reduce that spoils an element on one rank, and a kernel that is wrong on it."""
    script = tmp_path / "spoiled.py"
    script.write_text(
        "from dataclasses import replace\n"
        "from ncclbench.cli import main\n"
        "from ncclbench.kernels.kernel import LaunchedKernel\n"
        "from ncclbench.tables.collectives import COLLECTIVES\n"
        "right = COLLECTIVES['all_reduce']\n"
        "ranks = []\n"
        "class Spoiled:\n"
        "    def __init__(self, work, tensor):\n"
        "        self.work, self.tensor = work, tensor\n"
        "    def get_future(self):\n"
        "        return self.work.get_future()\n"
        "    def wait(self):\n"
        "        self.work.wait()\n"
        "        self.tensor[5] += 1\n"
        "def bind(b):\n"
        "    ranks.append(b.rank)\n"
        "    call = right.bind(b)\n"
        "    return lambda: [Spoiled(w, b.send) if b.rank else w for w in call()]\n"
        "COLLECTIVES['spoiled'] = replace(right, name='spoiled', bind=bind)\n"
        "check = LaunchedKernel.check\n"
        "LaunchedKernel.check = lambda k: check(k) and not (k.kind == 'gemm' and ranks[0])\n"
        "main()\n"
    )
    options = ("--ops", "all_reduce,spoiled", "--sizes", "1K", "--compute", "triad,gemm", "--epochs", "1")
    done = run(
        *(sys.executable, script, "overlap", *options, "-n", "1", "--json", "--exit-zero"),
        *("--out", tmp_path / "run"),
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.code == 1, done.err
    rows = {(row["op"], row["compute"]): row for row in done.document["rows"] if row["arm"] == "together"}
    right, wrong = rows["all_reduce", "triad"], rows["spoiled", "triad"]
    assert (right["status"], right["wrong"]) == ("ok", 0)
    assert (wrong["status"], wrong["wrong"]) == ("wrong", 4), "before, alone, together, one after the other"
    assert wrong["efficiency"] is None
    computed = rows["all_reduce", "gemm"]
    assert (computed["status"], computed["wrong"], computed["compute_wrong"]) == ("wrong", 0, 1)
    assert "WRONG DATA" in done.document["message"]
    assert done.document["ok"] is False


@pytest.mark.full
def test_a_case_that_fails_is_no_wrong_answer_but_a_failed_measurement(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "from ncclbench.cli import main\n"
        "from ncclbench.worker.programs import overlap\n"
        "overlap.too_long = lambda comm_us, compute_us, timeout_s: 'refused' if comm_us > 0 else None\n"
        "main()\n"
    )
    done = run(
        *(sys.executable, script, "overlap", *QUICK, "--json", "--exit-zero", "--out", tmp_path / "run"),
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.code == 3, done.err
    assert [(row["status"], row["reason"]) for row in done.document["rows"]] == [("failed", "refused")] * 2
    assert done.document["message"].startswith("2 of 2 rows failed (refused); ")
    assert load_run(tmp_path / "run").meta["status"] == "complete"


def test_what_the_backend_does_not_take_is_skipped_in_its_words(tmp_path: Path) -> None:
    options = ("--ops", "all_reduce,send_recv", "-d", "float8_e4m3fn,float32", "--sizes", "4,4K")
    done = overlap(
        *options, "--compute", "triad", "--epochs", "1", "-n", "1", "--json", "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    rows = [row for row in done.document["rows"] if row["arm"] == "together"]
    skipped = [row for row in rows if row["status"] == "skipped"]
    assert {(row["op"], row["dtype"]) for row in skipped} == {("all_reduce", "float8_e4m3fn")}
    assert all(row["reason"] for row in skipped)
    (ring,) = [row for row in rows if (row["op"], row["dtype"], row["nbytes"]) == ("send_recv", "float32", 4)]
    assert (ring["status"], ring["wrong"]) == ("ok", 0)
    assert ring["comm_slowdown"] is None, "a Work of gloo's send has no future"
    assert ring["compute_slowdown"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ops", "barrier"), "--ops: barrier moves no data, so there is nothing to hide"),
        (("--ops", "all_redoce"), "did you mean 'all_reduce'?"),
        (("--compute", "fmaa"), "did you mean 'fma'?"),
        (("--compute", "fma,fma"), "names fma twice"),
        (("--compute-ratio", "0"), "--compute-ratio '0' is not a number from 0.01 to 100"),
        (("--compute-ratio", "nan"), "--compute-ratio 'nan'"),
        (("--compute-ratio", "much"), "--compute-ratio 'much'"),
        (("--free-sms", "8"), "--free-sms is for kernels on a GPU"),
        (("--free-sms", "8,8"), "has a number twice"),
        (("--free-sms", "-1"), "out of range"),
        (("--modes", "isolated"), "unknown mode 'isolated'"),
        (("--sizes", "1M", "-b", "8"), "--sizes lists every size"),
        (("-b", "1G"), "is above -e/--max-bytes 64M"),
        (("--backends", "nccl2"), "needs a GPU"),
        (("--nproc-per-node", "1"), "communication takes two ranks"),
        (("-n", "2"), "fewer than --epochs 6"),
        (("--epochs", "0"), "out of range"),
    ],
)
def test_bad_requests(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["overlap", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--modes", "graph"), "nothing to measure, every case asked for is skipped: graph needs CUDA"),
        (("--compute-ratio", "1"), "there is nothing to compute with: NUMBA_DISABLE_JIT"),
        (("--compute-ratio", "2"), "there is nothing to compute with: numba cannot be loaded"),
    ],
)
def test_what_only_the_ranks_know_is_refused_in_one_line_too(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    env = {"NUMBA_DISABLE_JIT": "1"} if said.endswith("JIT") else {}
    env |= {"NUMBA_NUM_THREADS": "0"} if said.endswith("loaded") else {}
    done = run(*OVERLAP, *QUICK, *words, "--out", tmp_path / "run", env=env)
    assert done.code == 2
    assert done.out == ""
    told = [line for line in done.err.splitlines() if line.startswith("ncclbench: error:")]
    assert len(told) == 1
    assert said in told[0]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_overlap(folder) as running:
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 130
    assert "no overlap figure" in done.out.splitlines()[-1], "what was found until then"
    assert len(load_run(folder).results) >= 2
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"


def test_a_worker_that_is_killed_is_named_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_overlap(folder) as running:
        running.workers(2)[1].kill()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 3
    assert "rank 1" in done.err.splitlines()[-1]
    assert load_run(folder).meta["status"] == "failed"
    assert len(load_run(folder).results) >= 2


@pytest.mark.full
def test_a_worker_that_hangs_is_named_with_where_it_stood(tmp_path: Path) -> None:
    # Long enough for a busy machine to start: to load torch and compile takes it seconds.
    with long_overlap(tmp_path / "run", "--timeout", "15s") as running:
        running.workers(2)[1].suspend()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 3
    last = done.err.splitlines()[-1]
    assert "rank 1" in last
    # Where it stood depends on the moment: in the measurement, or between two as groups are made.
    assert re.search(r"in (the measurement of overlap|opening the process groups), pass \d+", last), last


def test_the_command_is_killed_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_overlap(folder) as running:
        running.signal(signal.SIGKILL)
        running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert len(load_run(folder).results) >= 2


def test_under_a_launcher_only_rank_0_speaks(tmp_path: Path) -> None:
    first, second = under_launcher(2, "overlap", *QUICK, "--json", "--out", tmp_path / "run")
    assert (first.code, second.code) == (0, 0), first.err
    assert second.out == ""
    assert [row["status"] for row in first.document["rows"]] == ["ok", "ok"]
    assert load_run(tmp_path / "run").meta["attempts"][0]["launcher"] != "none"


def test_help_loads_neither_torch_nor_numba() -> None:
    script = (
        "import sys\n"
        "from ncclbench.cli.app import run\n"
        "assert run(['overlap', '--help']) == 0\n"
        "print(sorted({'torch', 'numba', 'scipy'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
