"""broadcast, all_gather, gather and scatter: data moves, nothing is reduced."""

from __future__ import annotations

from ncclbench.tables.collectives.reducing import same_everywhere
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


def _gathered_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    count = nelements // nranks
    if count < 1:
        return "below one element per rank"
    return Layout(count=count, nelements=count * nranks, send=count, recv=count * nranks)


def _scatter_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    count = nelements // nranks
    if count < 1:
        return "below one element per rank"
    return Layout(count=count, nelements=count * nranks, send=count * nranks, recv=count)


def _broadcasted(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.send, root, 0)]


def _all_gathered(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(source * layout.count, layout.count, source, 0) for source in range(nranks)]


def _gathered_at_root(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return _all_gathered(layout, rank, nranks, root) if rank == root else []


def _scattered(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.recv, root, rank * layout.recv)]


def _bind_broadcast(b: Binding) -> Call:
    tensor, root, group, async_op, run = b.send, b.root, b.group, b.async_op, b.dist.broadcast
    return bound(run, tensor, group=group, async_op=async_op, group_src=root)


def _bind_all_gather(b: Binding) -> Call:
    output, source, group, async_op = b.recv, b.send, b.group, b.async_op
    run = b.dist.all_gather_single
    return bound(run, output, source, group=group, async_op=async_op)


def _bind_all_gather_list(b: Binding) -> Call:
    source, group, async_op, run = b.send, b.group, b.async_op, b.dist.all_gather
    parts = list(b.recv.chunk(b.nranks))
    return bound(run, parts, source, group=group, async_op=async_op)


def _bind_gather(b: Binding) -> Call:
    source, root, group, async_op, run = b.send, b.root, b.group, b.async_op, b.dist.gather
    parts = list(b.recv.chunk(b.nranks)) if b.rank == root else None
    return bound(run, source, parts, group=group, async_op=async_op, group_dst=root)


def _bind_scatter(b: Binding) -> Call:
    output, root, group, async_op, run = b.recv, b.root, b.group, b.async_op, b.dist.scatter
    parts = list(b.send.chunk(b.nranks)) if b.rank == root else None
    return bound(run, output, parts, group=group, async_op=async_op, group_src=root)


ENTRIES = (
    Collective(
        name="broadcast",
        description="everybody gets the root's tensor, in place",
        busbw_factor=unit_factor,
        synchronising=False,
        layout=same_everywhere,
        expected=_broadcasted,
        bind=_bind_broadcast,
        rooted=True,
        in_place_forms=(True,),
        result_in_send=True,
    ),
    Collective(
        name="all_gather",
        description="everybody gets everybody's tensor (single-tensor form)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_gathered_layout,
        expected=_all_gathered,
        bind=_bind_all_gather,
        in_place_forms=(False, True),
        in_place_alias="send_in_recv",
    ),
    Collective(
        name="all_gather_list",
        description="all_gather into a list of tensors (copies where the backend needs one tensor)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_gathered_layout,
        expected=_all_gathered,
        bind=_bind_all_gather_list,
    ),
    Collective(
        name="gather",
        description="the root gets everybody's tensor",
        busbw_factor=gather_factor,
        synchronising=False,
        layout=_gathered_layout,
        expected=_gathered_at_root,
        bind=_bind_gather,
        rooted=True,
        in_place_forms=(False, True),
        in_place_alias="send_in_recv",
    ),
    Collective(
        name="scatter",
        description="each rank gets its part of the root's tensor",
        busbw_factor=gather_factor,
        synchronising=False,
        layout=_scatter_layout,
        expected=_scattered,
        bind=_bind_scatter,
        rooted=True,
        in_place_forms=(False, True),
        in_place_alias="recv_in_send",
    ),
)
