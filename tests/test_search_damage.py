"""Damaged folders of searches: each is refused in one line with the file, and its line where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_reading import content
from searching_fixtures import make_search
from test_store import small_run
from test_store import written as written_sweep
from test_store_damage import WEIRD, places, set_at

from ncclbench.cli.app import run as run_command
from ncclbench.errors import RequestError
from ncclbench.report.build import report_of
from ncclbench.report.panels import PANELS
from ncclbench.report.redact import Redactor
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Run
from ncclbench.store.reader import ENDED_SILENTLY, load_run

Change = Callable[[dict[str, Any]], Any]


def written(path: Path, run: Run) -> Path:
    """The search in a folder at ``path``, through the real writer."""
    with RunFolder.create(path) as folder, folder.samples() as samples:
        folder.write_meta(run.meta)
        samples.append(b"".join(map(encode_line, run.probes)))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "search", make_search(hosts=3, passes=3))


def edit_meta(folder: Path, change: Change) -> None:
    """Change run.json as somebody with an editor would."""
    file = folder / "run.json"
    meta = json.loads(file.read_text())
    change(meta)
    file.write_text(json.dumps(meta))


def edit_line(folder: Path, kind: str, changes: dict[str, Any], which: int = 0) -> int:
    """Change a line of a type; its number."""
    file = folder / "samples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    at = [number for number, line in enumerate(lines) if line["type"] == kind][which]
    lines[at] |= changes
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return at + 1


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The one line with which a command ends, and the code is that of a wrong request."""
    assert run_command([*(command or ("report",)), str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(folder) in line
    assert "fault in ncclbench" not in line
    return line


# --- run.json


def nranks(number: int) -> Change:
    return lambda meta: meta["plan"].update(nranks=number)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nranks(4), "plan.nranks is 4, but environment.ranks tells of 3, not of rank 3"),
        (nranks(100_000), "tells of 3, not of rank 3, 4, 5 and others"),
        (nranks(10**12), "nranks is 1000000000000, of a search at most"),
        (nranks(2), "environment.ranks tells of rank 2, but plan.nranks is 2"),
        (
            lambda meta: meta["environment"]["ranks"].__delitem__(slice(1, None)),
            "tells of 1, not of rank 1, 2",
        ),
        (lambda meta: meta["environment"]["ranks"][1].update(rank=0), "tells of rank 0 more than once"),
        (lambda meta: meta["environment"].update(common=[1]), "$.environment.common"),
        (lambda meta: meta.update(asked="x"), "$.asked"),
        (lambda meta: meta.update(asked=5), "$.asked"),
        (lambda meta: meta.update(asked=None), "$.asked"),
        (lambda meta: meta["asked"].update(level=[1]), "$.asked"),
        (lambda meta: meta.update(imported={"files": 3}), "$.imported.files"),
        (lambda meta: meta.update(fence={"median_us": 1.0}), "p95_us"),
        (lambda meta: meta.update(kind="zzz"), "'zzz' - at `$.kind`"),
    ],
)
def test_wrong_meta_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Change, words: str
) -> None:
    edit_meta(folder, change)
    line = refused(folder, capsys)
    assert f"{folder / 'run.json'}" in line
    assert words in line


@pytest.mark.parametrize("change", [lambda ranks: ranks.pop(), lambda ranks: ranks[1].update(rank=0)])
def test_a_sweep_that_tells_not_of_all_ranks_has_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[list[Any]], Any]
) -> None:
    folder = written_sweep(tmp_path / "sweep", small_run(modes=["back-to-back"]))
    edit_meta(folder, lambda meta: change(meta["environment"]["ranks"]))
    assert run_command(["report", str(folder)]) == 0


@pytest.mark.parametrize("kind", ["sweep", "import", "matrix", None])
def test_lines_of_another_kind_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str | None
) -> None:
    edit_meta(folder, lambda meta: meta.pop("kind") if kind is None else meta.update(kind=kind))
    words = f"samples.jsonl line 1 is damaged: a line of type 'rank' in a run of kind {kind or 'sweep'!r}"
    assert words in refused(folder, capsys)
    if kind == "sweep":
        assert words in refused(folder, capsys, "sweep", "--resume")


def test_samples_in_a_search_are_refused(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = written_sweep(tmp_path / "sweep", small_run())
    number = len((folder / "samples.jsonl").read_bytes().splitlines()) + 1
    with (folder / "samples.jsonl").open("ab") as file:
        file.write((sweep / "samples.jsonl").read_bytes())
    words = f"line {number} is damaged: a line of type 'samples' in a run of kind 'suspects'"
    assert words in refused(folder, capsys)


# Any value anywhere in it.

RUN = make_search(hosts=3, passes=3)
RUN.meta |= {
    "imported": {"files": [{"file": "x"}]},
    "fence": {"kind": "spin", "median_us": 1.0, "p95_us": 2.0, "clock_error_us": 0.0},
    "health": [{"attempt": 0, "problems": ["a GPU was throttled"]}],
    "arms": {"nccl2": {"implementation": "ProcessGroupNCCL, nccl2", "device": "cuda", "status": "ok"}},
    "attempts": [{"started": "a", "ended": None, "launcher": "none", "message": None}],
    "preflight": [{"severity": "warning", "ranks": [0], "what": "a load of 9", "mend": "wait"}],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("damage") / "search", RUN)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_in_meta_gives_a_page_or_one_line(whole: Path, data: st.DataObject) -> None:
    meta = json.loads(json.dumps(RUN.meta))
    set_at(meta, data.draw(st.sampled_from(sorted(places(meta), key=str))), data.draw(WEIRD))
    (whole / "run.json").write_text(json.dumps(meta))
    said = ""
    try:
        run = load_run(whole)
        for shown in (run, *Redactor([run]).runs):
            report = report_of([shown])
            json.dumps([panel.build(report) for panel in PANELS.values()], default=str)
    except RequestError as error:
        said = str(error)
    assert "\n" not in said


# --- samples.jsonl


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("pair", {"src": 1, "dst": 1}, "it tests rank 1 with itself"),
        ("pair", {"src": 9}, "rank 9 of 3"),
        ("pair", {"dst": 3}, "rank 3 of 3"),
        ("pair", {"turn": 1_000_000}, "`$.turn`"),
        ("rank", {"rank": 9}, "rank 9 of 3"),
        ("rank", {"turn": 10_000}, "`$.turn`"),
        ("wait", {"rank": 9}, "rank 9 of 3"),
        ("wait", {"turn": 10_000}, "`$.turn`"),
        ("wait", {"op": "x" * 101}, "`$.op`"),
        ("subset", {"ranks": [0, 9]}, "rank 9 of 3"),
        ("subset", {"ranks": [1, 1]}, "its ranks do not ascend, each once"),
        ("subset", {"ranks": [1, 0]}, "its ranks do not ascend, each once"),
        ("subset", {"times_us": [1.0]}, "it holds 1 times of 3 iterations"),
        ("subset", {"turn": 10_000}, "`$.turn`"),
    ],
)
def test_nonsense_in_a_line_is_refused_by_number(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, changes: dict[str, Any], words: str
) -> None:
    number = edit_line(folder, kind, changes)
    line = refused(folder, capsys)
    assert f"{folder / 'samples.jsonl'} line {number} is damaged: " in line
    assert words in line


def test_a_loop_of_fewer_iterations_is_refused_by_number(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = edit_line(folder, "wait", {"waits_us": [1.0, 2.0]}, which=1)
    line = refused(folder, capsys)
    assert f"samples.jsonl line {number} is damaged: rank 1 has 2 iterations" in line
    assert line.endswith("rank 0 60")


def test_a_loop_that_lacks_a_rank_is_dropped_and_told(folder: Path) -> None:
    samples = folder / "samples.jsonl"
    whole = samples.read_bytes()
    lines = whole.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"wait"' in line)
    # As a crash leaves it: the write of the loop reached the disk in part.
    samples.write_bytes(b"".join(lines[:last]) + lines[last][:9])
    run = load_run(folder)
    told = "all_reduce in the free-running loop, pass 0: 2 of 3 ranks, so it was dropped"
    assert run.problems == ["samples.jsonl: the last line is torn and was dropped", told]
    assert len(run.probes) == last - 2
    (block,) = content("suspects", run)["blocks"]
    assert "who comes last" not in dict(block["facts"])


# --- killed


HOLDER = """
import sys, time
from pathlib import Path
from ncclbench.store.folder import RunFolder
with RunFolder.reopen(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def headline(run: Run) -> str:
    (block,) = content("suspects", run)["blocks"]
    return str(block["headline"])


def test_a_killed_search_is_told_from_one_that_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_meta(folder, lambda meta: meta.update(status="running"))
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        alive = load_run(folder)
        holder.kill()
    assert alive.problems == []
    assert headline(alive).endswith(", still running")
    killed = load_run(folder)
    assert killed.problems == [ENDED_SILENTLY]
    assert headline(killed).endswith(", ended without a word (killed, or disk full?)")
    # A page without names tells it too, though the folder has another name there.
    assert headline(Redactor([killed]).runs[0]).endswith(", ended without a word (killed, or disk full?)")
    assert run_command(["report", str(folder)]) == 0
    assert f"ncclbench: {ENDED_SILENTLY}" in capsys.readouterr().err


def test_of_a_copy_without_its_lock_nothing_can_be_told(folder: Path) -> None:
    edit_meta(folder, lambda meta: meta.update(status="running"))
    (folder / ".lock").unlink()
    run = load_run(folder)
    assert run.problems == []
    assert headline(run).endswith(", still running")
