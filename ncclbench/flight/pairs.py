"""Point-to-point operations: each send with the receive that belongs to it.

Ranks number them each for itself, so they are joined by order: the n-th send of a rank to another belongs to
the n-th receive there. That needs rings that have not wrapped; where one has, only a peer that shows no
operation of the pair at all can be told.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ncclbench.flight.agreement import elements
from ncclbench.flight.cases import Case
from ncclbench.flight.join import Group, is_done
from ncclbench.flight.model import Operation

# "send 0->1" and "recv 1<-0" on rank 1; ranks are those in the group, "?" any.
_PEERS = re.compile(r"(send|recv)\D*([0-9]{1,7})\s*(->|<-)\s*([0-9]{1,7})")

Pair = tuple[int, int]


def pair_of(collective: str) -> tuple[str, Pair] | None:
    """("send" or "recv", (source, destination)) in ranks of the group; None where the name does not tell."""
    match = _PEERS.fullmatch(collective)
    if match is None:
        return None
    first, second = int(match[2]), int(match[4])
    return match[1], (first, second) if match[3] == "->" else (second, first)


def pair_cases(group: Group) -> list[Case]:
    """Sends and receives that wait for a peer, or differ in size: the first of each pair of ranks."""
    sides: dict[str, dict[Pair, list[Operation]]] = {"send": defaultdict(list), "recv": defaultdict(list)}
    done: set[int] = set()
    for rank, operations in group.pairs.items():
        # Parts of a batch stay as they were issued; the entry that ends it has their number and their state.
        batches = {one.sequence: one for one in operations if one.collective == "coalesced"}
        for operation in operations:
            found = pair_of(operation.collective)
            if found is None:
                continue
            kind, (source, destination) = found
            if max(source, destination) >= len(group.members):
                continue
            pair = group.members[source], group.members[destination]
            if pair[0 if kind == "send" else 1] != rank:
                continue
            sides[kind][pair].append(operation)
            batch = batches.get(operation.sequence, operation)
            if is_done(operation) or is_done(batch):
                done.add(id(operation))
    cases = []
    for pair in sorted(sides["send"].keys() | sides["recv"].keys()):
        case = _judge_pair(group, pair, sides["send"].get(pair, []), sides["recv"].get(pair, []), done)
        if case is not None:
            cases.append(case)
    return cases


def _judge_pair(
    group: Group, pair: Pair, sends: list[Operation], receives: list[Operation], done: set[int]
) -> Case | None:
    source, destination = pair
    lanes = group.lanes
    both_whole = all(rank in lanes and lanes[rank].is_whole for rank in pair)
    if both_whole:
        for send, receive in zip(sends, receives, strict=False):
            if elements(send.input_sizes) != elements(receive.output_sizes):
                return _differ(group, pair, send, receive)
    # What is left over has no partner yet.
    extra = sends[len(receives) :] or receives[len(sends) :]
    if not both_whole:
        extra = sends if sends and not receives else receives if receives and not sends else []
    waiting = [one for one in extra if id(one) not in done]
    if not waiting:
        return None
    mine, peer = (source, destination) if len(sends) > len(receives) else (destination, source)
    has_dump = peer in lanes and (lanes[peer].is_whole or peer in group.pairs)
    return Case(
        "stuck",
        group,
        waiting[0].sequence,
        waiting[0],
        {mine: waiting[0]},
        missing=frozenset({peer} if has_dump and both_whole else ()),
        arrived=frozenset({mine}),
        unknown=frozenset(() if has_dump and both_whole else {peer}),
        waiting=frozenset({mine}),
    )


def _differ(group: Group, pair: Pair, send: Operation, receive: Operation) -> Case:
    return Case(
        "mismatch",
        group,
        send.sequence,
        send,
        {pair[0]: send, pair[1]: receive},
        arrived=frozenset(pair),
        mismatched=frozenset(pair),
        waiting=frozenset(rank for rank, one in zip(pair, (send, receive), strict=True) if not is_done(one)),
        differs="size",
    )
