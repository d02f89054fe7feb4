"""The suspects command on this machine: a rank slowed on purpose is named, and whoever dies or hangs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from searching import NRANKS, long_search, search, under_launcher
from sweeping import wait_until

from ncclbench.store.probes import PairTest, RankTest, SubsetTest, WaitTest
from ncclbench.store.reader import load_run

QUICK = ("--quick", "--nproc-per-node", str(NRANKS))
# Far beyond what two busy cores mostly do to the others.
SLOW = ("--slow-rank", "1:5")
# Mostly: what else runs here may make the others as slow.
may_be_disturbed = pytest.mark.flaky(reruns=2)


@may_be_disturbed
def test_a_rank_that_computes_slowly_is_named(tmp_path: Path) -> None:
    done = search("suspects", *QUICK, *SLOW, "--json", "--out", tmp_path / "run")
    assert done.code == 1, done.err
    answer = done.document
    assert (answer["command"], answer["ok"]) == ("suspects", False)
    assert answer["verdict"] in ("rank", "several")
    named = next(one for one in answer["suspects"] if one["ranks"] == [1])
    assert (named["kind"], named["direction"]) == ("rank", "both")
    assert named["ratio"] == pytest.approx(5, rel=0.6)
    assert named["ci_low"] < named["ratio"] < named["ci_high"]
    assert "computes" in named["evidence"]
    assert named["hosts"] == answer["drain_hosts"]
    assert len(answer["links"]) == 6
    run = load_run(tmp_path / "run")
    assert {type(test) for test in run.probes} == {PairTest, RankTest, WaitTest, SubsetTest}
    (loop,) = [test for test in run.probes if isinstance(test, WaitTest) and test.rank == 1]
    other = next(test for test in run.probes if isinstance(test, WaitTest) and test.rank == 0)
    assert sum(loop.waits_us) < sum(other.waits_us), "whoever comes last waits least"


@pytest.mark.full
@may_be_disturbed
def test_exit_zero_and_the_names_to_drain(tmp_path: Path) -> None:
    options = (*QUICK, *SLOW, "--drain-hosts", "--exit-zero")
    done = search("suspects", *options, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    (host,) = load_run(tmp_path / "run").meta["environment"]["hosts"]
    assert done.out == f"{host['name']}\n"
    assert "rank 1" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nproc-per-node", "1"), "a search compares ranks"),
        (("--nproc-per-node", "2", "--slow-rank", "2:4"), "--slow-rank names rank 2 of 2"),
        (("--slow-rank", "half"), "write it like 2:1.9"),
        (("--backends", "gloo,gloo"), "a search takes one"),
        (("--unclear", "maybe"), "known: pass, fail"),
        (("--passes", "0"), "--passes 0 is out of range"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: tuple[str, ...], words: str) -> None:
    done = search("suspects", *options, "--json")
    assert done.code == 2
    assert words in done.document["message"]
    assert "Traceback" not in done.err


@pytest.mark.full
def test_interrupted_it_says_what_was_known_until_then(tmp_path: Path) -> None:
    with long_search("suspects", tmp_path / "run") as running:
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(2.0) == []
    assert done.code == 130
    assert "; until then: " in done.out
    run = load_run(tmp_path / "run")
    assert run.meta["status"] == "interrupted"
    assert {type(test) for test in run.probes} == {PairTest, RankTest}


def test_a_killed_rank_is_named_with_its_stage(tmp_path: Path) -> None:
    with long_search("suspects", tmp_path / "run") as running:
        running.workers(NRANKS)[1].kill()
        done = running.wait()
    assert done.code == 3
    last = done.err.strip().splitlines()[-1]
    assert "rank 1 on " in last
    assert "SIGKILL" in last
    assert "in the pair tests, pass " in last or "in the compute probe, pass " in last
    assert load_run(tmp_path / "run").meta["status"] == "failed"


@pytest.mark.full
def test_a_stopped_rank_is_named_with_its_stage(tmp_path: Path) -> None:
    with long_search("suspects", tmp_path / "run") as running:
        running.workers(NRANKS)[0].suspend()
        done = running.wait()
    assert done.code == 3
    last = done.err.strip().splitlines()[-1]
    assert "rank 0 on " in last
    assert "does not react" in last
    assert "in the pair tests, pass " in last or "in the compute probe, pass " in last
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "rank 0" in meta["message"]


@pytest.mark.full
@may_be_disturbed
def test_under_a_launcher_all_end_with_the_answers_code(tmp_path: Path) -> None:
    options = ("--quick", "--slow-rank", "1:5", "--json", "--out", tmp_path / "run")
    one, other = under_launcher(2, "suspects", *options)
    assert (one.code, other.code) == (1, 1), one.err + other.err
    assert other.out == ""
    assert [1] in [suspect["ranks"] for suspect in one.document["suspects"]]


@pytest.mark.full
def test_a_run_in_use_is_refused(tmp_path: Path) -> None:
    with long_search("suspects", tmp_path / "run") as running:
        done = search("suspects", "--nproc-per-node", "2", "--out", tmp_path / "run")
        assert done.code == 2
        assert "holds a run" in done.err or "in use" in done.err
        running.signal(signal.SIGTERM)
        assert running.wait().code == 143
        wait_until(lambda: running.left_behind(0.0) == [], "the end of the workers")
