"""Adding is one entry in one file: what a module outside adds is measured and drawn for real."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sweeping import Outcome, run

HERE = Path(__file__).resolve().parent


def added(*words: str | Path) -> Outcome:
    """The command line with one more entry in each table."""
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    return run(sys.executable, "-c", "import adding; adding.main()", *words, env={"PYTHONPATH": path})


def done(*words: str | Path) -> dict[str, Any]:
    outcome = added(*words, "--json")
    assert outcome.code == 0, outcome.err + outcome.out
    return outcome.document


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One sweep of all that can be in one."""
    words = "sweep --ops reduce_broadcast,all_gather -d float32,chalf -o lowest --topologies world,outside-in"
    arms = ("--arms", "gloo-twin; gloo-twin plain", "--modes", "isolated", "--sizes", "4K")
    counts = ("--epochs", "1", "-n", "3", "-w", "1", "--nproc-per-node", "2")
    return done(*words.split(), *arms, *counts, "--out", tmp_path_factory.mktemp("added") / "run")


def test_what_a_sweep_can_measure_is_measured(
    measured: dict[str, Any],
) -> None:
    rows = {
        (row["op"], row["dtype"], row["topology"], row["arm"]): row
        for row in measured["rows"]
        if row["status"] == "ok"
    }
    expected = {("reduce_broadcast", "float32"), ("all_gather", "float32"), ("all_gather", "complex32")}
    assert {key[:2] for key in rows} == expected
    assert {key[2] for key in rows} == {"world", "outside-in"}
    assert {key[3] for key in rows} == {"gloo-twin"}
    assert all(row["wrong"] == 0 and row["median_us"] > 0 for row in rows.values())
    reduced = rows["reduce_broadcast", "float32", "outside-in", "gloo-twin"]
    assert reduced["redop"] == "lowest"
    assert "gloo" in reduced["implementation"].lower()


def test_a_setting_is_an_arm_of_its_own_and_read_back(measured: dict[str, Any]) -> None:
    """Nothing in gloo has it, and an arm whose settings are not in force is not measured."""
    reasons = {row["reason"] for row in measured["rows"] if row["arm"] == "gloo-twin-plain"}
    assert "plain NOT in force: the group's own options says None" in reasons


def test_a_panel_is_in_the_report_where_its_order_says(measured: dict[str, Any]) -> None:
    page = (Path(measured["run"]) / "report.html").read_text("utf-8")
    assert "slowest of all" in page
    headings = [page.find(f'id="{name}"') for name in ("slowest", "table")]
    assert -1 < headings[0] < headings[1]


def test_an_import_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("stopwatch all_reduce 1048576 2 120.5\n")
    document = done("import", file, "--out", tmp_path / "run")
    (entry,) = document["files"]
    assert (entry["format"], entry["rows_taken"]) == ("stopwatch", 1)
    assert [(row["op"], row["median_us"]) for row in document["rows"]] == [("all_reduce", 120.5)]


def test_a_way_and_an_order_of_point_to_point_are_measured(tmp_path: Path) -> None:
    words = "p2p --parts ways,ordering --ways isend-recv --orders irecv-isend --sizes 64 -n 4 --epochs 1"
    document = done(*words.split(), "--out", tmp_path / "run")
    assert {row["way"] for row in document["rows"]} == {"isend-recv"}
    assert all(row["total_us"] > 0 and row["wrong"] == 0 for row in document["rows"])
    (order,) = document["ordering"]
    assert (order["order"], order["outcome"]) == ("irecv-isend", "completed")


def test_a_fault_and_a_strategy_are_drilled(tmp_path: Path) -> None:
    words = "drill --fault segfault --strategy again --trials 1 --spare warm --nproc-per-node 3"
    (trial,) = done(*words.split(), "--out", tmp_path / "run")["trials"]
    assert (trial["fault"], trial["strategy"], trial["correct"]) == ("segfault", "again", True)
    assert all(value > 0 for value in trial["phases_ms"].values())
    assert trial["leftover_processes"] == 0


def test_all_are_listed_planned_and_refused_like_ours() -> None:
    listed = done("list")
    for section, name in (
        ("collectives", "reduce_broadcast"),
        ("backends", "gloo-twin"),
        ("topologies", "outside-in"),
        ("dtypes", "complex32"),
        ("redops", "lowest"),
        ("settings", "plain"),
        ("kernels", "triad-twin"),
    ):
        assert name in [entry["name"] for entry in listed[section]]
    refused = added("sweep", "--ops", "reduce_broadcst")
    assert (refused.code, "did you mean 'reduce_broadcast'?" in refused.err) == (2, True)
    hello = added("hello")
    assert (hello.code, hello.out) == (0, "hello\n")


@pytest.mark.full
def test_a_kernel_computes_beside_a_collective(tmp_path: Path) -> None:
    words = "overlap --compute triad-twin --sizes 64K --epochs 1 --nproc-per-node 2"
    document = done(*words.split(), "--out", tmp_path / "run")
    assert {row["compute"] for row in document["rows"]} == {"triad-twin"}
