"""Whatever dumps hold, there is an answer that fits what was read: evidence made at random."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from flight_making import START_NS, dump, evidence, operation

from ncclbench.flight.judge import judge
from ncclbench.flight.model import Dump, Evidence, Operation
from ncclbench.flight.trace import perfetto

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "_allgather_base",
    "odd",
)
PAIRS = ("send 0->1", "recv 1<-0", "send 1->0", "recv 0<-1", "recv 0<-?", "send 9->1", "coalesced", "send")


def some_operation(chance: random.Random, record: int) -> Operation:
    is_p2p = chance.random() < 0.2
    sizes = tuple((chance.randrange(4),) * chance.randrange(3) for _ in range(chance.randrange(3)))
    return replace(
        operation(record),
        group=chance.choice(("0", "1", "2", "x")),
        group_words=chance.choice(("default_pg", "undefined", "")),
        sequence=chance.choice((record, record + 1, 1, 0, -3, 10**15)) if chance.random() < 0.3 else record,
        backend=chance.choice(("gloo", "gloo", "gloo", "nccl", "nccl2")),
        collective=chance.choice(PAIRS if is_p2p else COLLECTIVES),
        is_p2p=is_p2p,
        input_sizes=sizes,
        output_sizes=sizes if chance.random() < 0.7 else (),
        output_dtypes=("Float",) * len(sizes),
        state=chance.choice(("scheduled", "started", "completed")),
        is_retired=chance.random() < 0.7,
        created_ns=START_NS + chance.randrange(10**10),
        completed_ns=chance.choice((None, START_NS + chance.randrange(10**10))),
        timeout_ms=chance.choice((None, 0, 1, 600_000)),
    )


def some_dump(chance: random.Random) -> Dump:
    held = [some_operation(chance, record) for record in range(chance.randrange(12))]
    names = chance.sample(("0", "1", "2", ""), chance.randrange(4))
    return dump(
        chance.choice((None, 0, 1, 2, 3, 4, 40) if chance.random() < 0.2 else (0, 1, 2, 3)),
        held,
        members={name: chance.sample(range(6), chance.randrange(1, 6)) for name in names},
        is_wrapped=chance.random() < 0.3,
        taken_ns=chance.choice((None, None, START_NS + chance.randrange(10**11))),
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_evidence_gets_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        made: Evidence = evidence(*(some_dump(chance) for _ in range(chance.randrange(7))))
        judgement = judge(made)
        ranks = {one.rank for one in made.dumps if one.rank is not None}
        assert judgement.message
        assert (judgement.verdict == "healthy") <= (not judgement.findings and not judgement.missing_dumps)
        for finding in judgement.findings:
            assert {*finding.missing_ranks, *finding.arrived_ranks, *finding.mismatched_ranks} <= ranks
            assert not set(finding.missing_ranks) & set(finding.arrived_ranks)
            assert finding.why
            json.dumps(finding.to_json())
        json.dumps(perfetto(made, judgement))


def test_the_order_of_dumps_does_not_matter() -> None:
    chance = random.Random(7)
    for _ in range(200):
        dumps = [replace(some_dump(chance), rank=rank) for rank in range(4)]
        first = judge(evidence(*dumps))
        chance.shuffle(dumps)
        again = judge(evidence(*dumps))
        assert (again.verdict, set(again.missing_dumps)) == (first.verdict, set(first.missing_dumps))
