"""The matrix command on this machine: its answers, its refusals, and what it keeps when it is hurt."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from searching import NRANKS, long_search, search, under_launcher
from sweeping import Outcome

from ncclbench.attribution.stages import FEWEST_PASSES
from ncclbench.cli.searching import QUICK_PASSES
from ncclbench.store.probes import PairTest
from ncclbench.store.reader import load_run

QUICK = ("--quick", "--nproc-per-node", str(NRANKS))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return search("matrix", *QUICK, "--json", "--out", tmp_path_factory.mktemp("matrix") / "run")


def test_every_ordered_pair_has_a_row_with_the_keys_of_the_contract(measured: Outcome) -> None:
    assert measured.code == 0, measured.err
    answer = measured.document
    assert (answer["command"], answer["ok"], answer["level"]) == ("matrix", True, "rank")
    assert answer["environment"]["ranks"][2]["rank"] == 2
    assert sorted((link["src"], link["dst"]) for link in answer["links"]) == [
        (src, dst) for src in range(NRANKS) for dst in range(NRANKS) if src != dst
    ]
    for link in answer["links"]:
        assert link["class"] == "same host"
        assert link["latency_us"] > 0
        assert 0 < link["bandwidth_GBs"] < 1000
        assert link["ratio_to_class_median"] > 0
        assert isinstance(link["odd"], bool)
    assert answer["odd"] == [link for link in answer["links"] if link["odd"]]
    ratios = sorted(link["ratio_to_class_median"] for link in answer["links"])
    assert (ratios[2] + ratios[3]) / 2 == pytest.approx(1, rel=0.2)


def test_every_test_is_a_line_of_the_run_and_the_report_is_there(measured: Outcome) -> None:
    answer = measured.document
    run = load_run(Path(answer["run"]))
    assert (run.meta["kind"], run.meta["status"]) == ("matrix", "complete")
    assert len(run.probes) == 6 * 3
    assert all(isinstance(test, PairTest) and not test.wrong for test in run.probes)
    assert Path(answer["report"]).stat().st_size > 10_000


def test_the_table_shows_the_grid_and_the_class(tmp_path: Path) -> None:
    done = search("matrix", *QUICK, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("# bandwidth in ")
    assert [line.split()[0] for line in lines[2:5]] == ["0", "1", "2"]
    assert any(line.split()[:3] == ["same", "host", "6"] for line in lines)
    assert lines[-2] == f"report: {tmp_path / 'run' / 'report.html'}"
    assert lines[-1].startswith("6 links, ")


def test_drain_hosts_prints_names_alone(tmp_path: Path) -> None:
    done = search("matrix", *QUICK, "--drain-hosts", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    names = {host["name"] for host in load_run(tmp_path / "run").meta["environment"]["hosts"]}
    assert set(done.out.splitlines()) <= names
    assert "6 links" in done.err


@pytest.mark.full
def test_a_budget_of_time_and_a_pair_alone(tmp_path: Path) -> None:
    options = ("--quick", "--nproc-per-node", "4", "--at-once", "none", "--time-budget", "2s")
    done = search("matrix", *options, "--json", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    answer = done.document
    assert 0 < len(answer["links"]) < 12
    assert answer["not_looked_at"].endswith(f"; {6 - len(answer['links']) // 2} of 6 pairs, chosen at random")


# --- planning


def test_250_hosts_in_15_minutes() -> None:
    options = ("--nnodes", "250", "--nproc-per-node", "8", "--level", "host", "--time-budget", "15m")
    done = search("matrix", "--plan-only", *options, "--json")
    assert done.code == 0, done.err
    plan = done.document["plan"]
    assert (plan["nranks"], plan["hosts"], plan["pairs_in_all"]) == (2000, 250, 31125)
    assert plan["seconds"] <= 900
    assert plan["pairs"] == 31125 or "chosen at random" in plan["not_looked_at"]


def test_a_plan_says_what_it_leaves_out() -> None:
    done = search("matrix", "--plan-only", "--nnodes", "64", "--nproc-per-node", "1", "--time-budget", "30s")
    assert done.code == 0
    assert "of 2,016 pairs of ranks in " in done.out
    assert "; not looked at: " in done.out
    assert done.out.count("\n") == 1


@pytest.mark.parametrize("limit", [("--time-budget", "1ms"), ("--time-budget", "15m"), ()])
def test_thousands_of_hosts_are_planned_at_once(limit: tuple[str, ...]) -> None:
    options = ("--plan-only", "--nnodes", "16384", "--nproc-per-node", "8", "--level", "host")
    began = time.perf_counter()
    done = search("matrix", *options, *limit, "--json")
    # The bar is 2 s; the rest is for starting Python on a busy machine.
    assert time.perf_counter() - began < 10
    assert done.code == 0, done.err
    assert done.document["plan"]["pairs_in_all"] == 16384 * 16383 // 2


def test_a_budget_that_cannot_be_met_is_said() -> None:
    options = ("--plan-only", "--nproc-per-node", "4", "--time-budget")
    done = search("matrix", *options, "1ms")
    assert done.code == 0
    assert ", more than the 1 ms asked for" in done.out
    assert "more than the 5 us asked for" in search("matrix", *options, "5us").out
    assert "more than" not in search("matrix", *options, "1h").out
    assert "more than" not in search("matrix", *options[:-1]).out
    for budget, within in (("1ms", False), ("1h", True)):
        assert search("matrix", *options, budget, "--json").document["plan"]["within_budget"] is within


def test_a_quick_run_records_the_passes_that_it_makes(measured: Outcome) -> None:
    run = load_run(Path(measured.document["run"]))
    assert run.meta["asked"]["passes"] == len({test.turn for test in run.probes}) == 3


def test_passes_of_a_quick_run_are_the_fewest() -> None:
    assert QUICK_PASSES == FEWEST_PASSES


# --- refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nproc-per-node", "1"), "a pair takes two ranks"),
        (("--plan-only", "--nproc-per-node", "1"), "a pair takes two ranks"),
        (("--backends", "gloo,gloo"), "--backends names 2: a search takes one"),
        (("--backends", "glo"), "did you mean 'gloo'"),
        (("--nnodes", "2"), "--nnodes is for --plan-only"),
        (("--passes", "2"), "--passes 2 is out of range"),
        (("--quick", "--passes", "50"), "--quick makes 3 passes, --passes asks for 50: leave one out"),
        (("--plan-only", "--quick", "--passes", "50"), "--quick makes 3 passes"),
        (("--plan-only", "--nproc-per-node", "2", "--out", "x"), "--out is for what a measurement finds"),
        (("--plan-only", "--nproc-per-node", "2", "--label", "x"), "--label is for what a measurement finds"),
        (
            ("--plan-only", "--nproc-per-node", "2", "--drain-hosts"),
            "--drain-hosts is for what a measurement",
        ),
        (
            ("--plan-only", "--nproc-per-node", "4", "--level", "host"),
            "--level host takes two hosts, and all",
        ),
        (("--level", "switch"), "known: rank, host"),
        (("--at-once", "all"), "known: host, rank, none"),
        (("--time-budget", "soon"), "--time-budget"),
        (("--out", "/proc/nowhere"), "cannot write to /proc/nowhere"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: tuple[str, ...], words: str) -> None:
    done = search("matrix", *options, "--json")
    assert done.code == 2
    assert words in done.document["message"]
    assert [line for line in done.err.splitlines() if "Traceback" in line] == []
    assert words in search("matrix", *options).err.strip().splitlines()[-1]


def test_hosts_of_one_are_no_pair(tmp_path: Path) -> None:
    done = search("matrix", *QUICK, "--level", "host", "--out", tmp_path / "run")
    assert done.code == 2
    assert "--level host takes two hosts, and all ranks are on one" in done.err


def test_a_backend_that_needs_a_gpu_is_refused_in_one_line(tmp_path: Path) -> None:
    done = search("matrix", "--backends", "nccl2", "--nproc-per-node", "2", "--out", tmp_path / "run")
    if done.code == 0:
        pytest.skip("there are GPUs for two ranks")
    assert done.code == 2
    assert "nccl2" in done.err.strip().splitlines()[-1]
    assert "Traceback" not in done.err


# --- faults


@pytest.mark.full
def test_interrupted_it_keeps_and_shows_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_search("matrix", folder) as running:
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(2.0) == []
    assert done.code == 130
    assert "SIGINT" in done.err
    assert "6 links" in done.out
    assert (folder / "report.html").exists()
    run = load_run(folder)
    assert run.meta["status"] == "interrupted"
    assert len(run.probes) >= 6


@pytest.mark.full
def test_a_killed_rank_is_named_with_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with long_search("matrix", folder) as running:
        running.workers(NRANKS)[1].kill()
        done = running.wait()
        assert running.left_behind(2.0) == []
    assert done.code == 3
    last = done.err.strip().splitlines()[-1]
    assert "rank 1 on " in last
    assert "SIGKILL" in last
    assert "in the pair tests, pass " in last
    meta = json.loads((folder / "run.json").read_text())
    assert meta["status"] == "failed"
    assert "rank 1" in meta["message"]
    assert "6 links" in done.out, "what was measured is shown"


@pytest.mark.full
def test_a_stopped_rank_is_named_within_the_deadline(tmp_path: Path) -> None:
    with long_search("matrix", tmp_path / "run") as running:
        running.workers(NRANKS)[2].suspend()
        done = running.wait()
    assert done.code == 3
    last = done.err.strip().splitlines()[-1]
    assert "rank 2 on " in last
    assert "does not react" in last
    assert "in the pair tests, pass " in last


@pytest.mark.full
def test_under_a_launcher_rank_0_speaks_and_all_end_alike(tmp_path: Path) -> None:
    one, other = under_launcher(2, "matrix", "--quick", "--json", "--out", tmp_path / "run")
    assert (one.code, other.code) == (0, 0), one.err + other.err
    assert other.out == ""
    assert len(one.document["links"]) == 2
    assert load_run(tmp_path / "run").meta["attempts"][0]["launcher"] == "env"
