"""Hangs that spread over groups: the cause comes first, however many wait behind it."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import pytest
from flight_making import dump, evidence, operation, operations

from ncclbench.flight.judge import judge
from ncclbench.flight.model import Dump, Operation


class Made:
    """Ranks that issue operations of many groups, each group with its members in every dump."""

    def __init__(self, nranks: int, groups: dict[str, tuple[int, ...]]) -> None:
        self.groups = groups
        self.held: list[list[Operation]] = [[] for _ in range(nranks)]
        self.last: list[dict[str, int]] = [{} for _ in range(nranks)]
        self.time = 0

    def issue(self, rank: int, group: str, **changes: Any) -> None:
        self.time += 1
        number = self.last[rank][group] = self.last[rank].get(group, 0) + 1
        known = {"group": group, "record": len(self.held[rank]), "created_ns": self.time * 1000}
        self.held[rank].append(operation(number, **known | changes))

    def all_issue(self, group: str) -> None:
        for rank in self.groups[group]:
            self.issue(rank, group)

    def wait(self, rank: int, group: str) -> None:
        self.issue(rank, group, is_retired=False)

    def dumps(self) -> list[Dump]:
        return [
            dump(rank, held, members={name: of for name, of in self.groups.items() if rank in of})
            for rank, held in enumerate(self.held)
        ]


def test_hundreds_of_groups_wait_behind_one_rank() -> None:
    """A chain of 300 pairs: the last rank stays away, and each pair waits for the next."""
    nranks = 301
    made = Made(
        nranks, {str(first): (first, first + 1) for first in range(300)} | {"0": tuple(range(nranks))}
    )
    made.groups = {"world": made.groups.pop("0")} | made.groups
    for group in made.groups:
        made.all_issue(group)
    order = list(range(300))
    random.Random(3).shuffle(order)
    for rank in order:
        made.wait(rank, str(rank))
    judgement = judge(evidence(*made.dumps()))
    first = judgement.findings[0]
    assert judgement.verdict == "stuck"
    assert (first.group, first.missing_ranks, first.causes) == ("299", (300,), 299)
    assert [finding.group for finding in judgement.findings] == [str(group) for group in range(299, -1, -1)]


def test_a_mismatch_in_one_group_explains_what_waits_elsewhere() -> None:
    made = Made(8, {"world": tuple(range(8)), "tp": (4, 5, 6, 7)})
    made.all_issue("world")
    made.all_issue("tp")
    for rank in (4, 5, 7):
        made.wait(rank, "tp")
    made.issue(6, "tp", collective="barrier", is_retired=False)
    for rank in range(4):
        made.wait(rank, "world")
    judgement = judge(evidence(*made.dumps()))
    first, second = judgement.findings
    assert (judgement.verdict, first.group, first.mismatched_ranks, first.causes) == (
        "mismatch",
        "tp",
        (6,),
        1,
    )
    assert (second.group, second.missing_ranks) == ("world", (4, 5, 6, 7))


def test_groups_crossed_by_one_rank_blame_that_rank() -> None:
    made = Made(3, {"one": (0, 1, 2), "two": (0, 1, 2)})
    for rank in (0, 1):
        made.wait(rank, "one")
    made.wait(2, "two")
    judgement = judge(evidence(*made.dumps()))
    first, second = judgement.findings
    assert (first.group, first.missing_ranks, second.group) == ("one", (2,), "two")
    assert judgement.message.startswith(
        "groups crossed: 0, 1 issued all_reduce 1 of group one first, "
        "2 issued all_reduce 1 of group two first, and each waits for the other"
    )


def test_what_waits_behind_crossed_groups_comes_after_them() -> None:
    made = Made(6, {"world": tuple(range(6)), "one": (0, 1), "two": (0, 1)})
    made.wait(0, "one")
    made.wait(1, "two")
    for rank in range(2, 6):
        made.wait(rank, "world")
    judgement = judge(evidence(*made.dumps()))
    assert [finding.group for finding in judgement.findings][-1] == "world"
    assert "groups crossed" in judgement.message


def test_a_member_that_is_not_recorded_is_told_by_who_waits_nowhere() -> None:
    """Only rank 0 appears in the pair; the world waits for it and for rank 1."""
    alone = dump(0, [operation(1), *operations([1], group="1", waits=True)])
    others = [dump(rank, operations([1, 2], waits=True)) for rank in (2, 3)]
    judgement = judge(evidence(alone, dump(1, [operation(1)]), *others))
    first = judgement.findings[0]
    assert (first.group, first.missing_ranks, first.causes) == ("1", (1,), 1)


def test_frozen_suspect_behind_a_cascade() -> None:
    """Rank 3 left no dump; rank 2 waits for it in a pair, and the world for both."""
    made = Made(4, {"world": (0, 1, 2, 3), "pair": (2, 3)})
    made.all_issue("world")
    made.wait(2, "pair")
    for rank in (0, 1):
        made.wait(rank, "world")
    judgement = judge(evidence(*made.dumps()[:3], nranks=4))
    first = judgement.findings[0]
    assert (judgement.verdict, first.group, first.unknown_ranks) == ("stuck", "pair", (3,))


@pytest.mark.full
def test_two_thousand_full_rings_are_judged_in_time() -> None:
    """In 33 groups; one rank stays away from the last operation of one. Equal operations are one object."""
    nranks, half, size, away = 2000, 1000, 64, 777
    world = range(nranks)
    of_world = [operation(number, group="0", record=2 * number) for number in range(half)]
    dumps = []
    for first in range(0, nranks, size):
        members = world[first : first + size]
        own = [
            operation(number, group=str(first), record=2 * number + 1, is_retired=number < half - 1)
            for number in range(half)
        ]
        held = [one for both in zip(of_world, own, strict=True) for one in both]
        for rank in members:
            mine = held[:-1] if rank == away else held
            dumps.append(dump(rank, mine, members={"0": world, str(first): members}))
    tracemalloc.start()
    before = time.process_time()
    judgement = judge(evidence(*dumps))
    seconds, (_, peak) = time.process_time() - before, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 40
    assert peak < 500e6
    first_finding = judgement.findings[0]
    assert (first_finding.missing_ranks, first_finding.group) == ((away,), str(away // size * size))


def test_a_mesh_of_many_groups_is_judged_in_time() -> None:
    """1,024 ranks in rows and columns of 32; one stays away, and all others wait in one of their groups."""
    side = 32
    rows = {f"row{n}": tuple(range(n * side, n * side + side)) for n in range(side)}
    columns = {f"column{n}": tuple(range(n, side * side, side)) for n in range(side)}
    made = Made(side * side, rows | columns)
    for group in made.groups:
        made.all_issue(group)
    for rank in range(1, side * side):
        row, column = divmod(rank, side)
        # The row of rank 0 waits for it; the others have passed their rows, and wait for ranks of that row.
        made.wait(rank, f"row{row}" if row == 0 else f"column{column}")
    before = time.process_time()
    judgement = judge(evidence(*made.dumps()))
    assert time.process_time() - before < 5
    first = judgement.findings[0]
    assert (first.group, first.missing_ranks, first.causes) == ("row0", (0,), side - 1)
    assert len(judgement.findings) == side + 1
