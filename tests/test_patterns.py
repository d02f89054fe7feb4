"""Data and expected results: right for right data, and not fooled by wrong data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS
from ncclbench.worker.patterns import PERIOD, Pattern

CPU = torch.device("cpu")
PAIRS = [
    (dtype, redop) for dtype in DTYPES for redop in REDOPS if REDOPS[redop].refusal(DTYPES[dtype]) is None
]


_RANKS_AND_DTYPES = list(itertools.product([2, 3, 8, 100], ["float32", "bfloat16", "int8"]))


def inputs(pattern: Pattern, dtype: str, nranks: int, length: int, shift: int) -> list[torch.Tensor]:
    tensors = [torch.empty(length, dtype=getattr(torch, dtype)) for _ in range(nranks)]
    for rank, tensor in enumerate(tensors):
        pattern.fill(tensor, rank, shift)
    return tensors


def reduced_by_hand(tensors: list[torch.Tensor], redop: str) -> torch.Tensor:
    """The reduction in exact arithmetic, independent of the tables."""
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in tensors])
    if dtype == torch.bool and redop in ("sum", "bor", "max"):
        return stack.any(0)
    if redop == "sum":
        result = stack.sum(0)
    elif redop == "avg":
        total = stack.sum(0)
        result = (
            total / len(tensors)
            if total.is_floating_point() or total.is_complex()
            else torch.div(total, len(tensors), rounding_mode="trunc")
        )
    elif redop == "prod":
        result = stack.prod(0)
    elif redop in ("min", "max"):
        result = getattr(stack, f"a{redop}")(0)
    else:
        combine = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[redop]
        result = stack[0]
        for row in stack[1:]:
            result = combine(result, row)
    return result.to(dtype)


@pytest.mark.parametrize(("dtype", "redop"), PAIRS)
@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
def test_the_expected_reduction_is_the_reduction(dtype: str, redop: str, nranks: int) -> None:
    pattern = Pattern(dtype, redop, nranks, 3, CPU)
    shift, offset = 12_345, 7
    tensors = inputs(pattern, dtype, nranks, PERIOD + 500, shift)
    result = reduced_by_hand(tensors, redop)
    assert pattern.count_wrong(result[offset:], None, offset, shift) == 0


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_a_copy_is_recognised_and_its_errors_are_counted(dtype: str) -> None:
    pattern = Pattern(dtype, None, 4, 3, CPU)
    (tensor,) = inputs(pattern, dtype, 1, 2 * PERIOD + 17, 99)
    assert pattern.count_wrong(tensor, 0, 0, 99) == 0
    bits = tensor.view(torch.uint8)
    for element in (0, PERIOD, 2 * PERIOD + 16):
        place = element * tensor.element_size()
        bits[place] = 1 - bits[place] if dtype == "bool" else bits[place] ^ 0x3F
    assert pattern.count_wrong(tensor, 0, 0, 99) == 3


@pytest.mark.parametrize(("nranks", "dtype"), _RANKS_AND_DTYPES)
@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max"])
def test_a_missing_rank_is_seen(nranks: int, dtype: str, redop: str) -> None:
    """The reduction of all ranks but one must not pass for that of all."""
    pattern = Pattern(dtype, redop, nranks, 5, CPU)
    tensors = inputs(pattern, dtype, nranks, PERIOD, 0)
    for absent in {0, nranks // 2, nranks - 1}:
        others = [tensor for rank, tensor in enumerate(tensors) if rank != absent]
        assert pattern.count_wrong(reduced_by_hand(others, redop), None, 0, 0) > 0


def test_chunks_in_the_wrong_place_are_seen() -> None:
    pattern = Pattern("float32", None, 2, 1, CPU)
    (tensor,) = inputs(pattern, "float32", 1, 1 << 20, 0)
    swapped = torch.cat([tensor[1 << 19 :], tensor[: 1 << 19]])
    assert pattern.count_wrong(swapped, 0, 0, 0) > (1 << 19)


def test_data_of_a_former_pass_and_of_another_rank_are_seen() -> None:
    pattern = Pattern("float32", None, 2, 1, CPU)
    (stale,) = inputs(pattern, "float32", 1, 1000, 0)
    assert pattern.count_wrong(stale, 0, 0, 7_919) > 900
    assert pattern.count_wrong(stale, 1, 0, 0) > 900


def test_nan_is_wrong() -> None:
    pattern = Pattern("float32", "avg", 3, 1, CPU)
    result = reduced_by_hand(inputs(pattern, "float32", 3, 1000, 0), "avg")
    result[10] = float("nan")
    assert pattern.count_wrong(result, None, 0, 0) == 1


@pytest.mark.parametrize("nranks", [2, 3, 8, 1024])
@pytest.mark.parametrize("dtype", [name for name, entry in DTYPES.items() if entry.kind == "float"])
def test_sums_in_place_stay_finite_as_often_as_promised(dtype: str, nranks: int) -> None:
    pattern = Pattern(dtype, "sum", nranks, 1, CPU)
    largest = float(pattern._table.to(torch.float64).abs().max())
    reached = largest * float(nranks) ** min(pattern.safe_reductions, 2000)
    assert reached <= DTYPES[dtype].largest or pattern.safe_reductions == 1
    first = float(pattern._reduced.to(torch.float64).abs().max()) if pattern._reduced is not None else 0.0
    assert np.isfinite(first)
    assert first <= (DTYPES[dtype].largest or 0)


def test_sixteen_thousand_ranks_cost_no_sixteen_thousand_passes() -> None:
    import time

    before = time.perf_counter()
    pattern = Pattern("float32", "sum", 16_384, 1, CPU)
    assert time.perf_counter() - before < 2.0
    assert pattern.safe_reductions >= 1
