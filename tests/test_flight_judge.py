"""The judgement, on dumps made of numbers: each rule alone, and what recorders of other backends tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from flight_making import SECOND_NS, START_NS, dump, evidence, operation, operations

from ncclbench.flight.judge import judge
from ncclbench.flight.model import Dump, Finding, Frame, Judgement, Operation


def judged(*dumps: Dump, **options: Any) -> Judgement:
    return judge(evidence(*dumps, **options))


def only(judgement: Judgement) -> Finding:
    (finding,) = judgement.findings
    return finding


def numbers(last: int, first: int = 1) -> range:
    return range(first, last + 1)


def waiting(last: int, first: int = 1, **changes: Any) -> list[Operation]:
    return operations(numbers(last, first), waits=True, **changes)


def done(last: int, first: int = 1, **changes: Any) -> list[Operation]:
    return operations(numbers(last, first), **changes)


def test_a_missing_rank_is_named_with_its_host_and_those_who_wait() -> None:
    ranks = [dump(rank, waiting(17) if rank < 3 else done(16)) for rank in range(4)]
    judgement = judged(*ranks, hosts={3: "node-01", 0: "node-00"})
    finding = only(judgement)
    assert judgement.verdict == "stuck"
    assert (finding.missing_ranks, finding.arrived_ranks, finding.sequence) == ((3,), (0, 1, 2), 17)
    assert finding.hosts == ("node-01",)
    assert judgement.message.startswith(
        "rank 3 (node-01) never issued all_reduce 17 of group default_pg; 0-2 wait for it"
    )


def test_another_collective_of_one_rank_is_a_mismatch() -> None:
    ranks = [dump(rank, waiting(17)) for rank in (0, 1, 3)]
    odd = dump(2, [*done(16), operation(17, "broadcast", is_retired=False)])
    judgement = judged(*ranks, odd)
    assert judgement.verdict == "mismatch"
    assert only(judgement).mismatched_ranks == (2,)
    assert only(judgement).collective == "all_reduce"
    said = "rank 2 issued broadcast where 0, 1, 3 issued all_reduce (number 17 of group default_pg)"
    assert judgement.message == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"count": 5}, "rank 1 issued all_reduce of 5 elements where 0, 2 issued all_reduce of 4 elements"),
        ({"dtype": "Double"}, "rank 1 issued all_reduce of Double where 0, 2 issued all_reduce of Float"),
    ],
)
def test_size_and_dtype_must_agree(changes: dict[str, Any], said: str) -> None:
    odd = dump(1, [operation(1), operation(2, **changes), operation(3)])
    judgement = judged(dump(0, done(3)), odd, dump(2, done(3)))
    assert (judgement.verdict, only(judgement).mismatched_ranks) == ("mismatch", (1,))
    assert said in judgement.message


def test_of_two_that_differ_neither_is_called_wrong() -> None:
    judgement = judged(dump(0, waiting(3)), dump(1, [*done(2), operation(3, "barrier", is_retired=False)]))
    assert only(judgement).mismatched_ranks == (0, 1)
    assert "which is wrong cannot be told" in judgement.message


def test_shapes_of_equal_count_agree() -> None:
    one = replace(operation(1), input_sizes=((2, 2),), output_sizes=((2, 2),))
    assert judged(dump(0, [one]), dump(1, [operation(1)])).verdict == "healthy"


@pytest.mark.parametrize("collective", ["all_to_all", "all_to_all_single", "alltoall_base"])
def test_uneven_splits_agree_if_all_that_is_sent_is_received(collective: str) -> None:
    sizes = [((2,), (5,)), ((4,), (4,)), ((6,), (3,))]

    def of(rank: int, **changes: Any) -> Dump:
        sent, received = sizes[rank]
        made = operation(1, collective, input_sizes=(sent,), output_sizes=(received,), **changes)
        return dump(rank, [made])

    assert judged(*map(of, range(3))).verdict == "healthy"
    sizes[1] = ((4,), (9,))
    assert judged(*map(of, range(3))).verdict == "mismatch"


def test_lists_of_uneven_parts_agree_by_their_sum() -> None:
    parts = ((3,), (5,))
    gathered = [
        dump(rank, [operation(1, "all_gather", input_sizes=(parts[rank],), output_sizes=parts)])
        for rank in range(2)
    ]
    assert judged(*gathered).verdict == "healthy"


def test_the_root_of_a_gather_is_the_one_that_has_the_parts() -> None:
    def gather(rank: int, roots: list[int]) -> Dump:
        held = [
            operation(n, "gather", output_sizes=((4,),) * 3 if rank == root else (), output_dtypes=())
            for n, root in enumerate(roots, start=1)
        ]
        return dump(rank, held)

    right = [gather(rank, [0, 0, 0]) for rank in range(3)]
    assert judged(*right).verdict == "healthy"
    two = judged(right[0], gather(1, [0, 0, 1]), right[2])
    assert (two.verdict, only(two).mismatched_ranks, only(two).sequence) == ("mismatch", (1,), 3)
    none = judged(gather(0, [0, 0, 1]), *right[1:])
    assert (none.verdict, only(none).mismatched_ranks) == ("mismatch", (0,))
    unknown = judged(gather(0, [0]), gather(1, [1]), gather(2, [0]))
    assert only(unknown).mismatched_ranks == (0, 1)


def test_a_rank_without_a_dump_is_the_suspect_where_all_others_wait() -> None:
    judgement = judged(*(dump(rank, waiting(5)) for rank in range(3)), nranks=4)
    finding = only(judgement)
    assert judgement.verdict == "stuck"
    assert (finding.missing_ranks, finding.unknown_ranks) == ((), (3,))
    assert judgement.missing_dumps == (3,)
    assert "rank 3 left no dump and is the suspect" in judgement.message


def test_without_a_sign_of_a_hang_a_missing_dump_leaves_it_unclear() -> None:
    assert judged(*(dump(rank, done(5)) for rank in range(3)), nranks=4).verdict == "unclear"


def test_the_culprit_is_named_though_another_dump_is_missing() -> None:
    judgement = judged(dump(0, waiting(5)), dump(2, done(4)), nranks=3)
    assert (judgement.verdict, only(judgement).missing_ranks) == ("stuck", (2,))
    assert only(judgement).unknown_ranks == (1,)


def test_after_the_timeout_a_collective_that_one_never_issued_was_given_up() -> None:
    judgement = judged(dump(0, done(6)), dump(1, done(5)), dump(2, done(6)))
    assert (judgement.verdict, only(judgement).missing_ranks, only(judgement).sequence) == ("stuck", (1,), 6)
    assert "no longer wait" in judgement.message


def test_a_root_that_is_ahead_is_healthy_until_the_timeout_has_passed() -> None:
    ahead = [*done(5), operation(6, "broadcast"), operation(7, "broadcast")]
    assert judged(dump(0, ahead), dump(1, done(5)), dump(2, done(5))).verdict == "healthy"
    late = dump(1, done(5), taken_ns=START_NS + 20 * SECOND_NS)
    judgement = judged(dump(0, ahead), late, dump(2, ahead))
    assert (judgement.verdict, only(judgement).missing_ranks) == ("stuck", (1,))


def test_a_dump_from_before_the_others_came_there_blames_nobody() -> None:
    early = dump(1, done(5), taken_ns=START_NS + 5_500_000)
    assert judged(dump(0, done(9)), early, dump(2, done(9))).verdict == "healthy"


def test_what_all_have_issued_and_nobody_completed_depends_on_when_it_was_seen() -> None:
    ranks = [dump(rank, waiting(4)) for rank in range(3)]
    assert judged(*ranks).verdict == "unclear"
    soon, late = (START_NS + after for after in (5_000_000, 9 * SECOND_NS))
    assert judged(*(replace(one, taken_ns=soon) for one in ranks)).verdict == "healthy"
    assert judged(*(replace(one, taken_ns=late) for one in ranks)).verdict == "stuck"
    assert judged(*ranks[:2], dump(2, done(4))).verdict == "healthy"


def test_a_rank_that_is_still_on_its_way_is_not_blamed() -> None:
    """It was asked before the others: they have completed what it is still in."""
    assert judged(dump(0, waiting(9)), dump(1, waiting(6)), dump(2, waiting(9))).verdict == "unclear"


def test_wrapped_rings_are_joined_where_they_overlap() -> None:
    ranks = [dump(rank, waiting(120, 101), is_wrapped=True) for rank in (0, 1)]
    judgement = judged(*ranks, dump(2, done(119, 100), is_wrapped=True))
    assert (judgement.verdict, only(judgement).missing_ranks) == ("stuck", (2,))
    assert judgement.wrapped_ranks == (0, 1, 2)


def test_what_a_ring_no_longer_holds_is_unknown() -> None:
    members = {"1": (0, 1)}
    busy = dump(1, done(900, 881), is_wrapped=True, members=members)
    judgement = judged(dump(0, [*done(900, 881), *waiting(2, group="1")], members=members), busy)
    assert (judgement.verdict, only(judgement).unknown_ranks) == ("stuck", (1,))
    assert only(judgement).missing_ranks == ()


def test_two_groups_of_one_name_on_other_ranks_are_two() -> None:
    members = [{"5": (0, 1)}, {"5": (0, 1)}, {"5": (2, 3)}, {"5": (2, 3)}]
    ranks = [dump(rank, done(3 if rank < 2 else 9, group="5"), members=members[rank]) for rank in range(4)]
    assert judged(*ranks).verdict == "healthy"


def test_two_dumps_of_one_recorder_count_once_and_bring_their_frames() -> None:
    frame = Frame("train", "/home/me/train.py", 12)
    framed = [replace(one, frames=(frame,)) for one in waiting(3)]
    judgement = judged(dump(0, framed), dump(0, waiting(3)), dump(1, done(2)))
    assert only(judgement).where == "/home/me/train.py:12 train"
    assert only(judgement).arrived_ranks == (0,)


def test_an_operation_that_does_not_fit_long_ago_comes_after_what_hangs_now() -> None:
    old = [operation(2, count=8) if n == 2 else operation(n) for n in numbers(40)]
    judgement = judged(dump(0, waiting(41)), dump(1, old), dump(2, waiting(41)))
    assert judgement.verdict == "stuck"
    assert [finding.sequence for finding in judgement.findings] == [41, 2]


def nccl(sequence: int, collective: str = "all_reduce", **changes: Any) -> Operation:
    return operation(sequence, collective, **{"backend": "nccl", "state": "completed"} | changes)


def test_real_states_tell_what_was_given_up() -> None:
    gone = nccl(3, state="started")
    judgement = judged(*(dump(rank, [nccl(1), nccl(2), gone]) for rank in range(3)))
    assert (judgement.verdict, only(judgement).sequence) == ("stuck", 3)
    ahead = judged(dump(0, [nccl(1), nccl(2)]), dump(1, [nccl(1)]))
    assert ahead.verdict == "healthy"


def test_groups_of_two_backends_under_one_name_count_apart() -> None:
    ranks = [dump(rank, done(9)) for rank in range(2)]
    others = [dump(rank, [nccl(1), nccl(2)]) for rank in range(2)]
    assert judged(*ranks, *others).verdict == "healthy"


def test_parts_of_a_coalesced_operation_stand_as_the_last() -> None:
    parts = [nccl(1, state="scheduled", is_retired=False, op_id=n) for n in range(3)]
    ranks = [dump(rank, [*parts, nccl(1, "coalesced", op_id=4)]) for rank in range(2)]
    assert judged(*ranks).verdict == "healthy"


def pair(sequence: int, words: str, **changes: Any) -> Operation:
    return nccl(sequence, words, is_p2p=True, **changes)


WAITS = {"state": "started", "is_retired": False}


def test_a_receive_without_its_send_is_stuck() -> None:
    receiver = dump(1, [pair(1, "recv 1<-0"), pair(2, "recv 1<-0", **WAITS)])
    judgement = judged(
        dump(0, [pair(1, "send 0->2"), pair(2, "send 0->1")]), receiver, dump(2, [pair(1, "recv 2<-0")])
    )
    assert (judgement.verdict, only(judgement).missing_ranks) == ("stuck", (0,))
    assert only(judgement).arrived_ranks == (1,)


def test_a_send_and_its_receive_must_be_of_one_size() -> None:
    judgement = judged(dump(0, [pair(1, "send 0->1", count=8)]), dump(1, [pair(1, "recv 1<-0")]))
    assert (judgement.verdict, only(judgement).mismatched_ranks) == ("mismatch", (0, 1))


def test_two_that_both_send_first_wait_for_each_other() -> None:
    judgement = judged(*(dump(rank, [pair(1, f"send {rank}->{1 - rank}", **WAITS)]) for rank in range(2)))
    assert judgement.verdict == "stuck"
    assert len(judgement.findings) == 2
    assert "each waits for the other" in judgement.message


@pytest.mark.parametrize("dumps", [(), (dump(None, done(3)),)])
def test_nothing_that_can_be_joined_is_unclear(dumps: tuple[Dump, ...]) -> None:
    assert judge(evidence(*dumps)).verdict == "unclear"


def placed(lines: list[int], **changes: Any) -> list[Operation]:
    """Operations that look alike but for the line that issued them; the last one waits."""
    held = waiting(len(lines), **changes)
    frames = [(Frame("step", "/home/me/train.py", line),) for line in lines]
    return [replace(one, frames=of) for one, of in zip(held, frames, strict=True)]


def test_one_operation_too_many_is_found_by_its_place() -> None:
    usual = [replace(one, is_retired=True) for one in placed([7, 8] * 4)]
    extra = placed([7, 8, 7, 99, 8, 7, 8, 7, 8])
    judgement = judged(dump(0, usual), dump(1, extra), dump(2, usual))
    finding = only(judgement)
    assert (judgement.verdict, finding.missing_ranks, finding.mismatched_ranks) == ("stuck", (0, 2), (1,))
    assert finding.where == "/home/me/train.py:99 step"
    assert "all_reduce 4, at /home/me/train.py:99 step, is the one that the others do not have" in finding.why


def test_one_operation_left_out_is_found_by_its_place() -> None:
    usual = placed([7, 8, 9] * 3)
    short = [replace(one, is_retired=True) for one in placed([7, 8, 9, 7, 9, 7, 8, 9])]
    judgement = judged(dump(0, usual), dump(1, usual), dump(2, short))
    assert only(judgement).missing_ranks == (2,)
    assert "all_reduce 5, at /home/me/train.py:8 step, is the one that it left out" in judgement.message


def test_clocks_of_hosts_that_differ_hide_no_hang() -> None:
    """Rank 1's host is an hour ahead; each has waited nine seconds by its own clock."""
    hour = 3600 * SECOND_NS
    ahead = [replace(one, created_ns=one.created_ns + hour) for one in waiting(4)]
    late = START_NS + 9 * SECOND_NS
    ranks = [dump(0, waiting(4), taken_ns=late), dump(1, ahead, taken_ns=late + hour)]
    assert judged(*ranks).verdict == "stuck"


def test_a_device_that_has_not_begun_is_told() -> None:
    states = ("started", "scheduled", "started")
    ranks = [
        dump(rank, [nccl(1), nccl(2, state=state, is_retired=False)]) for rank, state in enumerate(states)
    ]
    assert "nor has 1 started it on the device" in judged(*ranks).message
