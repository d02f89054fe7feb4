"""Naming who ended a run: from what is known of every rank to one line."""

from __future__ import annotations

from dataclasses import replace

from ncclbench.plan.build import Selection, build_plan
from ncclbench.plan.model import Arm
from ncclbench.supervise.blame import Failure, RankState, hung, left_without_a_word, root_cause, where
from ncclbench.worker.board import NOWHERE

STATE = RankState(0, "node-0", 10, True, "in all_reduce")


def states(*changes: dict[str, object]) -> list[RankState]:
    return [replace(STATE, rank=rank, **change) for rank, change in enumerate(changes)]  # type: ignore[arg-type]


def test_a_death_by_signal_comes_before_what_its_peers_say() -> None:
    failures = [
        Failure(0, "rank 0 on a raised RuntimeError: Connection closed by peer", False),
        Failure(2, "rank 2 on a was killed by SIGKILL", True),
        Failure(1, "rank 1 on a raised RuntimeError: Connection reset by peer", False),
    ]
    assert root_cause(failures).rank == 2


def test_an_error_of_its_own_comes_before_errors_about_peers() -> None:
    failures = [
        Failure(0, "rank 0 on a raised RuntimeError: Connection closed by peer", False),
        Failure(3, "rank 3 on b raised OutOfMemoryError: CUDA out of memory", False),
    ]
    assert root_cause(failures).rank == 3


def test_a_rank_that_does_not_react_is_named_even_if_others_are_behind() -> None:
    failure = hung(states({}, {"steps": 9}, {"answers": False}), 3, 60.0)
    assert failure.rank == 2
    assert "rank 2 on node-0 does not react" in failure.text
    assert "60 s" in failure.text


def test_the_rank_that_is_behind_is_named() -> None:
    failure = hung(states({}, {"steps": 9}, {}), 3, 60.0)
    assert failure.rank == 1
    assert "has not come to the operation" in failure.text


def test_several_behind_are_counted() -> None:
    assert "rank 1 on node-0 (and 1 more)" in hung(states({}, {"steps": 9}, {"steps": 8}), 3, 60.0).text


def test_a_rank_whose_supervisor_is_gone_is_named_first() -> None:
    failure = hung(states({}, {"answers": False}), 3, 60.0)
    assert failure.rank == 2
    assert "is gone with its supervisor" in failure.text


def test_nobody_is_named_where_nobody_stands_out() -> None:
    text = hung(states({}, {}), 2, 60.0).text
    assert "all 2 ranks" in text
    assert "none stands out" in text


def test_a_place_is_told_in_words() -> None:
    plan = build_plan(Selection(sizes=(65536,)), [Arm("gloo", "gloo")], nranks=2, local_ranks=2, device="cpu")
    assert where(plan, (0, 0, 1)) == "in all_reduce float32 sum 64K isolated on gloo, epoch 2 of 3"
    assert where(plan, (NOWHERE, 0, 0)) == "between cases on gloo, epoch 1 of 3"
    assert where(plan, (NOWHERE, NOWHERE, NOWHERE)) == "while starting"
    assert where(None, (NOWHERE, NOWHERE, NOWHERE)) == "while starting"


def test_those_who_have_arrived_are_told() -> None:
    states = [RankState(rank, "a", 9, True, "in all_reduce") for rank in (0, 1, 3)]
    late = RankState(2, "b", 8, True, "in all_reduce")
    assert "rank 2 on b has not come" in hung([*states, late], 4, 60.0).text
    assert "(arrived: ranks 0-1,3)" in hung([*states, late], 4, 60.0).text
    stopped = RankState(2, "b", 9, False, "in all_reduce")
    assert "(arrived: ranks 0-1,3)" in hung([*states, stopped], 4, 60.0).text


def test_who_is_gone_without_a_word_is_named_with_the_host_that_was_known() -> None:
    cause = Failure(0, "rank 0 on a raised RuntimeError: Connection closed by peer", False)
    failure = left_without_a_word([2, 3], "b", cause)
    assert failure.text.startswith(
        "rank 2 on b (and 1 more) is gone with its supervisor without a word; rank 0"
    )
    assert (failure.rank, failure.sure) == (2, True)
    assert "rank 2 on b never came" in hung(states({}, {}), 3, 60.0, lambda rank: "b").text
