"""Acceptance: what is accepted, and what each thing that speaks against a host or leaves it open says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deciding import Line, altered, answered, lines_of, real_runs, step, stored
from drill_fixtures import make_drill, make_trial
from p2p_fixtures import make_cell, make_p2p
from report_fixtures import make_run
from searching_fixtures import make_search

from ncclbench.compare.decisions import Decision
from ncclbench.store.preset import StoredStep

# On a busy machine the commands that are looked at take their time.
pytestmark = pytest.mark.timeout(400)

HOSTS = tuple(f"node-{index:02d}" for index in range(4))
# What a machine without a peak in the tables can be held to.
SWEEP = step("sweep", "sweep --ops all_reduce --require all_reduce>=0.001GB/s")
SUSPECTS = step("suspects")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_runs(tmp_path_factory, "sweep", "suspects")


def cluster_run(folder: Path, **settings: Any) -> Path:
    """A sweep on four hosts."""
    usual: dict[str, Any] = {"ops": ("all_reduce",), "sizes": (4096, 1 << 20), "nranks": 8, "hosts": 4}
    return stored(folder / "sweep", make_run(**{**usual, "modes": ("back-to-back",), **settings}))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Four hosts that are all well."""
    cluster_run(tmp_path)
    stored(tmp_path / "suspects", make_search(hosts=4, ranks_per_host=2))
    return tmp_path


def acceptance(folder: Path, *steps: StoredStep) -> Decision:
    return answered(folder, "acceptance", *(steps or (SWEEP, SUSPECTS)))


def hosts(decision: Decision) -> dict[str, str]:
    """Verdict by host."""
    return {line.subject: line.verdict for line in lines_of(decision, "hosts")}


def told(decision: Decision, evidence: str, verdict: str) -> str:
    return " | ".join(line.sentence for line in lines_of(decision, evidence) if line.verdict == verdict)


def test_healthy_hosts_are_accepted_one_line_each(cluster: Path) -> None:
    decision = acceptance(cluster)
    assert (decision.answer, decision.ok, decision.wrong) == ("accept", True, False)
    assert decision.hosts == HOSTS
    assert [line.subject for line in decision.lines[:4]] == list(HOSTS)
    assert all(line.sentence.startswith("accepted: ") for line in decision.lines[:4])
    assert told(decision, "data", "pass") == "data right in 2 cases"
    assert "meets all_reduce>=0.001GB/s" in told(decision, "speed", "pass")
    assert told(decision, "slow", "pass").startswith("nobody: spread is within noise")


def test_a_real_machine_is_judged_by_its_own_runs(real: Path) -> None:
    decision = acceptance(real, SWEEP, SUSPECTS)
    assert len(decision.hosts) == 1
    assert "data right in 4 cases" in told(decision, "data", "pass")
    assert told(decision, "speed", "pass")
    assert lines_of(decision, "slow")
    assert decision.ok is not False or told(decision, "slow", "fail")


def test_wrong_data_are_of_the_hosts_that_saw_them(cluster: Path) -> None:
    def spoil(each: Line) -> Line:
        return {**each, "wrong": 3} if each["type"] == "samples" and each["rank"] == 5 else each

    altered(cluster / "sweep", spoil)
    decision = acceptance(cluster)
    assert decision.wrong
    assert decision.ok is False
    assert decision.answer.startswith("do not accept node-02, because WRONG DATA on rank 5 in 2 cases")
    assert hosts(decision) == {**dict.fromkeys(HOSTS, "unclear"), "node-02": "fail"}
    assert "took part in collectives whose data were wrong" in decision.lines[1].sentence
    assert decision.lines[0].subject == "node-02"
    assert decision.lines[0].sentence.startswith("not accepted, because WRONG DATA")


def test_the_slow_host_is_named_and_the_others_are_not_accepted_with_it(
    cluster: Path, tmp_path: Path
) -> None:
    shutil.rmtree(cluster / "suspects")
    stored(cluster / "suspects", make_search(hosts=4, ranks_per_host=2, slow_hosts={1: 4.0}))
    strict = step("sweep", "sweep --require=all_reduce>=400GB/s", status="bad", exit_code=1)
    decision = acceptance(cluster, strict, SUSPECTS)
    assert decision.answer.startswith("do not accept node-01, because host node-01 is 4")
    assert "misses all_reduce>=400GB/s" in decision.answer
    assert hosts(decision) == {**dict.fromkeys(HOSTS, "unclear"), "node-01": "fail"}
    (healthy,) = [line for line in decision.lines if line.subject == "node-03"]
    assert "with node-01 in it" in healthy.sentence
    # Without anybody to blame, all of them missed it.
    alone = acceptance(cluster, strict)
    assert set(hosts(alone).values()) == {"fail"}
    assert alone.answer.startswith("do not accept, because misses")


def test_link_between_two_hosts_is_slow_and_neither_end_is_blamed(cluster: Path) -> None:
    shutil.rmtree(cluster / "suspects")
    pairs = {(0, 2): 5.0, (2, 0): 5.0}
    stored(cluster / "suspects", make_search(hosts=4, slow_pairs=pairs))
    shutil.rmtree(cluster / "sweep")
    cluster_run(cluster, nranks=4)
    decision = acceptance(cluster)
    assert decision.answer.startswith("do not accept, because pair 0-2 (node-00, node-02)")
    assert hosts(decision) == {
        "node-00": "unclear",
        "node-02": "unclear",
        "node-01": "pass",
        "node-03": "pass",
    }
    assert "one end of it: pair 0-2" in decision.lines[0].sentence


def test_so_little_measured_that_nobody_could_be_named_is_unclear(cluster: Path) -> None:
    shutil.rmtree(cluster / "suspects")
    stored(cluster / "suspects", make_search(hosts=4, ranks_per_host=2, passes=2))
    decision = acceptance(cluster)
    assert decision.ok is None
    assert decision.answer.startswith("unclear, because too little was measured: nobody stands out, but 2")


def test_wrong_data_between_a_pair(cluster: Path) -> None:
    def spoil(each: Line) -> Line:
        hurt = each["type"] == "pair" and {each["src"], each["dst"]} == {1, 6}
        return {**each, "wrong": True} if hurt else each

    altered(cluster / "suspects", spoil)
    decision = acceptance(cluster)
    assert decision.wrong
    assert "WRONG DATA between 2 pairs, of ranks 1, 6" in decision.answer


def test_failed_cases_and_those_that_are_not_to_be_had(cluster: Path) -> None:
    key = next(each["case"] for each in map(json.loads, (cluster / "sweep/samples.jsonl").open()))

    def add(status: str, reason: str) -> None:
        with (cluster / "sweep" / "samples.jsonl").open("a") as file:
            fields = {"type": "status", "case": key, "arm": "gloo", "status": status, "reason": reason}
            file.write(f"{json.dumps(fields)}\n")

    add("failed", "rank 6 on node-03 died (killed by SIGKILL)")
    decision = acceptance(cluster)
    assert decision.answer.startswith("do not accept node-03, because 1 case failed: rank 6 on node-03 died")
    assert hosts(decision)["node-00"] == "unclear"
    altered(cluster / "sweep", lambda each: None if each.get("case") == key else each)
    assert "1 case not reached" in acceptance(cluster).answer
    add("unavailable", "no such backend")
    decision = acceptance(cluster)
    assert (decision.ok, "1 case unavailable: gloo: no such backend" in decision.answer) == (None, True)


def test_unchecked_data_and_no_requirement_do_not_pass(cluster: Path) -> None:
    decision = acceptance(cluster, step("sweep", "sweep --ops all_reduce"), SUSPECTS)
    (line,) = lines_of(decision, "speed")
    assert (decision.ok, line.sentence) == (None, "no speed was required")
    floor = "ncclbench sweep --ops all_reduce --require 'all_reduce@1M>=10GB/s'"
    assert line.settle == f"{floor}  # with the bandwidth that you expect for 10GB/s"

    def on_gpu(each: Line) -> Line:
        return {**each, "device_us": each["total_us"]} if each["type"] == "samples" else each

    altered(cluster / "sweep", on_gpu)
    (line,) = lines_of(acceptance(cluster, step("sweep", "sweep --ops all_reduce"), SUSPECTS), "speed")
    assert line.settle == "ncclbench sweep --ops all_reduce --require 80%peak"
    altered(cluster / "sweep", lambda each: {**each, "wrong": None} if each["type"] == "samples" else each)
    decision = acceptance(cluster)
    assert decision.answer == "unclear, because data right in 0 cases, not checked in 2"


def test_requirement_that_cannot_be_held_is_unclear(cluster: Path) -> None:
    decision = acceptance(cluster, step("sweep", "sweep --require 80%peak"), SUSPECTS)
    assert decision.answer.startswith("unclear, because cannot be held against 80%peak: ")
    # One that was refused when it was given is nobody's fault here.
    refused = step("sweep", "sweep --require fast", status="wrong request", exit_code=2, message="fast: no")
    assert "sweep was refused: fast: no" in acceptance(cluster, refused, SUSPECTS).answer


def test_health_throttling_and_preflight(cluster: Path) -> None:
    problem = "rank 2 (node-01, GPU 0): 3 uncorrected ECC errors"

    def sick(meta: dict[str, Any]) -> None:
        meta["health"] = [{"attempt": 0, "problems": [problem]}]
        meta["preflight"] = [
            {
                "severity": "warning",
                "ranks": [6],
                "what": "NCCL_DEBUG=INFO writes",
                "mend": "unset NCCL_DEBUG",
            }
        ]

    altered(cluster / "sweep", meta=sick)
    decision = acceptance(cluster)
    assert decision.answer == f"do not accept node-01, because {problem}"
    assert hosts(decision) == {"node-01": "fail", "node-03": "unclear", "node-00": "pass", "node-02": "pass"}
    (warning,) = [line for line in lines_of(decision, "health") if line.verdict == "unclear"]
    assert (warning.sentence, warning.settle) == ("warning: NCCL_DEBUG=INFO writes", "unset NCCL_DEBUG")


def test_throttled_gpus_are_unclear(cluster: Path) -> None:
    def hot(each: Line) -> Line:
        if each["type"] == "samples" and each["rank"] == 3:
            health = {
                "over_us": 1e6,
                "throttled_us": {"software thermal": 9e5},
                "reasons": [],
                "read_us": 1.0,
            }
            return {**each, "health": health}
        return each

    altered(cluster / "sweep", hot)
    decision = acceptance(cluster)
    assert decision.answer == "unclear, because rank 3 held back (software thermal) in 2 cases"
    assert hosts(decision)["node-01"] == "unclear"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed", "reason": "it was ended after its deadline of 9 s"}, "matrix failed: it was"),
        ({"status": "not run", "exit_code": None}, "matrix was not run"),
        ({"status": "not run", "reason": "takes two ranks, there is one"}, "matrix was not run: takes two"),
        ({"status": "interrupted", "exit_code": 130}, "matrix interrupted"),
        ({}, "matrix cannot be read: its folder is not there"),
    ],
)
def test_a_step_that_was_not_run_or_failed_never_passes(
    cluster: Path, changes: dict[str, Any], said: str
) -> None:
    decision = acceptance(cluster, SWEEP, SUSPECTS, step("matrix", "matrix", **{"message": "", **changes}))
    assert decision.ok is None
    assert said in decision.answer
    assert set(hosts(decision).values()) == {"unclear"}


@pytest.mark.parametrize("torn", ['{"schema": 1, "plan"', "", "[]", '{"schema": 99}'])
def test_half_written_runs_are_unclear(cluster: Path, torn: str) -> None:
    (cluster / "suspects" / "run.json").write_text(torn)
    decision = acceptance(cluster)
    assert decision.ok is None
    assert "suspects cannot be read: " in decision.answer


def test_bad_answer_that_nobody_explains_does_not_pass(cluster: Path) -> None:
    preflight = step("preflight", "env", status="bad", exit_code=1, message="2 errors: versions differ")
    decision = acceptance(cluster, preflight, SWEEP, SUSPECTS)
    assert decision.answer == "unclear, because preflight ended with a bad answer: 2 errors: versions differ"
    # The same command keeps no run: that it is done is enough.
    assert acceptance(cluster, step("preflight", "env"), SWEEP, SUSPECTS).answer == "accept"


def test_nothing_measured_is_not_accepted(cluster: Path) -> None:
    decision = acceptance(cluster, step("preflight", "env"))
    assert decision.ok is None
    assert decision.answer == (
        "unclear, because no collective was measured; nobody looked for slow ranks and links"
    )


def test_drills_and_messages_that_go_wrong(cluster: Path) -> None:
    stored(cluster / "p2p", make_p2p(results=[make_cell("batched", 8, "completed"), make_cell()]))
    drill = make_drill(trials=2, strategies=("rebuild",), contract=False)
    stored(cluster / "drill", drill)
    steps = (SWEEP, SUSPECTS, step("p2p"), step("drill"))
    good = acceptance(cluster, *steps)
    assert "2 of 2 as they should after kill, rebuild" in told(good, "faults", "pass")
    shutil.rmtree(cluster / "drill")
    drill.trials = [make_trial("rebuild", 0, recovered=False), make_trial("rebuild", 1, correct=False)]
    drill.trials[1] = msgspec.structs.replace(drill.trials[1], leftover_processes=1)
    stored(cluster / "drill", drill)

    def spoil(each: Line) -> Line:
        return {**each, "wrong": 1, "leftover_processes": 2} if each["type"] == "ordering" else each

    altered(cluster / "p2p", spoil)
    decision = acceptance(cluster, *steps)
    failing = told(decision, "faults", "fail")
    assert decision.wrong
    for said in ("1 of 2 did not recover from kill", "WRONG DATA or none after kill", "WRONG DATA in p2p: 2"):
        assert said in failing
    assert "p2p left 4 processes behind" in failing
    assert "1 process left behind after kill, rebuild" in failing
