"""Wrong requests, through the real command line: exit 2, one line, at once, and nothing started."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncclbench.cli.app import COMMANDS, group, run
from ncclbench.errors import Interrupted, MeasurementError, RequestError

# Runs a command line in a process of its own and tells whether it had to load torch.
SPY = """
import sys
from ncclbench.cli.app import run
code = run(sys.argv[1:])
print("torch" if "torch" in sys.modules else "no torch", file=sys.stderr)
sys.exit(code)
"""


def ncclbench(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", SPY, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=60,
    )


BAD_SWEEPS = [
    ("--ops all_redcue", "unknown collective 'all_redcue': did you mean 'all_reduce'?"),
    ("-d flaot32", "unknown dtype 'flaot32': did you mean 'float32'?"),
    ("--backends glooo", "unknown backend 'glooo': did you mean 'gloo'?"),
    ("--ops", "requires an argument"),
    ("--opps all_reduce", "unknown option '--opps': did you mean '--ops'?"),
    ("-g 8", "unknown option '-g': for nccl-tests' -g take --nproc-per-node"),
    ("-t 2", "unknown option '-t': see ncclbench sweep --help"),
    ("all_reduce", "unexpected extra argument"),
    ("-b 2M -e 1M", "-b/--min-bytes 2M is above -e/--max-bytes 1M"),
    ("-f 1", "-f/--step-factor 1 never reaches a larger size"),
    ("-f 1.0001", "-f/--step-factor 1.0001"),
    ("-f -2", "not a number"),
    ("-b -8", "'-8' is not a size"),
    ("-b 0", "is zero"),
    ("-e 8MB8", "'8MB8' is not a size"),
    ("-e 1180591620717411303424", "more than 64T"),
    ("-b 32T -e 32T", "lower -e/--max-bytes"),
    ("--sizes 8,,16", "empty entry"),
    ("-n 0", "-n/--iters 0 is out of range"),
    ("-n -1", "out of range"),
    ("-i 8 -f 2", "contradict"),
    ("--epochs 5 -n 2", "fewer than --epochs 5"),
    ("--precision 2", "write it like 5%"),
    ("--precision 0%", "above 0%"),
    ("--precision 2% --epochs 4", "the first look is after 8 epochs"),
    ("--inject gloo:10%", "not ARM:RANKS:AMOUNT"),
    ("--inject nccl9:all:10%", "unknown arm 'nccl9'"),
    ("--inject gloo:x:10%", "not a rank"),
    ("--inject gloo:all:fast", "not a duration"),
    ("--inject gloo:7:10%", "rank 7"),
    ("--topologies pairs:2", "takes no parameters"),
    ("--arms 'gloo NCCL_ALGO=Ring'", "NCCL_ALGO changes nothing for gloo"),
    ("--backends gloo --arms gloo", "give one of them"),
    ("--base nccl2 --backends gloo", "unknown arm 'nccl2'"),
    ("--ops broadcast -r 2 --nproc-per-node 2", "--root 2 is not in a world of 2 ranks"),
    ("--ops send_recv --nproc-per-node 1", "send_recv needs at least 2 ranks"),
    ("--ops reduce -o band", "band is not defined on float32"),
    ("--resume nowhere", "nowhere"),
    ("--resume nowhere --ops all_reduce", "--ops"),
]


@pytest.mark.parametrize(("line", "said"), BAD_SWEEPS, ids=[line for line, _ in BAD_SWEEPS])
def test_a_wrong_sweep_is_refused_before_anything_starts(line: str, said: str, tmp_path: Path) -> None:
    arguments = ["sweep", *shlex.split(line)]
    if "--backends" not in line and "--arms" not in line and "--resume" not in line:
        arguments += ["--backends", "gloo"]  # the same on machines with a GPU
    if line == "--ops":
        arguments = ["sweep", "--ops"]
    done = ncclbench(*arguments, cwd=tmp_path)
    error, torch = done.stderr.splitlines()
    assert error.startswith("ncclbench: error: ")
    assert said in error
    assert done.returncode == 2
    assert done.stdout == ""
    assert torch == "no torch"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["--opps x --json", "--json -n 0", "--ops all_redcue --json"])
def test_with_json_a_refusal_is_one_document_too(line: str, tmp_path: Path) -> None:
    done = ncclbench("sweep", *line.split(), cwd=tmp_path)
    document = json.loads(done.stdout)
    message = document["message"]
    assert document == {
        "schema": 1,
        "command": "sweep",
        "run": None,
        "ok": False,
        "message": message,
        "environment": None,
    }
    assert f"ncclbench: error: {message}" in done.stderr
    assert done.returncode == 2


def test_under_a_launcher_only_rank_0_says_it(tmp_path: Path) -> None:
    job = {
        "TORCHELASTIC_RUN_ID": "job",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    told = [
        ncclbench("sweep", "-n", "0", "--json", cwd=tmp_path, RANK=rank, LOCAL_RANK=rank, **job)
        for rank in "01"
    ]
    assert [done.returncode for done in told] == [2, 2]
    assert json.loads(told[0].stdout)["ok"] is False
    assert told[1].stdout == ""
    assert told[1].stderr.splitlines() == ["no torch"]
    # Commands that measure nothing never look at a launcher's variables.
    report = ncclbench("report", "nowhere", "--json", cwd=tmp_path, RANK="1", LOCAL_RANK="1", **job)
    assert json.loads(report.stdout)["ok"] is False


class TestCommands:
    def test_unknown_ones_get_the_nearest_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["sweeep"]) == 2
        assert "unknown command 'sweeep': did you mean 'sweep'?" in capsys.readouterr().err

    def test_help_lists_them_with_one_line_each(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--help"]) == 0
        text = capsys.readouterr().out
        assert all(f"\n  {name} " in text for name in COMMANDS)

    def test_without_a_command_the_help_is_shown_as_for_a_wrong_one(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run([]) == 2
        assert "Commands:" in capsys.readouterr().out

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_help_with_an_example(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert f"Usage: ncclbench {name}" in text
        assert f"Example: ncclbench {name}" in text
        assert "--json" in text

    @pytest.mark.parametrize("line", ["--help", "sweep --help", "report --help", "list --help"])
    def test_help_loads_nothing_slow(self, line: str, tmp_path: Path) -> None:
        script = (
            "import sys\n"
            "from ncclbench.cli.app import run\n"
            "code = run(sys.argv[1:])\n"
            "slow = {'torch', 'rich', 'pandas', 'numpy', 'plotly', 'scipy'} & set(sys.modules)\n"
            "sys.exit(code or ' '.join(slow) or 0)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *line.split()],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


class TestReport:
    def test_what_is_no_run_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for folder in ("nowhere", "empty"):
            done = ncclbench("report", folder, cwd=tmp_path)
            error, torch = done.stderr.splitlines()
            assert (done.returncode, torch) == (2, "no torch")
            assert f"{folder} is not a run" in error

    def test_without_a_run_it_says_so(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["report"]) == 2
        assert "RUN" in capsys.readouterr().err


class TestErrorsBecomeExitCodes:
    """The one place that turns them, whatever command raises them."""

    @pytest.fixture
    def raising(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def set_error(error: BaseException) -> None:
            def fail(ctx: Any) -> None:
                raise error

            monkeypatch.setattr(group, "invoke", fail)

        return set_error

    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (RequestError("no"), 2, "ncclbench: error: no\n"),
            (MeasurementError("rank 1 died"), 3, "ncclbench: error: rank 1 died\n"),
            (Interrupted("ended by SIGTERM", 15), 143, "ncclbench: error: ended by SIGTERM\n"),
            (KeyboardInterrupt(), 130, "ncclbench: error: interrupted\n"),
            (
                ZeroDivisionError("division by zero"),
                3,
                "ncclbench: error: ZeroDivisionError: division by zero "
                "(a fault in ncclbench; NCCLBENCH_DEBUG=1 shows where)\n",
            ),
            (MeasurementError("two\nlines \x1b[31m"), 3, "ncclbench: error: two lines \\x1b[31m\n"),
        ],
    )
    def test_with_one_line(
        self, error: BaseException, code: int, said: str, raising: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        raising(error)
        assert run(["list"]) == code
        assert capsys.readouterr() == ("", said)

    def test_a_fault_of_ours_shows_its_place_on_request(
        self, raising: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raising(ZeroDivisionError())
        monkeypatch.setenv("NCCLBENCH_DEBUG", "1")
        assert run(["list"]) == 3
        assert "Traceback" in capsys.readouterr().err

    def test_with_json_every_failure_is_one_document(
        self, raising: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        raising(KeyboardInterrupt())
        assert run(["list", "--json"]) == 130
        document = json.loads(capsys.readouterr().out)
        assert (document["ok"], document["message"], document["command"]) == (False, "interrupted", "list")


def test_a_full_disk_behind_standard_output_is_a_failure(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ncclbench", "list", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 3
    assert done.stderr.splitlines() == ["ncclbench: error: cannot write to <stdout>: No space left on device"]
