"""What the members of a group must agree on under one number, and what may differ from rank to rank.

Recorders keep names, shapes and dtypes. They do not keep the root or the operator: of a gather or scatter
the root shows, because only there the list of all parts is recorded; of a broadcast or reduce it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ncclbench.flight.model import Operation

Shapes = tuple[tuple[int, ...], ...]

# Names of one collective: by backend, and whether it was called with one tensor or with a list. Both forms
# meet on the wire, so they are the same here.
_FAMILY = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "sparse_all_reduce": "all_reduce",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "_all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_v": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_v": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "all_reduce_barrier": "barrier",
}
# Nobody leaves one of these before all have come.
_SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
# Whose element count, of inputs or of outputs, is the same on all ranks. An uneven all_gather has a list of
# all parts as its output and an uneven reduce_scatter as its input, so these are the sides that must agree.
_COUNTED: Mapping[str, str] = {
    "all_reduce": "either",
    "reduce": "either",
    "broadcast": "either",
    "all_gather": "outputs",
    "reduce_scatter": "inputs",
    "gather": "inputs",
    "scatter": "outputs",
}
_ROOTED: Mapping[str, str] = {"gather": "outputs", "scatter": "inputs"}


def family(collective: str) -> str:
    """The collective, whatever this backend and this form of the call are named."""
    return _FAMILY.get(collective, collective)


def is_synchronising(collective: str) -> bool:
    """Whether nobody can complete it before everybody has issued it."""
    return family(collective) in _SYNCHRONISING


def elements(shapes: Shapes) -> int:
    """Number of elements of all tensors together."""
    return sum(prod(shape) for shape in shapes)


def count_of(operation: Operation) -> int | None:
    """Elements that must be the same on all members; None where ranks may differ or nothing is recorded."""
    side = _COUNTED.get(family(operation.collective))
    if side == "outputs":
        shapes = operation.output_sizes
    elif side == "inputs":
        shapes = operation.input_sizes
    elif side == "either":
        shapes = operation.input_sizes or operation.output_sizes
    else:
        return None
    return elements(shapes) if shapes else None


def dtypes_of(operation: Operation) -> tuple[str, ...] | None:
    """Dtypes that must be the same on all members; None where nothing is said of them."""
    name = family(operation.collective)
    if name == "barrier":
        return None
    first, second = operation.input_dtypes, operation.output_dtypes
    if _COUNTED.get(name) == "outputs":
        first, second = second, first
    dtypes = first or second
    return tuple(sorted(set(dtypes))) or None


def demand(operation: Operation) -> tuple[str, tuple[str, ...] | None, int | None]:
    """What must be equal on all members: collective, dtypes, elements."""
    return family(operation.collective), dtypes_of(operation), count_of(operation)


def look_alike(first: Operation, second: Operation) -> bool:
    """Whether the records are equal, which is the common case and quick to see."""
    return (
        first.collective == second.collective
        and first.input_sizes == second.input_sizes
        and first.output_sizes == second.output_sizes
        and first.input_dtypes == second.input_dtypes
    )


def agree(first: Operation, second: Operation) -> bool:
    """Whether the two can be one collective; what one of them does not tell is not held against it."""
    if look_alike(first, second):
        return True
    one, other = demand(first), demand(second)
    if one[0] != other[0]:
        return False
    return all(
        mine is None or theirs is None or mine == theirs for mine, theirs in zip(one, other, strict=True)
    )


def difference(usual: Operation, other: Operation) -> str | None:
    """What differs: "collective", "dtype" or "size"; None where nothing does that must not."""
    one, two = demand(usual), demand(other)
    for what, mine, theirs in zip(("collective", "dtype", "size"), one, two, strict=True):
        if mine is not None and theirs is not None and mine != theirs:
            return what
    return None


def is_root(operation: Operation) -> bool | None:
    """Whether the rank took itself for the root of a gather or scatter; None for other collectives."""
    side = _ROOTED.get(family(operation.collective))
    if side is None:
        return None
    return bool(operation.output_sizes if side == "outputs" else operation.input_sizes)


def totals_fit(operations: Mapping[int, Operation]) -> bool:
    """Whether all that is sent in an all_to_all is as much as all that is received.

    Args:
        operations: of all members, by rank.
    """
    sent = sum(elements(one.input_sizes) for one in operations.values())
    return sent == sum(elements(one.output_sizes) for one in operations.values())
