"""``ncclbench plan``: costs and the smallest effect of a sweep, foretold without measuring anything."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from calibrating import document_of, entry
from sweeping import Outcome, run

from ncclbench.store import calibrations

PLAN = (sys.executable, "-m", "ncclbench", "plan")
CONTRACT = {"op", "nbytes", "mode", "status", "reason", "seconds", "bytes_per_rank"}


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def plan(*options: str) -> Outcome:
    return run(*PLAN, "--backends", "gloo,gloo", *options)


def keep(*entries: dict[str, Any], **fields: Any) -> None:
    calibrations.keep(document_of(*entries, hosts=[socket.gethostname()], **fields))


def last_line(outcome: Outcome) -> str:
    """What stands below the table, a sentence a line, as the one line that --json has."""
    assert outcome.code == 0, outcome.err
    return " ".join(line.strip() for line in outcome.out.split("#\n")[-1].splitlines())


def test_rows_hold_the_contract_and_skipped_cases_their_reason() -> None:
    document = plan("--ops", "all_reduce,all_gather", "--sizes", "4,64K", "--json").document
    assert document["ok"]
    assert document["command"] == "plan"
    assert all(row.keys() >= CONTRACT for row in document["rows"])
    by_status = {(row["op"], row["nbytes"]): row["status"] for row in document["rows"]}
    assert by_status["all_reduce", 65536] == "planned"
    assert by_status["all_gather", 4] == "skipped"
    assert all(row["reason"] for row in document["rows"] if row["status"] == "skipped")
    assert document["bytes_per_rank"] == max(row["bytes_per_rank"] for row in document["rows"])
    assert document["seconds"] is None
    assert document["calibration"] is None


def test_without_a_calibration_it_says_what_to_run() -> None:
    last = last_line(plan("--sizes", "64K"))
    assert "time unknown" in last
    assert "run ncclbench calibrate" in last


def test_what_stands_below_the_table_is_a_sentence_a_line() -> None:
    outcome = plan("--sizes", "64K")
    last = outcome.out.splitlines()[-1]
    assert last.startswith("  no calibration is kept here: run ncclbench calibrate")
    assert last.strip() in plan("--sizes", "64K", "--json").document["message"]


def test_roots_that_groups_do_not_have_are_one_line() -> None:
    options = ("--ops", "broadcast", "--root", "all", "--topologies", "world,pairs", "--modes", "isolated")
    outcome = run(*PLAN, "--world-size", "64", "--nproc-per-node", "64", "--sizes", "1K", *options)
    assert outcome.code == 0, outcome.err
    skipped = [line for line in outcome.out.splitlines() if "skipped" in line]
    reason = "pairs has groups of 2 ranks, and none has the root's number"
    assert skipped == [f"# skipped: 62 cases of broadcast float32: {reason}"]


def test_more_cases_than_anybody_measures_are_refused_at_once() -> None:
    options = ("--ops", "broadcast,reduce", "--dtypes", "all", "--redops", "all", "--root", "all")
    started = time.monotonic()
    outcome = run(*PLAN, "--world-size", "1048576", *options)
    assert time.monotonic() - started < 10
    assert outcome.code == 2
    assert "cases are asked for, more than 500,000: take fewer" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_budget_is_the_upper_bound_where_nothing_else_is_known() -> None:
    outcome = plan("--sizes", "8,64K", "--modes", "isolated", "--time-budget", "30s", "--json")
    assert outcome.document["seconds"] == 60.0
    assert outcome.document["seconds_at_most"] is True
    assert [row["seconds"] for row in outcome.document["rows"]] == [30.0, 30.0]
    assert [row["epochs"] for row in outcome.document["rows"]] == [None, None]


def test_one_arm_with_a_precision_takes_at_most_its_budget() -> None:
    keep(entry())
    options = ("--backends", "gloo", "--sizes", "64K", "--modes", "isolated", "--precision", "2%")
    assert "at most 60.5 s" in last_line(run(*PLAN, *options))
    document = run(*PLAN, *options, "--json").document
    assert document["seconds_at_most"] is True
    assert [(row["epochs"], row["seconds_from"]) for row in document["rows"]] == [(None, "budget")]


def test_a_margin_out_of_reach_is_said_plainly_with_what_would_reach_it() -> None:
    keep(entry())
    options = ("--sizes", "64K", "--modes", "isolated", "--margin", "3%")
    last = last_line(plan(*options))
    assert "cannot be resolved in 1 of 1 cases with 8 epochs" in last
    words = last.split()
    epochs, iters = words[words.index("--epochs") + 1], words[words.index("-n") + 1]
    assert int(iters) == 20 * int(epochs), "as many in an epoch as before"
    again = last_line(plan(*options, "--epochs", epochs, "-n", iters))
    assert "as large as the margin is found in all 1 calibrated cases" in again


def test_a_budget_that_cannot_resolve_the_margin_names_one_that_can() -> None:
    keep(entry())
    options = ("--sizes", "64K", "--modes", "isolated", "--epochs", "100", "-n", "2000")
    last = last_line(plan(*options, "--time-budget", "1s"))
    assert "with --time-budget 1s" in last
    words = last.split()
    budget = words[words.index("--time-budget", words.index("--epochs")) + 1]
    assert "is found in all" in last_line(plan(*options, "--time-budget", budget))


def test_cases_that_are_not_calibrated_are_counted() -> None:
    keep(entry(spread=0.001))
    last = last_line(plan("--ops", "all_reduce,broadcast", "--sizes", "64K", "--modes", "isolated"))
    assert "is found in all 1 calibrated cases" in last
    assert "1 of 2 cases are not calibrated" in last


def test_a_calibration_of_another_world_is_not_used() -> None:
    keep(entry())
    assert plan("--sizes", "64K", "--json").document["calibration"]["nranks"] == 2
    assert plan("--sizes", "64K", "--world-size", "4", "--json").document["calibration"] is None


def test_a_damaged_calibration_is_left_out_with_a_line(tmp_path: Path) -> None:
    keep(entry())
    (path,) = (tmp_path / "data").rglob("*.json")
    path.write_text("{")
    outcome = plan("--sizes", "64K", "--json")
    assert outcome.code == 0
    assert outcome.document["calibration"] is None
    assert str(path) in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_one_arm_is_compared_with_nothing() -> None:
    keep(entry())
    outcome = run(*PLAN, "--backends", "gloo", "--sizes", "64K", "--modes", "isolated")
    assert "one arm, so nothing is compared" in last_line(outcome)
    assert "finds" not in outcome.out


def test_a_plan_for_gpus_can_be_made_where_there_are_none() -> None:
    outcome = run(
        *(*PLAN, "--backends", "nccl2,nccl-legacy", "--modes", "isolated,graph", "--sizes", "64M", "--json"),
        *("--world-size", "64", "--nproc-per-node", "8"),
    )
    document = outcome.document
    assert outcome.code == 0
    assert document["nranks"] == 64
    assert {row["mode"]: row["status"] for row in document["rows"]} == {
        "isolated": "planned",
        "graph": "planned",
    }


def test_16384_ranks_are_planned_in_two_seconds() -> None:
    before = time.monotonic()
    ops = "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all"
    outcome = plan("--ops", ops, "--world-size", "16384", "--nproc-per-node", "8", "--json")
    took_s = time.monotonic() - before
    assert outcome.code == 0
    assert {row["nranks"] for row in outcome.document["rows"]} == {16384}
    # Two seconds on a free machine; here other tests share it.
    assert took_s < 6


def test_no_torch_no_process_and_no_look_at_a_launcher(tmp_path: Path) -> None:
    script = (
        "import sys, os\n"
        "from ncclbench.cli.app import run\n"
        "def no_fork(): raise AssertionError('fork')\n"
        "os.fork = no_fork\n"
        "code = run(['plan', '--backends', 'gloo,gloo', '--sizes', '64K'])\n"
        "assert code == 0, code\n"
        "assert 'torch' not in sys.modules\n"
        "assert not os.listdir('.')\n"
    )
    launcher = {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}
    empty = tmp_path / "empty"
    empty.mkdir()
    outcome = run(sys.executable, "-c", script, cwd=empty, env=launcher)
    assert outcome.code == 0, outcome.err
    assert "2 ranks" in outcome.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--world-size", "0"), "out of range"),
        (("--world-size", "2", "--nproc-per-node", "4"), "more than --world-size 2"),
        (("--root", "7"), "not in a world of 2 ranks"),
        (("--base", "gloo#3"), "unknown arm"),
    ],
)
def test_a_wrong_request_is_one_line_and_2(options: tuple[str, ...], words: str) -> None:
    outcome = plan("--sizes", "64K", *options, "--json")
    assert outcome.code == 2
    assert words in outcome.document["message"]
    assert len(outcome.err.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{' '.join(PLAN)} --ops all --backends gloo | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("# 2 ranks; gloo")
