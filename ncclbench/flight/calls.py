"""What a recorded call means as a case to measure: collective, element type and size, or why it is none.

Recorders name a call as the backend does, so one collective has several names and some calls are none of
ours. They keep neither root nor operator, nor whether the call was asynchronous: these stay as asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ncclbench.flight.join import Group
from ncclbench.flight.model import Operation
from ncclbench.tables.dtypes import DTYPES
from ncclbench.units import MAX_BYTES, format_bytes

# By what a recorder writes behind the backend's name: the entry of COLLECTIVES. nccl-legacy, gloo and the
# hook that records the others have names of their own (torch 2.11 to 2.15).
_OPS = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "all_reduce_coalesced": "all_reduce_coalesced",
    "all_reduce_barrier": "barrier",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "all_gather": "all_gather_list",
    "allgather": "all_gather_list",
    "_all_gather_base": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter_list",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "gather": "gather",
    "gather_single": "gather",
    "scatter": "scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_allv",
}
# gloo records the list form and the tensor form of all_gather alike; most programs call the latter.
_GLOO_OPS = {"all_gather": "all_gather"}
# Words of torch's ScalarType, which are not those of its Python names.
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Char": "int8",
    "Byte": "uint8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_POINT_TO_POINT = "point-to-point: ncclbench p2p measures messages"
# torch has no tensor of more dimensions.
_MOST_DIMENSIONS = 64
_SEVERAL = "several tensors in one call, of which no case here is made"


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """One way in which a collective was called.

    Attributes:
        op: name in COLLECTIVES; ``dtype``: in DTYPES.
        nbytes: the larger of send and receive bytes per rank; 0 for a barrier.
    """

    op: str
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True, order=True)
class NoCase:
    """Calls that cannot be measured as they were made.

    Attributes:
        what: as the recorder calls it, without the ranks of a pair.
        reason: one line.
    """

    what: str
    reason: str


def calls_of(group: Group) -> tuple[Counter[Call], Counter[NoCase]]:
    """How often each call was made in a group, by the rank that has recorded the most of it.

    Ranks of a group call the same, and a ring that has wrapped on some of them still holds it on another;
    where sizes differ from rank to rank, as in an uneven all_to_all, they are those of that rank.
    """
    lanes = sorted(group.lanes.values(), key=lambda lane: lane.rank)
    fullest = max(lanes, key=lambda lane: len(lane.operations) + len(lane.coalesced), default=None)
    calls: Counter[Call] = Counter()
    others: Counter[NoCase] = Counter()
    if fullest is not None:
        _count([*fullest.operations, *fullest.coalesced], group.size, calls, others)
    if group.pairs:
        # Each rank has messages of its own: all of them, once for each end.
        count = sum(map(len, group.pairs.values()))
        others[NoCase("send and recv", _POINT_TO_POINT)] += count
    return calls, others


def _count(
    operations: Iterable[Operation], size: int | None, calls: Counter[Call], others: Counter[NoCase]
) -> None:
    known: dict[tuple[object, ...], Call | NoCase] = {}
    for one in operations:
        key = (
            one.backend,
            one.collective,
            one.input_sizes,
            one.output_sizes,
            one.input_dtypes,
            one.output_dtypes,
        )
        call = known.get(key)
        if call is None:
            call = known[key] = read_call(one, size)
        if isinstance(call, Call):
            calls[call] += 1
        else:
            others[call] += 1


def read_call(operation: Operation, size: int | None) -> Call | NoCase:
    """What one recorded operation is as a case.

    Args:
        size: ranks in its group; None where that is not known.
    """
    found = _read(operation, size)
    return found if isinstance(found, Call) else NoCase(operation.collective.partition(" ")[0], found)


def _read(operation: Operation, size: int | None) -> Call | str:
    """The call, or why it is no case."""
    name = operation.collective.partition(" ")[0]
    if operation.is_p2p or name in ("send", "recv", "recvAnySource"):
        return _POINT_TO_POINT
    if name == "coalesced":
        return "a batch as a whole: its parts are recorded by themselves"
    op = _GLOO_OPS.get(name) if operation.backend == "gloo" else None
    op = op or _OPS.get(name)
    if op is None:
        return "no collective that ncclbench measures"
    if op == "barrier":
        return Call(op, "float32", 0)
    dtype = _dtype((*operation.input_dtypes, *operation.output_dtypes))
    if dtype not in DTYPES:
        return dtype
    elements = _elements(operation, op, size)
    if isinstance(elements, str):
        return elements
    op, nelements = elements
    if nelements < 1:
        return "no elements"
    nbytes = nelements * DTYPES[dtype].itemsize
    if nbytes >= MAX_BYTES:
        return f"more than the {format_bytes(MAX_BYTES)} that are measured"
    return Call(op, dtype, nbytes)


def _dtype(words: tuple[str, ...]) -> str:
    """The one type that was recorded, by its name in DTYPES; or why there is none."""
    distinct = set(words)
    if not distinct:
        return "its element type is not recorded"
    if len(distinct) > 1:
        return "several element types in one call"
    (word,) = distinct
    # UInt16 and the float8 types are called as in Python but for the case.
    name = _DTYPES.get(word, word.lower())
    return name if name in DTYPES else f"no element type that ncclbench knows: {word}"


def _elements(operation: Operation, op: str, size: int | None) -> tuple[str, int] | str:
    """The collective that it was after all, and the elements that its size counts; or why there are none."""
    if any(len(shape) > _MOST_DIMENSIONS for shape in (*operation.input_sizes, *operation.output_sizes)):
        return "a tensor of more dimensions than there are"
    sent = [prod(shape) for shape in operation.input_sizes]
    received = [prod(shape) for shape in operation.output_sizes]
    if not sent and not received:
        return "its sizes are not recorded"
    most = max(sum(sent), sum(received))
    if op == "all_reduce_coalesced":
        return ("all_reduce" if len(sent or received) == 1 else op), most
    if op in ("all_reduce", "broadcast", "reduce"):
        return _SEVERAL if max(len(sent), len(received)) > 1 else (op, most)
    if op in ("all_to_all", "all_to_allv"):
        return _all_to_all(op, sent, received, size)
    if op in ("gather", "scatter"):
        # Only the root has all parts; the others have recorded one.
        part = sum(sent) if op == "gather" else sum(received)
        if size is None:
            return "only its root tells the size, and how many ranks its group had is not known"
        return (op, part * size) if part else "its sizes are not recorded"
    parts = received if op.startswith("all_gather") else sent
    whole = sent if op.startswith("all_gather") else received
    if not parts:
        return "its sizes are not recorded"
    if len(whole) > 1:
        return _SEVERAL
    if len(set(parts)) > 1 or (size is not None and most % size):
        return "parts of unequal size, of which no case here is made"
    return op, most


def _all_to_all(op: str, sent: list[int], received: list[int], size: int | None) -> tuple[str, int]:
    """Even or uneven, between tensors or lists: it shows in the sizes, if it shows at all."""
    most = max(sum(sent), sum(received))
    is_even = sum(sent) == sum(received) and len({*sent}) == len({*received}) == 1
    if op == "all_to_allv" or not is_even or (size is not None and most % size):
        return "all_to_allv", most
    return ("all_to_all_list" if max(len(sent), len(received)) > 1 else op), most
