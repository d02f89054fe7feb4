"""What a recorded call means as a case: names of every recorder, sizes, types, or why it is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flight_making import dump, evidence, operation
from torch.distributed.flight_recorder.components import types

from ncclbench.flight.calls import _DTYPES, _OPS, Call, NoCase, calls_of, read_call
from ncclbench.flight.join import join
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES

# What torch records and ncclbench does not measure.
NO_CASES = {
    "all_gather_v",
    "reduce_scatter_v",
    "split",
    "new_window",
    "allgather_coalesced",
    "ALLGATHER_coalesced",
    "REDUCE_SCATTER_coalesced",
}


def call(
    collective: str, sent: list[list[int]], received: list[list[int]], size: int | None = 4, **changes: Any
) -> Call | NoCase:
    shapes = {"input_sizes": tuple(map(tuple, sent)), "output_sizes": tuple(map(tuple, received))}
    return read_call(operation(1, collective, **shapes, backend="nccl", **changes), size)


def test_every_name_that_torch_knows_is_a_case_or_known_to_be_none() -> None:
    assert set(_OPS) >= types.COLLECTIVES - NO_CASES
    assert set(_OPS.values()) <= set(COLLECTIVES)


def test_words_of_types_are_those_that_torch_writes() -> None:
    assert set(_DTYPES.values()) <= set(DTYPES)
    for name in _DTYPES.values():
        assert isinstance(getattr(torch, name), torch.dtype)


@pytest.mark.parametrize(
    ("name", "sent", "received", "op", "elements"),
    [
        ("all_reduce", [[4, 3]], [[4, 3]], "all_reduce", 12),
        ("all_reduce_barrier", [[1]], [[1]], "barrier", 0),
        ("allreduce_coalesced", [[4], [3]], [[4], [3]], "all_reduce_coalesced", 7),
        ("allreduce_coalesced", [[4]], [[4]], "all_reduce", 4),
        ("_all_gather_base", [[3]], [[12]], "all_gather", 12),
        ("all_gather_single", [[3]], [[12]], "all_gather", 12),
        ("all_gather_into_tensor_coalesced", [[3]], [[12]], "all_gather", 12),
        ("all_gather", [[3]], [[3], [3], [3], [3]], "all_gather_list", 12),
        ("all_gather", [[3]], [[4, 3]], "all_gather_list", 12),
        ("_reduce_scatter_base", [[12]], [[3]], "reduce_scatter", 12),
        ("reduce_scatter", [[3]] * 4, [[3]], "reduce_scatter_list", 12),
        ("_broadcast_oop", [[5]], [[5]], "broadcast", 5),
        ("reduce", [[5]], [[5]], "reduce", 5),
        ("gather", [[5]], [], "gather", 20),
        ("gather", [[5]], [[5]] * 4, "gather", 20),
        ("scatter", [], [[5]], "scatter", 20),
        ("all_to_all", [[8, 2]], [[8, 2]], "all_to_all", 16),
        ("all_to_all", [[4]] * 4, [[4]] * 4, "all_to_all_list", 16),
        ("all_to_all", [[8]], [[20]], "all_to_allv", 20),
        ("all_to_all_v_single", [[8]], [[8]], "all_to_allv", 8),
    ],
)
def test_cases(name: str, sent: list[list[int]], received: list[list[int]], op: str, elements: int) -> None:
    assert call(name, sent, received) == Call(op, "float32", 4 * elements)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (call("send 0->1", [[3]], [[3]]), "point-to-point"),
        (call("coalesced", [], []), "a batch as a whole"),
        (call("all_gather_v", [[3]], [[9]]), "no collective that ncclbench measures"),
        (call("all_reduce", [], []), "its sizes are not recorded"),
        (call("all_reduce", [[0]], [[0]]), "no elements"),
        (call("_all_gather_base", [[3]], []), "its sizes are not recorded"),
        (call("_all_gather_base", [[3], [3]], [[12], [12]]), "several tensors in one call"),
        (call("all_gather", [[3]], [[3], [3], [3], [4]]), "parts of unequal size"),
        (call("_reduce_scatter_base", [[13]], [[3]]), "parts of unequal size"),
        (call("gather", [[5]], [], None), "only its root tells the size"),
        (call("all_reduce", [[3]], [[3]], dtype="QInt8"), "no element type that ncclbench knows: QInt8"),
        (call("all_reduce", [[1 << 50]], [[1 << 50]]), "more than the 64T"),
    ],
)
def test_no_cases(found: Call | NoCase, reason: str) -> None:
    assert isinstance(found, NoCase)
    assert found.reason.startswith(reason)


def test_float8_and_unsigned_types_are_called_as_in_torch() -> None:
    for word, name in (("Float8_e4m3fn", "float8_e4m3fn"), ("UInt16", "uint16"), ("BFloat16", "bfloat16")):
        found = call("all_reduce", [[4]], [[4]], dtype=word)
        assert isinstance(found, Call)
        assert found.dtype == name


def test_the_rank_with_most_calls_speaks_for_its_group_and_parts_of_a_batch_count() -> None:
    short = [operation(number, record=number) for number in (3, 4)]
    # Two operations under one number, as in a batch.
    whole = [operation(number, record=number) for number in (1, 2, 3)]
    whole.append(operation(3, "broadcast", record=4))
    (group,) = join(evidence(dump(0, short), dump(1, whole))).groups
    calls, others = calls_of(group)
    assert calls == {Call("all_reduce", "float32", 16): 3, Call("broadcast", "float32", 16): 1}
    assert not others
