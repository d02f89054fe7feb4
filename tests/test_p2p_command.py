"""``ncclbench p2p`` as users run it: its document, its folder, its end by signals, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sweeping import Outcome, Running, alive, lines, run, wait_until

from ncclbench.cli.app import run as run_command
from ncclbench.store.p2p import OrderingCell, WayTimes
from ncclbench.store.reader import load_run

P2P = (sys.executable, "-m", "ncclbench", "p2p")
QUICK = ("--sizes", "8,64K", "--iters", "6", "--epochs", "3")
SHORT = ("--deadline", "500ms")


def p2p(*options: str | Path, env: dict[str, str] | None = None) -> Outcome:
    return run(*P2P, *options, env=env)


def test_document_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = p2p(*QUICK, "--parts", "ways,first", "--out", folder, "--label", "pairs", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert (document["command"], document["ok"], document["run"]) == ("p2p", True, str(folder))
    assert document["arms"] == [
        {"arm": "gloo", "implementation": "ProcessGroupGloo (gloo)", "device": "cpu", "reason": None}
    ]
    rows = document["rows"]
    assert len(rows) == 7 * 2
    assert {(row["way"], row["both"]) for row in rows} == {
        ("send", False),
        ("isend", False),
        ("isend", True),
        ("batched", False),
        ("batched", True),
        ("window", False),
        ("ping-pong", False),
    }
    for row in rows:
        assert (row["epochs"], row["n"], row["wrong"]) == (3, 6, 0)
        assert 0 < row["host_us"] <= row["total_us"]
        assert row["latency_us"] > 0
        assert row["bandwidth_GBs"] > 0
        assert row["implementation"] == "ProcessGroupGloo (gloo)"
    (first,) = document["first_calls"]
    assert (first["src"], first["dst"], first["epochs"]) == (0, 1, 3)
    assert first["init_us"] > 0
    assert (document["peers"], document["semantics"], document["left_out"]) == ([], [], [])
    assert (document["ordering"], document["wrong"], document["leftover_processes"]) == ([], 0, 0)
    loaded = load_run(folder)
    assert (loaded.meta["status"], loaded.problems) == ("complete", [])
    assert loaded.meta["asked"]["sizes"] == "8,64K"


def test_ordering_in_document_and_page(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    orders = (*SHORT, "--parts", "ordering", "--orders", "send-send,recv-recv,batched")
    done = p2p(*QUICK, *orders, "--out", folder, "--json")
    assert done.code == 0, done.err
    by_order = {row["order"]: row for row in done.document["ordering"]}
    for name in ("send-send", "recv-recv"):
        assert (by_order[name]["outcome"], by_order[name]["from_nbytes"]) == ("deadlocked", 8)
        assert [cell["nbytes"] for cell in by_order[name]["cells"]] == [8]
    assert (by_order["batched"]["outcome"], by_order["batched"]["completed_to_nbytes"]) == (
        "completed",
        65536,
    )
    assert all(cell["leftover_processes"] == 0 for row in by_order.values() for cell in row["cells"])
    assert done.document["arms"][0]["implementation"] == "ProcessGroupGloo (gloo)"
    assert "Orders of calling, gloo" in (folder / "report.html").read_text()


def test_peers_of_four_ranks_with_two_arms(tmp_path: Path) -> None:
    few = ("--iters", "3", "--epochs", "2", "--sizes", "64,4K", "--nproc-per-node", "4", "--peers", "3,1")
    done = p2p(*few, "--parts", "first,peers", "--backends", "gloo,gloo", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert {(row["arm"], row["dst"]) for row in document["first_calls"]} == {
        (arm, peer) for arm in ("gloo", "gloo#2") for peer in (1, 3)
    }
    assert {(row["peers"], row["beside"]) for row in document["peers"]} == {
        (1, "all_reduce"),
        (2, None),
        (2, "all_reduce"),
    }
    for row in document["peers"]:
        assert (row["n"], row["wrong"]) == (3, 0)
        assert row["ratio"] > 0
        assert (row["beside_us"] is None) == (row["beside"] is None)


def test_words_for_a_person(tmp_path: Path) -> None:
    orders = (*SHORT, "--parts", "ordering", "--orders", "send-send,batched")
    done = p2p(*QUICK, *orders, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "  send-send  deadlocked from 8 bytes on, the smallest tried" in done.out
    assert "  batched    completed up to 64K" in done.out
    assert done.out.splitlines()[-1] == "completed: batched; deadlocked: send-send"


@pytest.mark.full
def test_semantics_alone(tmp_path: Path) -> None:
    done = p2p("--semantics", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["rows"] == document["ordering"] == []
    outcomes = {row["check"]: row["outcome"] for row in document["semantics"]}
    assert outcomes["is-completed"] == "otherwise"
    assert outcomes["call-time"] == "as-documented"
    assert outcomes["wait"] == "not-here"
    assert all(row["documented"] and row["said"] for row in document["semantics"])
    assert "wrong by a factor of" in (tmp_path / "run" / "report.html").read_text()


def test_an_arm_that_cannot_be_had_stands_beside_those_that_can(tmp_path: Path) -> None:
    options = ("--backends", "gloo,nccl2", "--orders", "batched", "--ways", "send")
    done = p2p(*QUICK, *options, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    reasons = {arm["arm"]: arm["reason"] for arm in done.document["arms"]}
    assert reasons["gloo"] is None
    assert "CUDA device" in reasons["nccl2"]
    assert {row["arm"] for row in done.document["rows"]} == {"gloo"}


@pytest.mark.parametrize("part", ["ways", "ordering"])
def test_nothing_to_be_had(part: str, tmp_path: Path) -> None:
    done = p2p("--backends", "nccl2", "--parts", part, "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("ncclbench: error: nothing can be measured here: ")
    assert "nccl2" in done.err.splitlines()[-1]


@contextmanager
def going(folder: Path, *options: str) -> Iterator[Running]:
    """A run that goes on until it is hurt: with something on disk, of cells in the one that deadlocks."""
    with Running(*P2P, "--sizes", "8,64K", *options, "--out", folder) as running:
        # The arm, and both cells of the order that completes.
        wait_until(lambda: lines(folder) > 2, "the first results")
        wait_until(lambda: sum(map(alive, running.descendants())) >= 2, "two ranks")
        yield running


IN_WAYS = ("--parts", "ways", "--iters", "1000000", "--epochs", "10000")
IN_CELLS = ("--parts", "ordering", "--orders", "batched,send-send", "--deadline", "60s")


@pytest.mark.parametrize("options", [IN_WAYS, IN_CELLS], ids=["ways", "cells"])
def test_ctrl_c_keeps_what_was_measured(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with going(folder, *options) as running:
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 130
    kept = load_run(folder)
    assert kept.meta["status"] == "interrupted"
    assert any(isinstance(line, WayTimes | OrderingCell) for line in kept.results)
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("options", [IN_WAYS, IN_CELLS], ids=["ways", "cells"])
def test_killed_command_leaves_no_process(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with going(folder, *options) as running:
        assert any(alive(each) for each in running.descendants())
        running.signal(signal.SIGKILL)
        running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert any(isinstance(line, WayTimes | OrderingCell) for line in load_run(folder).results)


def test_a_worker_that_dies_is_named_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with going(folder, *IN_WAYS) as running:
        running.workers(2)[1].kill()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 3
    assert "rank 1 on " in done.err.splitlines()[-1]
    # Between two passes the ranks make new groups.
    place = r"was killed by SIGKILL in (the ways of sending|opening the process groups)"
    assert re.search(place, done.err.splitlines()[-1])
    assert load_run(folder).results


def test_wrong_data_ends_with_1_whatever_is_asked(tmp_path: Path) -> None:
    """A gloo that turns bytes round, put into every process of the run by Python itself."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'ncclbench.worker.programs.p2p_ways':\n"
        "            sys.meta_path.remove(self)\n"
        "            import importlib.util\n"
        "            import torch.distributed as dist\n"
        "            recv = dist.recv\n"
        "            def spoiled(tensor, *rest, **named):\n"
        "                came = recv(tensor, *rest, **named)\n"
        "                tensor[0] ^= 1\n"
        "                return came\n"
        "            dist.recv = spoiled\n"
        "            return importlib.util.find_spec(name)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    root = str(Path(__file__).resolve().parent.parent)
    env = {"PYTHONPATH": f"{tmp_path}:{root}"}
    options = ("--parts", "ways", "--ways", "send", "--sizes", "64", "--iters", "2", "--epochs", "1")
    done = p2p(*options, "--exit-zero", "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 1, done.err
    assert done.document["ok"] is False
    assert done.document["wrong"] == done.document["rows"][0]["wrong"] == 4
    assert done.document["message"].startswith("WRONG DATA in 4 messages")


@pytest.mark.full
def test_under_torchrun(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "-m", "ncclbench", "p2p")
    done = run(*words, *QUICK, *SHORT, "--orders", "send-send,batched", "--out", folder, "--json")
    assert done.code == 0, done.err
    document = done.document
    assert {row["dst"] for row in document["first_calls"]} == {1, 2}
    assert {row["order"]: row["outcome"] for row in document["ordering"]} == {
        "send-send": "deadlocked",
        "batched": "completed",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--parts", "way"), "did you mean 'ways'?"),
        (("--parts", "ways,ways"), "--parts names ways twice"),
        (("--semantics", "--parts", "first"), "leave one of the two out"),
        (("--semantics", "--ways", "send"), "--ways is of no use without --parts ways: add that part"),
        (("--parts", "ways", "--orders", "batched"), "--orders is of no use without --parts ordering"),
        (("--parts", "ways", "--deadline", "3s"), "--deadline is of no use without --parts ordering"),
        (("--parts", "ways", "--peers", "1"), "--peers is of no use without --parts first or peers"),
        (
            ("--parts", "first", "-b", "8"),
            "--min-bytes is of no use without --parts ways or ordering or peers",
        ),
        (("--ways", "sendd"), "did you mean 'send'?"),
        (("--orders", "send-sent"), "did you mean 'send-send'?"),
        (("--peers", "0"), "--peers 0 is no peer of rank 0 among 2 ranks"),
        (("--peers", "7"), "--peers 7 is no peer of rank 0 among 2 ranks"),
        (("--peers", "one"), "is not a rank"),
        (("--deadline", "1ms"), "--deadline 1ms is out of range: take 200ms to 60s"),
        (("--deadline", "soon"), "--deadline"),
        (("--nproc-per-node", "1"), "a message takes two ranks"),
        (("--sizes", "8", "-b", "8"), "leave out -b, -e, -f and -i"),
        (("-b", "32M"), "is above -e/--max-bytes"),
        (("-f", "2", "-i", "8"), "contradict each other"),
        (("--sizes", "1T"), "does not fit into the"),
        (("--iters", "0"), "out of range"),
        (("--epochs", "0"), "out of range"),
        (("--backends", "glou"), "did you mean 'gloo'?"),
        (("--label", ""), "--label is empty"),
    ],
)
def test_bad_requests(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["p2p", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_a_refusal_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["p2p", "--ways", "x", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["ok"]) == ("p2p", False)


def test_compare_refuses_such_a_run_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from p2p_fixtures import make_p2p, written

    one, other = (written(tmp_path / name, make_p2p()) for name in ("a", "b"))
    assert run_command(["compare", str(one), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is of ncclbench p2p and has no rows to compare" in line
