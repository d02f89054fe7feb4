"""all_reduce (plain and coalesced), reduce, reduce_scatter in tensor and list form."""

from __future__ import annotations

from ncclbench.tables.collectives.spec import (
    Binding,
    Call,
    Collective,
    Layout,
    Segment,
    all_reduce_factor,
    bound,
    gather_factor,
    unit_factor,
)

# How many tensors one coalesced all_reduce covers.
COALESCED_TENSORS = 4


def same_everywhere(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    """Sizes of an operation that sends and receives the same elements on all ranks."""
    if nelements < 1:
        return "below one element per rank"
    return Layout(count=nelements, nelements=nelements, send=nelements, recv=0)


def _coalesced_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    if nelements < COALESCED_TENSORS:
        return f"below one element for each of the {COALESCED_TENSORS} coalesced tensors"
    return same_everywhere(nelements, rank, nranks, seed)


def _scattered_layout(nelements: int, rank: int, nranks: int, seed: int) -> Layout | str:
    count = nelements // nranks
    if count < 1:
        return "below one element per rank"
    return Layout(count=count, nelements=count * nranks, send=count * nranks, recv=count)


def _all_reduced(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.send, None, 0)]


def _reduced_at_root(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.send, None, 0)] if rank == root else []


def _reduce_scattered(layout: Layout, rank: int, nranks: int, root: int) -> list[Segment]:
    return [Segment(0, layout.recv, None, rank * layout.recv)]


def _bind_all_reduce(b: Binding) -> Call:
    tensor, redop, group, async_op, run = b.send, b.redop, b.group, b.async_op, b.dist.all_reduce
    return bound(run, tensor, redop, group=group, async_op=async_op)


def _bind_coalesced(b: Binding) -> Call:
    tensors = list(b.send.tensor_split(COALESCED_TENSORS))
    redop, group, async_op, dist = b.redop, b.group, b.async_op, b.dist
    device = b.send.device

    def run() -> list[object] | None:
        # One batch for the backend, where it has batches; the Works are waited for as one.
        with dist._coalescing_manager(group=group, device=device, async_ops=async_op) as batch:
            for tensor in tensors:
                dist.all_reduce(tensor, redop, group=group, async_op=async_op)
        return list(batch.works) if async_op else None

    def run_one_by_one() -> list[object] | None:
        handles = [dist.all_reduce(tensor, redop, group=group, async_op=True) for tensor in tensors]
        if async_op:
            return handles
        for handle in handles:
            handle.wait()
        return None

    backend = group._get_backend(device)
    return run if getattr(backend, "supports_coalescing", False) else run_one_by_one


def _bind_reduce(b: Binding) -> Call:
    tensor, root, redop, group, async_op, run = b.send, b.root, b.redop, b.group, b.async_op, b.dist.reduce
    return bound(run, tensor, op=redop, group=group, async_op=async_op, group_dst=root)


def _bind_reduce_scatter(b: Binding) -> Call:
    output, source, redop, group, async_op = b.recv, b.send, b.redop, b.group, b.async_op
    run = b.dist.reduce_scatter_single
    return bound(run, output, source, redop, group=group, async_op=async_op)


def _bind_reduce_scatter_list(b: Binding) -> Call:
    output, redop, group, async_op, run = b.recv, b.redop, b.group, b.async_op, b.dist.reduce_scatter
    parts = list(b.send.chunk(b.nranks))
    return bound(run, output, parts, redop, group=group, async_op=async_op)


ENTRIES = (
    Collective(
        name="all_reduce",
        description="everybody gets the reduction of everybody's tensor, in place",
        busbw_factor=all_reduce_factor,
        synchronising=True,
        layout=same_everywhere,
        expected=_all_reduced,
        bind=_bind_all_reduce,
        reduces=True,
        in_place_forms=(True,),
        result_in_send=True,
    ),
    Collective(
        name="all_reduce_coalesced",
        description=f"all_reduce of {COALESCED_TENSORS} tensors as one batch; size is their sum",
        busbw_factor=all_reduce_factor,
        synchronising=True,
        layout=_coalesced_layout,
        expected=_all_reduced,
        bind=_bind_coalesced,
        reduces=True,
        in_place_forms=(True,),
        result_in_send=True,
    ),
    Collective(
        name="reduce",
        description="the root gets the reduction of everybody's tensor, in place",
        busbw_factor=unit_factor,
        synchronising=False,
        layout=same_everywhere,
        expected=_reduced_at_root,
        bind=_bind_reduce,
        reduces=True,
        rooted=True,
        in_place_forms=(True,),
        result_in_send=True,
    ),
    Collective(
        name="reduce_scatter",
        description="each rank gets its part of the reduction (single-tensor form)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_scattered_layout,
        expected=_reduce_scattered,
        bind=_bind_reduce_scatter,
        reduces=True,
        in_place_forms=(False, True),
        in_place_alias="recv_in_send",
    ),
    Collective(
        name="reduce_scatter_list",
        description="reduce_scatter from a list of tensors (copies where the backend needs one tensor)",
        busbw_factor=gather_factor,
        synchronising=True,
        layout=_scattered_layout,
        expected=_reduce_scattered,
        bind=_bind_reduce_scatter_list,
        reduces=True,
        in_place_forms=(False,),
    ),
)
