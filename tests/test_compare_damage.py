"""``ncclbench compare`` on damaged runs, on what is no run, and as a process of its own on real ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import edit_meta, store
from sweeping import run as run_process
from sweeping import sweep

from ncclbench.cli.app import run as run_command

# Runs a command line and fails if it had to load torch.
SPY = (
    "import sys\n"
    "from ncclbench.cli.app import run\n"
    "code = run(sys.argv[1:])\n"
    "sys.exit(code or ('torch was loaded' if 'torch' in sys.modules else 0))\n"
)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("before") / "before", seed=1)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("after") / "after", seed=2, slower={"gloo": 1.2})


def damage_environment(folder: Path) -> None:
    edit_meta(folder, environment={"hosts": [{}], "ranks": [{"rank": 0, "host": 0, "local_rank": 0}]})


def damage_arms(folder: Path) -> None:
    edit_meta(folder, arms={}, created="yesterday", label=None)


def damage_samples(folder: Path) -> None:
    samples = folder / "samples.jsonl"
    samples.write_bytes(samples.read_bytes()[: samples.stat().st_size // 2 + 7])


def remove_samples(folder: Path) -> None:
    (folder / "samples.jsonl").unlink()


def zero_times(folder: Path) -> None:
    samples = folder / "samples.jsonl"
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    for line in lines:
        line["total_us"] = [0.0] * len(line["total_us"])
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "damage", [damage_environment, damage_arms, damage_samples, remove_samples, zero_times]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_damaged_run_gives_an_answer_without_a_claim(
    damage: Callable[[Path], None],
    swapped: bool,
    tmp_path: Path,
    before: Path,
    after: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(after, damaged)
    damage(damaged)
    runs = [str(damaged), str(before)] if swapped else [str(before), str(damaged)]
    assert run_command(["compare", *runs, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in document["rows"]} == {"unclear"}
    assert run_command(["compare", *runs]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("no verdict on 2 cases")
    if not swapped:
        page = tmp_path / "page.html"
        assert run_command(["compare", *runs, "--out", str(page)]) == 0
        assert "</html>" in page.read_text("utf-8")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "plan": {"schema": 1}}', "\x00"])
def test_what_is_no_run_is_refused(
    text: str, before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text(text)
    assert run_command(["compare", str(before), str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert str(tmp_path) in line


def test_torch_is_never_loaded(tmp_path: Path, before: Path, after: Path) -> None:
    files = ("--out", tmp_path / "page.html", "--csv", tmp_path / "rows.csv")
    done = subprocess.run(
        [sys.executable, "-c", SPY, "compare", before, after, *files],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_two_real_sweeps_are_compared(tmp_path: Path) -> None:
    options = (
        "--backends",
        "gloo",
        "--sizes",
        "4K",
        "--modes",
        "isolated",
        "-n",
        "6",
        "--nproc-per-node",
        "2",
    )
    for name in ("first", "second"):
        outcome = sweep(*options, "--label", name, "--out", tmp_path / name)
        assert outcome.code == 0, outcome.err
    command = (sys.executable, "-m", "ncclbench", "compare")
    outcome = run_process(*command, "--baseline", "last", tmp_path / "second", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    document = outcome.document
    assert document["base"]["runs"] == [str(tmp_path / "first")]
    (row,) = document["rows"]
    assert (row["base"], row["new"], row["verdict"]) == ("first", "second", "unclear")
    assert row["ratio"] > 0
    assert document["differences"] == []
