"""``ncclbench report``: from run folders on disk to one page, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_fixtures import make_run

from ncclbench.cli.app import run as run_command
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_unit


def stored_run(path: Path, arms: tuple[str, ...] = ("gloo",)) -> Path:
    """A small run, written as a sweep writes it."""
    run = make_run(
        path, ops=("all_reduce",), sizes=(1024, 65536), modes=("isolated",), arms=arms, label=path.name
    )
    with RunFolder.create(path) as folder:
        folder.write_meta(run.meta)
        with folder.samples() as samples:
            for units in run.units.values():
                samples.append(b"".join(encode_unit(unit) for unit in units))
    return path


def test_one_run_gets_its_page_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored_run(tmp_path / "hopper")
    assert run_command(["report", str(folder)]) == 0
    page = folder / "report.html"
    assert capsys.readouterr().out == f"report: {page}\n"
    assert "hopper" in page.read_text("utf-8")


def test_json_holds_the_rows_and_where_the_page_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored_run(tmp_path / "two-arms", arms=("gloo", "gloo#2"))
    page = tmp_path / "page.html"
    assert run_command(["report", str(folder), "--out", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["run"], document["report"]) == (True, str(folder), str(page))
    assert document["environment"]["hosts"][0]["name"] == "node-00"
    assert [(row["nbytes"], row["arm"]) for row in document["rows"]] == [
        (1024, "gloo"),
        (1024, "gloo#2"),
        (65536, "gloo"),
        (65536, "gloo#2"),
    ]
    assert all(row["median_us"] > 0 for row in document["rows"])
    assert [(row["nbytes"], row["base"], row["new"]) for row in document["comparisons"]] == [
        (1024, "gloo", "gloo#2"),
        (65536, "gloo", "gloo#2"),
    ]
    assert page.is_file()


def test_several_runs_share_a_page_that_replaces_no_single_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [stored_run(tmp_path / name) for name in ("hopper", "blackwell")]
    assert run_command(["report", *map(str, folders), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] is None
    assert document["report"] == str(folders[0] / "report-of-2-runs.html")
    assert [row["run"] for row in document["rows"]] == [str(folder) for folder in folders for _ in range(2)]
    assert not (folders[0] / "report.html").exists()


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (".", "is a folder"),
        ("missing/page.html", "there is no folder"),
        ("hopper/run.json/page.html", "no folder"),
        ("pipe", "no file"),
    ],
)
def test_an_impossible_place_is_refused(
    out: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored_run(tmp_path / "hopper")
    os.mkfifo(tmp_path / "pipe")
    assert run_command(["report", str(folder), "--out", str(tmp_path / out)]) == 2
    assert said in capsys.readouterr().err


def test_torch_is_never_loaded(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "hopper", arms=("gloo", "gloo#2"))
    script = (
        "import sys\n"
        "from ncclbench.cli.app import run\n"
        "code = run(['report', sys.argv[1], '--json'])\n"
        "sys.exit(code or ('torch was loaded' if 'torch' in sys.modules else 0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_data_end_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored_run(tmp_path / "hopper")
    samples = folder / "samples.jsonl"
    samples.write_text(samples.read_text().replace('"wrong":0', '"wrong":3', 1))
    assert run_command(["report", str(folder), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert "WRONG" in document["message"]


def test_dropped_samples_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored_run(tmp_path / "hopper")
    with (folder / "samples.jsonl").open("a") as file:
        file.write('{"type":"samples"')
    assert run_command(["report", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert any("torn" in problem for problem in json.loads(captured.out)["problems"])
    assert "torn" in captured.err
