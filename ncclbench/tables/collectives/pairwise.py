"""all_to_all (even, uneven, list form), point-to-point rings, and barrier."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

from ncclbench.tables.collectives.spec import (
    Binding,
    Call,
    Collective,
    Layout,
    Segment,
    bound,
    gather_factor,
    unit_factor,
)


def _all_to_all_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    count = nelements // nranks
    if count < 1:
        return "below one element per rank"
    return Layout(count=count, nelements=count * nranks, send=count * nranks, recv=count * nranks)


def uneven_split(count: int, nranks: int, seed: int, shift: int) -> int:
    """Elements that each rank sends to the rank ``shift`` places after it.

    The amount depends on the distance alone, so every rank sends and receives the same total and a
    rank's row needs no other rank's: uneven traffic whose plan costs one number per distance. Even
    splits scaled by 1/2 to 3/2, paired so that distances 2i and 2i+1 sum to twice the even split.
    """
    pair, second = divmod(shift, 2)
    if shift == nranks - 1 and not second:
        return count
    extra = random.Random(f"{seed}/{nranks}/{pair}").randint(-(count // 2), count // 2)
    return count - extra if second else count + extra


# Send and receive side of a case ask for the same; of thousands of ranks each takes milliseconds.
@lru_cache(maxsize=4)
def _splits_by_distance(count: int, nranks: int, seed: int) -> tuple[int, ...]:
    return tuple(uneven_split(count, nranks, seed, distance) for distance in range(nranks))


def _all_to_allv_totals(nelements: int, nranks: int) -> Layout | str:
    count = nelements // nranks
    if count < 2:
        return "below two elements per rank, so no uneven split"
    total = count * nranks
    return Layout(count, total, total, total)


def _all_to_allv_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    totals = _all_to_allv_totals(nelements, nranks)
    if isinstance(totals, str):
        return totals
    splits = _splits_by_distance(totals.count, nranks, seed)
    send = tuple(splits[(peer - rank) % nranks] for peer in range(nranks))
    recv = tuple(splits[(rank - peer) % nranks] for peer in range(nranks))
    return replace(totals, send_splits=send, recv_splits=recv)


def _both_neighbours_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    half = nelements // 2
    if half < 1:
        return "below one element for each of the two neighbours"
    return Layout(count=half, nelements=2 * half, send=2 * half, recv=2 * half)


def _ring_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    if nelements < 1:
        return "below one element per rank"
    return Layout(count=nelements, nelements=nelements, send=nelements, recv=nelements)


def _transposed(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    count = layout.count
    return [Segment(source * count, count, source, rank * count) for source in range(nranks)]


def _transposed_uneven(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    segments = []
    offsets = accumulate(layout.recv_splits, initial=0)
    by_distance = [layout.recv_splits[(rank - distance) % nranks] for distance in range(nranks)]
    # Sums over distances, twice round: those from any first one on are a difference of two.
    sums = list(accumulate(by_distance * 2, initial=0))
    for source, (offset, length) in enumerate(zip(offsets, layout.recv_splits, strict=False)):
        # Where this rank's part starts in the source's buffer: after what the source sends to the
        # ranks before this one, which by the distance rule is known without asking it.
        first = -source % nranks
        segments.append(Segment(offset, length, source, sums[first + rank] - sums[first]))
    return segments


def _from_previous(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.recv, (rank - 1) % nranks, 0)]


def _from_both_neighbours(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    half = layout.count
    return [
        Segment(0, half, (rank - 1) % nranks, 0),
        Segment(half, half, (rank + 1) % nranks, half),
    ]


def _bind_all_to_all(b: Binding) -> Call:
    output, source, group, async_op, run = b.recv, b.send, b.group, b.async_op, b.dist.all_to_all_single
    return bound(run, output, source, group=group, async_op=async_op)


def _bind_all_to_allv(b: Binding) -> Call:
    output, source, group, async_op, run = b.recv, b.send, b.group, b.async_op, b.dist.all_to_all_single
    into, out_of = list(b.layout.recv_splits), list(b.layout.send_splits)
    return bound(run, output, source, into, out_of, group=group, async_op=async_op)


def _bind_all_to_all_list(b: Binding) -> Call:
    group, async_op, run = b.group, b.async_op, b.dist.all_to_all
    into, out_of = list(b.recv.chunk(b.nranks)), list(b.send.chunk(b.nranks))
    return bound(run, into, out_of, group=group, async_op=async_op)


def _bind_batch(b: Binding, batch: list[object]) -> Call:
    run, async_op = b.dist.batch_isend_irecv, b.async_op

    def call() -> list[object] | None:
        handles = run(batch)
        if async_op:
            return list(handles)
        for handle in handles:
            handle.wait()
        return None

    return call


def _bind_ring(b: Binding) -> Call:
    dist, following, previous = b.dist, (b.rank + 1) % b.nranks, (b.rank - 1) % b.nranks
    return _bind_batch(
        b,
        [
            dist.P2POp(dist.isend, b.send, group=b.group, group_peer=following),
            dist.P2POp(dist.irecv, b.recv, group=b.group, group_peer=previous),
        ],
    )


def _bind_both_neighbours(b: Binding) -> Call:
    dist, following, previous = b.dist, (b.rank + 1) % b.nranks, (b.rank - 1) % b.nranks
    forward, backward = b.send.chunk(2)
    from_previous, from_following = b.recv.chunk(2)
    # With two ranks both neighbours are one peer and messages match in order of issue: a rank's
    # forward send must meet the other's receive from its previous one, so forward comes first.
    return _bind_batch(
        b,
        [
            dist.P2POp(dist.isend, forward, group=b.group, group_peer=following),
            dist.P2POp(dist.irecv, from_previous, group=b.group, group_peer=previous),
            dist.P2POp(dist.isend, backward, group=b.group, group_peer=previous),
            dist.P2POp(dist.irecv, from_following, group=b.group, group_peer=following),
        ],
    )


def _barrier_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    return Layout(count=0, nelements=0, send=0, recv=0)


def _nothing(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return []


def _bind_barrier(b: Binding) -> Call:
    group, async_op, run = b.group, b.async_op, b.dist.barrier
    return bound(run, group=group, async_op=async_op)


ENTRIES = (
    Collective(
        name="all_to_all",
        description="every rank sends a part to every rank (single-tensor form)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_all_to_all_layout,
        expected=_transposed,
        bind=_bind_all_to_all,
    ),
    Collective(
        name="all_to_allv",
        description="all_to_all with uneven, seeded parts (half to one and a half times the even part)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_all_to_allv_layout,
        totals=_all_to_allv_totals,
        expected=_transposed_uneven,
        bind=_bind_all_to_allv,
    ),
    Collective(
        name="all_to_all_list",
        description="all_to_all between lists of tensors",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_all_to_all_layout,
        expected=_transposed,
        bind=_bind_all_to_all_list,
    ),
    Collective(
        name="send_recv",
        description="ring: send to the next rank, receive from the previous one, as one batch",
        busbw_factor=unit_factor,
        synchronising=False,
        layout=_ring_layout,
        expected=_from_previous,
        bind=_bind_ring,
        least_ranks=2,
    ),
    Collective(
        name="batched_p2p",
        description="half to each neighbour of the ring and half from each, four operations in one batch",
        busbw_factor=unit_factor,
        synchronising=False,
        layout=_both_neighbours_layout,
        expected=_from_both_neighbours,
        bind=_bind_both_neighbours,
        least_ranks=2,
    ),
    Collective(
        name="barrier",
        description="nobody leaves before everybody has come; moves no data",
        busbw_factor=lambda nranks: 0.0,
        synchronising=True,
        layout=_barrier_layout,
        expected=_nothing,
        bind=_bind_barrier,
        has_data=False,
    ),
)
