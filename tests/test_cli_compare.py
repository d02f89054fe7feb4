"""``ncclbench compare``: from run folders on disk to the table, the document, the files and the exit code."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from launching import MONDAY, TUESDAY, edit_meta, inject, spoil, store

from ncclbench.cli.app import run as run_command
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.model import unplanned
from ncclbench.supervise.attempts import Description, new_meta

ROW_KEYS = {
    *("op", "dtype", "redop", "root", "nbytes", "count", "topology", "mode", "async", "in_place", "nranks"),
    *("statistic", "base", "new", "base_us", "new_us", "ratio", "ci_low", "ci_high", "p_holm", "verdict"),
    *("tail", "beyond_margin", "epochs", "shift", "between_modes", "drift", "drifts", "autocorrelation"),
    *("correlated", "unit", "detectable", "stopped", "half_width", "doubt", "fence_bound"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five launches before, four after a 20 % slowdown, and one that had two arms."""
    parent = tmp_path_factory.mktemp("work") / "results"
    for number in range(5):
        when = f"{MONDAY}T1{number}:00:00Z"
        store(parent / f"before-{number}", when, seed=number + 1, label="before")
    for number in range(4):
        when = f"{TUESDAY}T1{number}:00:00Z"
        store(parent / f"after-{number}", when, seed=number + 51, label="after", slower={"gloo": 1.2})
    arms = {"arms": ("gloo", "gloo#2"), "slower": {"gloo#2": 1.2}, "epochs": 8, "iters": 80}
    store(parent / "arms", f"{MONDAY}T09:00:00Z", seed=99, **arms)
    return parent


@pytest.fixture(autouse=True)
def _in_work(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)


def some(name: str, number: int) -> list[str]:
    return [f"results/{name}-{index}" for index in range(number)]


def compare(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document."""
    code = run_command(["compare", *map(str, arguments), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line of a request that is refused."""
    assert run_command(["compare", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("ncclbench: error: ")
    return line


# What the words name.


def test_launches_are_listed_after_base_and_new(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = compare(capsys, "--base", *some("before", 5), "--new", *some("after", 4))
    assert (code, document["command"], document["ok"], document["gate"]) == (0, "compare", True, None)
    assert document["base"]["runs"] == some("before", 5)
    assert document["new"]["runs"] == some("after", 4)
    assert [(row["nbytes"], row["verdict"]) for row in document["rows"]] == [
        (4096, "slower"),
        (65536, "slower"),
    ]
    assert all(set(row) >= ROW_KEYS for row in document["rows"])
    assert set(document) >= {"rows", "differences", "unpaired", "notes", "collectives", "environment", "run"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--base", "B0", "--base", "B1", "--new", "A0", "--new", "A1"],
        ["--base=B0", "B1", "--new=A0", "A1"],
        ["--new", "A0", "A1", "--statistic", "p25", "--base", "B0", "B1"],
        ["B0", "--new", "A0"],
        ["A0", "--base", "B0"],
    ],
)
def test_sides_can_be_written_in_many_ways(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("B", "results/before-").replace("A", "results/after-") for word in arguments]
    code, document = compare(capsys, *words)
    several = arguments.count("B1") + 1
    assert code == 0
    assert document["base"]["runs"] == some("before", several)
    assert document["new"]["runs"] == some("after", several)


def test_a_label_names_all_its_runs(capsys: pytest.CaptureFixture[str]) -> None:
    document = compare(capsys, "before", "after")[1]
    assert document["base"]["runs"] == some("before", 5)
    assert document["new"]["runs"] == some("after", 4)
    assert [row["verdict"] for row in document["rows"]] == ["slower", "slower"]


def test_arms_of_one_run_are_compared_epoch_by_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = compare(capsys, "results/arms:gloo", "results/arms:gloo#2")
    assert code == 0
    assert [(row["base"], row["new"], row["unit"], row["verdict"]) for row in document["rows"]] == [
        ("gloo", "gloo#2", "epochs", "slower")
    ] * 2
    assert all(set(row) >= ROW_KEYS for row in document["rows"])


def test_an_arm_of_one_run_stands_against_that_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    document = compare(capsys, "results/before-0", "results/arms:gloo#2")[1]
    assert {(row["base_arm"], row["new_arm"]) for row in document["rows"]} == {("gloo", "gloo#2")}


def test_a_path_that_exists_as_a_whole_wins(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "arms:gloo"
    shutil.copytree(results / "before-0", odd)
    document = compare(capsys, odd, "results/after-0")[1]
    assert document["base"] == {"label": "before", "arm": None, "runs": [str(odd)]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["results/arms:glo", "results/after-0"], "unknown arm 'glo': did you mean 'gloo'?"),
        (["nowhere", "results/after-0"], "BASE 'nowhere' is not a run"),
        (["results", "results/after-0"], "there is no run.json in it"),
        (["nowhere:gloo", "results/after-0"], "nowhere is not a run"),
        (["results/before-0"], "compare takes BASE NEW here, not 1 runs"),
        (["results/before-0"] * 3, "not 3 runs"),
        (["--base", "results/before-0"], "name one run as NEW"),
        (["results/before-0", "results/before-0"], "is on both sides"),
        (["results/arms", "results/arms"], "results/arms:gloo results/arms:gloo#2"),
        (["--base", "results/before-0", "results/before-0", "--new", "results/after-0"], "named twice"),
        (["--base", "results/arms:gloo", "results/before-0", "--new", "results/after-0"], "mixes arms"),
        (["results/before-0", "results/after-0", "--fail-on", "slower"], "write it like slower:5%"),
        (["results/before-0", "results/after-0", "--fail-on", "faster:5%"], "write it like slower:5%"),
        (["results/before-0", "results/after-0", "--fail-on", "slower:five"], "is not a percentage"),
        (["results/before-0", "results/after-0", "--unclear", "maybe"], "unknown --unclear value 'maybe'"),
        (["results/before-0", "results/after-0", "--statistic", "mean"], "unknown --statistic value 'mean'"),
        (["results/before-0", "results/after-0", "--out", "nowhere/page.html"], "there is no folder"),
        (["results/before-0", "results/after-0", "--csv", "results"], "is a folder"),
        (["results/before-0", "results/after-0", "--baseline", "first"], "unknown --baseline value"),
        (["--base", "results/before-0", "--baseline", "last", "results/after-0"], "both name the base"),
    ],
)
def test_a_wrong_request_is_one_line(
    arguments: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *arguments)


def test_a_copy_of_a_launch_is_no_second_launch(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results / "before-0", tmp_path / "again")
    line = refused(capsys, "--base", "results/before-0", tmp_path / "again", "--new", "results/after-0")
    assert "is a copy of" in line
    assert "is on both sides" in refused(capsys, "results/before-0", tmp_path / "again")


def test_runs_that_have_nothing_in_common_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    four = store(tmp_path / "four", nranks=4)
    assert "BASE has 2 ranks, NEW 4" in refused(capsys, "results/before-0", four)
    other = store(tmp_path / "other", ops=("broadcast",))
    assert "has no" in refused(capsys, "results/before-0", other)


# --baseline last.


def test_the_last_good_run_of_the_same_hosts_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = store(tmp_path / "new", f"{TUESDAY}T12:00:00Z", seed=9)
    good = store(tmp_path / "good", f"{MONDAY}T12:00:00Z", seed=2)
    store(tmp_path / "older", f"{MONDAY}T11:00:00Z", seed=3)
    store(tmp_path / "later", f"{TUESDAY}T13:00:00Z", seed=4)
    store(tmp_path / "elsewhere", f"{MONDAY}T13:00:00Z", host="node-07", seed=5)
    store(tmp_path / "larger", f"{MONDAY}T14:00:00Z", nranks=4, seed=6)
    store(tmp_path / "other", f"{MONDAY}T14:30:00Z", ops=("broadcast",), seed=6)
    wrong = store(tmp_path / "wrong", f"{MONDAY}T15:00:00Z", seed=7)
    spoil(wrong)
    slowed = store(tmp_path / "slowed", f"{MONDAY}T15:30:00Z", seed=11)
    inject(slowed)
    store(tmp_path / "others", f"{MONDAY}T15:40:00Z", seed=12, arms=("nccl2", "nccl-legacy"))
    cut = store(tmp_path / "cut", f"{MONDAY}T16:00:00Z", seed=8)
    edit_meta(cut, status="interrupted")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    code, document = compare(capsys, "--baseline", "last", new)
    assert code == 0
    assert document["base"]["runs"] == [str(good)]
    assert document["notes"][0] == f"--baseline last took {good}"


def test_two_runs_of_one_second_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the time that a run which begins writes into its run.json."""
    plan, created = unplanned(parse_arms(None, "gloo", "cpu"), 2), []
    for micros in (100_000, 200_000):
        began = Description((), None, datetime(2026, 11, 30, 12, 0, 0, micros, UTC))
        created.append(new_meta("sweep", plan, began)["created"])
    old, new = (
        store(tmp_path / name, when, seed=9) for name, when in zip(("old", "new"), created, strict=True)
    )
    assert compare(capsys, "--baseline", "last", new)[1]["base"]["runs"] == [str(old)]


def test_a_single_arm_may_have_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = store(tmp_path / "new", f"{TUESDAY}T12:00:00Z", seed=9, arms=("nccl2",))
    old = store(tmp_path / "old", f"{MONDAY}T12:00:00Z", seed=2, arms=("nccl-legacy",))
    assert compare(capsys, "--baseline", "last", new)[1]["base"]["runs"] == [str(old)]


def test_without_a_good_run_it_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = store(tmp_path / "new", f"{TUESDAY}T12:00:00Z", seed=9)
    store(tmp_path / "elsewhere", f"{MONDAY}T13:00:00Z", host="node-07", seed=5)
    inject(store(tmp_path / "slowed", f"{MONDAY}T14:00:00Z", seed=6))
    store(tmp_path / "others", f"{MONDAY}T15:00:00Z", seed=7, arms=("nccl2", "nccl-legacy"))
    line = refused(capsys, "--baseline", "last", new)
    assert "1 on other hosts" in line
    assert "1 slowed on purpose" in line
    assert "1 without arm gloo" in line
    assert str(new) in line


# The gate.

FOUR = ("--base", *some("before", 4), "--new", *some("after", 4))


@pytest.mark.parametrize(
    ("arguments", "code", "gate"),
    [
        ((*FOUR, "--fail-on", "slower:5%"), 1, "fail"),
        ((*FOUR, "--fail-on", "slower:5%", "--exit-zero"), 0, "fail"),
        ((*FOUR, "--fail-on", "slower:5%", "--unclear", "pass"), 1, "fail"),
        ((*FOUR, "--fail-on", "slower:60%"), 0, "pass"),
        ((*FOUR, "--fail-on", "slower:20%", "--unclear", "pass"), 0, "pass"),
        ((*FOUR, "--fail-on", "slower:20%", "--unclear", "fail"), 1, "fail"),
        (("results/before-0", "results/after-0", "--fail-on", "slower:60%"), 1, "fail"),
        (("results/before-0", "results/after-0", "--fail-on", "slower:5%", "--unclear", "pass"), 0, "pass"),
        (("results/arms:gloo", "results/arms:gloo#2", "--fail-on", "slower:5%"), 1, "fail"),
        (("results/arms:gloo#2", "results/arms:gloo", "--fail-on", "slower:5%"), 0, "pass"),
    ],
)
def test_the_gate(arguments: Sequence[str], code: int, gate: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended, document = compare(capsys, *arguments)
    assert (ended, document["gate"], document["ok"]) == (code, gate, gate == "pass")
    assert f"gate {gate.upper()}: " in document["message"]


def test_the_gate_names_what_it_cannot_see(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = [store(tmp_path / f"fewer-{seed}", seed=seed, sizes=(4096,)) for seed in range(71, 75)]
    gone = ("--base", *some("before", 4), "--new", *fewer, "--fail-on", "slower:60%")
    code, document = compare(capsys, *gone)
    assert (code, document["gate"]) == (1, "fail")
    assert "1 not compared (which counts as fail)" in document["message"]
    assert "NEW has no all_reduce of 65536 bytes" in document["message"]
    assert compare(capsys, *gone, "--unclear", "pass")[0] == 0
    added = ("--base", *fewer, "--new", *some("before", 4), "--fail-on", "slower:60%")
    assert compare(capsys, *added)[0] == 0


def test_wrong_data_end_with_1_whatever_is_asked(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(results / "after-0", wrong)
    spoil(wrong)
    code, document = compare(capsys, "results/before-0", wrong, "--exit-zero")
    assert (code, document["ok"], document["wrong"]) == (1, False, [str(wrong)])
    assert document["message"].startswith("WRONG DATA in ")
    gated = compare(capsys, "results/before-0", wrong, "--fail-on", "slower:60%", "--unclear", "pass")
    assert (gated[0], gated[1]["gate"]) == (1, "fail")


# What is shown and written.


def test_the_terminal_begins_with_what_changed_and_ends_with_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = store(tmp_path / "new", seed=77, sizes=(4096, 65536, 1 << 20))
    meta = json.loads((new / "run.json").read_text())
    meta["environment"]["hosts"][0]["nccl"] = "2.31.0"
    (new / "run.json").write_text(json.dumps(meta))
    assert run_command(["compare", "results/before-0", str(new)]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    places = [
        out.index(text) for text in ("2.31.0", "NEW/BASE", "# not compared", "64K and up", "no verdict")
    ]
    assert places == sorted(places)
    assert out.splitlines()[-1].startswith("no verdict on 2 cases")
    assert "one launch a side cannot tell" in out.splitlines()[-1]
    assert "BASE has no all_reduce of 1048576 bytes" in out


def test_a_slower_side_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "before", "after"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("x time, slower" in line for line in lines) >= 4
    assert lines[-1].startswith("2 cases: 2 slower; most slower: all_reduce float32 sum ")
    assert "beyond the margin: regressions" in lines[-1]


def test_csv_and_page_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    code, document = compare(
        capsys, "before", "after", "--out", page, "--csv", table, "--fail-on", "slower:60%"
    )
    assert (code, document["report"], document["csv"]) == (0, str(page), str(table))
    assert "before (5 launches)" in page.read_text("utf-8")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == ["slower", "slower"]
    assert float(rows[0]["ratio"]) == pytest.approx(document["rows"][0]["ratio"])
    assert float(rows[0]["shift_p90_ratio"]) == pytest.approx(document["rows"][0]["shift"][3]["ratio"])


def test_hostile_labels_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = store(tmp_path / "new", seed=77, label="x\n\x1b[31mgate PASS")
    assert run_command(["compare", "results/before-0", str(new)]) == 0
    assert "\x1b" not in capsys.readouterr().out
