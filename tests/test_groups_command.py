"""``ncclbench groups`` as users run it: its document, its folder, its end by signals, and what it refuses."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from groups_fixtures import make_groups, written
from sweeping import Outcome, Running, alive, lines, run, wait_until

from ncclbench.cli.app import run as run_command
from ncclbench.store.groups import CrossedCell, GroupCosts
from ncclbench.store.reader import load_run

GROUPS = (sys.executable, "-m", "ncclbench", "groups")
MESH = ("--topology", "mesh:dp=2,tp=2", "--nproc-per-node", "4")


def groups(*options: str | Path, env: dict[str, str] | None = None) -> Outcome:
    return run(*GROUPS, *options, env=env)


def test_document_and_folder_of_costs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = groups("--counts", "4,1", "--epochs", "3", "--out", folder, "--label", "costs", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert (document["command"], document["ok"], document["run"]) == ("groups", True, str(folder))
    assert document["arms"] == [
        {"arm": "gloo", "implementation": "ProcessGroupGloo (gloo)", "device": "cpu", "reason": None}
    ]
    one, four = document["rows"]
    assert [row["groups"] for row in (one, four)] == [1, 4]
    for row in (one, four):
        assert (row["arm"], row["way"], row["kind"]) == ("gloo", "new_group", "world")
        assert (row["group_size"], row["nranks"], row["epochs"], row["peers"]) == (2, 2, 3, 1)
        assert row["total_us"] == pytest.approx(row["per_group_us"] * row["groups"])
        assert min(row[f"{step}_us"] for step in ("new", "first", "later", "p2p", "destroy")) > 0
        assert row["ci_low_us"] < row["total_us"] * 1.5
        # A group of two ranks of gloo is a connection, and threads and files of its own.
        assert row["communicators"] == row["connections"] == row["groups"]
        assert row["counted"] == "TCP connections to other ranks, counted in /proc"
        assert row["files"] >= 2 * row["groups"]
        assert row["threads"] >= row["groups"]
        assert (row["leaked_files"], row["leaked_threads"], row["leaked_connections"]) == (0, 0, 0)
        assert row["device_bytes"] is row["backend_bytes"] is row["suspend_us"] is None
    assert four["files"] == 4 * one["files"]
    assert document["at_once"] == document["crossed"] == document["left_out"] == []
    loaded = load_run(folder)
    assert (loaded.meta["kind"], loaded.meta["status"], loaded.problems) == ("groups", "complete", [])
    assert loaded.meta["asked"]["counts"] == "1,4"
    assert "4 groups on gloo by new_group: 4 connections a rank" in (folder / "report.html").read_text()


def test_groups_of_some_ranks_and_singletons(tmp_path: Path) -> None:
    listed = tmp_path / "groups.txt"
    listed.write_text("0,2\n")
    few = ("--counts", "2", "--epochs", "1", "--nproc-per-node", "3", "--json")
    some = groups(*few, "--kind", f"file:{listed}", "--ways", "all", "--out", tmp_path / "some")
    assert some.code == 0, some.err
    rows = {row["way"]: row for row in some.document["rows"]}
    assert rows["new_group"]["communicators"] == 2
    assert rows["new_group"]["group_size"] == 2
    # Whether gloo can split differs by version: it is a row or a reason.
    left = [line["reason"] for line in some.document["left_out"]]
    assert ("split_group" in rows) != any(reason.startswith("split_group: ") for reason in left)
    alone = groups(*few, "--kind", "singleton", "--out", tmp_path / "alone")
    (row,) = alone.document["rows"]
    assert (row["kind"], row["group_size"], row["communicators"], row["peers"]) == ("singleton", 1, 0, 0)
    assert row["p2p_us"] == 0


def test_groups_at_once_and_crossed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    quick = ("--sizes", "4K", "--iters", "6", "--deadline", "500ms")
    done = groups("--concurrent", *MESH, *quick, "--out", folder, "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["rows"] == []
    assert {(row["topology"], tuple(row["ranks"])) for row in document["at_once"]} == {
        ("mesh:dp=2,tp=2@dp", (0, 2)),
        ("mesh:dp=2,tp=2@dp", (1, 3)),
        ("mesh:dp=2,tp=2@tp", (0, 1)),
        ("mesh:dp=2,tp=2@tp", (2, 3)),
    }
    for row in document["at_once"]:
        assert (row["at_once"], row["epochs"], row["n"], row["wrong"]) == (4, 3, 6, 0)
        assert row["alone_us"] > 0
        assert row["ci_low"] <= row["slowdown"] <= row["ci_high"]
    outcomes = {row["order"]: row["outcome"] for row in document["crossed"]}
    assert outcomes == {
        "same": "completed",
        "same-async": "completed",
        "crossed": "deadlocked",
        "crossed-async": "completed",
    }
    (stuck,) = (row for row in document["crossed"] if row["order"] == "crossed")
    assert stuck["cannot_end"] is True
    (cell,) = stuck["cells"]
    assert cell["seconds"] < 4
    assert cell["said"]["0"] == "in all_reduce in mesh:dp=2,tp=2@dp"
    assert (document["wrong"], document["leftover_processes"]) == (0, 0)
    assert "deadlocked on gloo: crossed" in (folder / "report.html").read_text()


def test_words_for_a_person(tmp_path: Path) -> None:
    options = ("--parts", "crossed", "--topology", "world", "--sizes", "64", "--deadline", "500ms")
    done = groups(*options, "--orders", "same,crossed", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "  same     completed up to 64" in done.out
    assert "  crossed  deadlocked from 64 on, the smallest tried" in done.out
    assert "rank 0 in all_reduce in world, rank 1 in all_reduce in world again" in done.out
    assert done.out.splitlines()[-2:] == ["completed on gloo: same", "deadlocked on gloo: crossed"]


def test_an_arm_that_cannot_be_had_stands_beside_those_that_can(tmp_path: Path) -> None:
    options = ("--parts", "all", "--counts", "1", "--epochs", "1", "--sizes", "64", "--orders", "same")
    done = groups(
        *options, "--backends", "nccl2,gloo", "--topology", "world", "--out", tmp_path / "run", "--json"
    )
    assert done.code == 0, done.err
    reasons = {arm["arm"]: arm["reason"] for arm in done.document["arms"]}
    assert reasons["gloo"] is None
    assert "CUDA device" in reasons["nccl2"]
    for part in ("rows", "at_once", "crossed"):
        assert {row["arm"] for row in done.document[part]} == {"gloo"}


@pytest.mark.parametrize("part", ["costs", "together", "crossed"])
def test_nothing_to_be_had(part: str, tmp_path: Path) -> None:
    done = groups("--backends", "nccl2", "--parts", part, "--topology", "world", "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("ncclbench: error: nothing can be measured here: ")
    assert "nccl2" in done.err.splitlines()[-1]


@contextmanager
def going(folder: Path, *options: str) -> Iterator[Running]:
    """A run that goes on until it is hurt, with something on disk."""
    with Running(*GROUPS, *options, "--out", folder) as running:
        wait_until(lambda: lines(folder) > 1, "the first results")
        wait_until(lambda: sum(map(alive, running.descendants())) >= 2, "two ranks")
        yield running


IN_COSTS = ("--counts", "1,2", "--epochs", "10000")
IN_CELLS = ("--parts", "crossed", "--topology", "world", "--sizes", "64", "--deadline", "60s")


@pytest.mark.parametrize("options", [IN_COSTS, IN_CELLS], ids=["costs", "cells"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_keeps_what_was_measured_and_leaves_no_process(
    options: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with going(folder, *options) as running:
        running.signal(number)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    kept = load_run(folder)
    assert any(isinstance(line, GroupCosts | CrossedCell) for line in kept.results)
    if number == signal.SIGINT:
        assert (done.code, kept.meta["status"]) == (130, "interrupted")
        assert (folder / "report.html").exists()


def test_a_worker_that_dies_is_named_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # Groups enough that its life is long.
    with Running(*GROUPS, "--counts", "1,256", "--epochs", "100", "--out", folder) as running:
        wait_until(lambda: lines(folder) > 2, "the first results")
        victims = [each for each in running.workers(2) if alive(each)]
        victims[-1].kill()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 3
    assert "rank " in done.err.splitlines()[-1]
    assert "was killed by SIGKILL" in done.err.splitlines()[-1]
    kept = load_run(folder)
    assert kept.meta["status"] == "failed"
    assert any(isinstance(line, GroupCosts) for line in kept.results)


@pytest.mark.full
def test_under_torchrun(tmp_path: Path) -> None:
    words = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "4",
        "-m",
        "ncclbench",
        "groups",
    )
    quick = ("--counts", "1,2", "--epochs", "2", "--sizes", "4K", "--iters", "4", "--deadline", "500ms")
    options = ("--parts", "all", "--topology", "pairs,ring", *quick)
    done = run(*words, *options, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert [row["groups"] for row in document["rows"]] == [1, 2]
    assert {row["topology"] for row in document["at_once"]} == {"pairs", "ring"}
    assert {row["order"]: row["outcome"] for row in document["crossed"]}["crossed"] == "deadlocked"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--counts", "0"), "--counts 0 is out of range: take 1 to 4,096"),
        (("--counts", "8,x"), "--counts 'x' is not a whole number"),
        (("--counts", "8,8"), "names a number twice"),
        (("--counts", "8,,1"), "has an empty entry"),
        (("--kind", "halfs"), "did you mean 'halves'?"),
        (("--kind", "halves", "--nproc-per-node", "3"), "--kind halves: 3 ranks are an odd number"),
        (("--kind", "mesh:a=2,b=1"), "stands for 2 cuts: take one of mesh:a=2,b=1@a, mesh:a=2,b=1@b"),
        (("--ways", "new"), "way"),
        (("--parts", "cost"), "did you mean 'costs'?"),
        (("--concurrent", "--parts", "costs"), "leave one of the two out"),
        (("--concurrent", "--topology", "halvs"), "did you mean 'halves'?"),
        (("--concurrent", "--topology", "halves", "--nproc-per-node", "3"), "3 ranks are an odd number"),
        (("--concurrent", "--op", "barrier"), "cannot be issued beside another"),
        (("--concurrent", "--op", "all_reduce,broadcast"), "names 2 collectives: name one"),
        (("--concurrent", "--sizes", "1T", "--topology", "world"), "memory"),
        (("--orders", "cross"), "did you mean 'crossed'?"),
        (("--deadline", "1ms"), "--deadline 1ms is out of range: take 200ms to 60s"),
        (("--epochs", "0"), "out of range"),
        (("--backends", "glou"), "did you mean 'gloo'?"),
        (("--label", ""), "--label is empty"),
    ],
)
def test_bad_requests(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["groups", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_more_groups_than_files_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 512))
    assert run_command(["groups", "--counts", "200"]) == 2
    assert "200 groups of 2 ranks take about 1,064 open files a process, and it may have 512" in (
        capsys.readouterr().err
    )


def test_crossed_alone_refuses_an_operation_that_it_does_not_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["groups", "--parts", "crossed", "--op", "all_gather"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "crossed always calls all_reduce" in line


def test_a_refusal_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["groups", "--kind", "x", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["ok"]) == ("groups", False)


def test_compare_refuses_such_a_run_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (written(tmp_path / name, make_groups()) for name in ("a", "b"))
    assert run_command(["compare", str(one), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is of ncclbench groups and has no rows to compare" in line
