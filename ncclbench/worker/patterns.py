"""Data for buffers and the results expected from it, computed without the library under test.

Every rank's input is one random table repeated, begun at a place of its own. The table's length is
prime, so that no chunking into powers of two maps it onto itself: a chunk that lands in the wrong
place does not match. Filling and checking run at memory speed, and what a reduction over all ranks
must give is again one table. A fresh pass shifts every rank's start by the same amount.
Values are integers small enough that every order of summation is exact in the type.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from ncclbench.plan.model import Case
from ncclbench.tables.dtypes import DTYPES, Dtype
from ncclbench.tables.redops import REDOPS, Data

PERIOD = 65_521

# Ordinary magnitudes: larger ones would only use up the range for repeated in-place sums.
_LARGEST_VALUE = 1000

# For min and max a wide range, so that the extreme over many ranks is seldom the end of the range.
_LARGEST_EXTREME = 30_000

# Rows of the table compared at a time: on a GPU few launches, on the CPU what stays in the cache.
_ROWS_AT_ONCE = {"cuda": 64, "cpu": 1}

Table = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.complex128]


class Pattern:
    """Inputs of all ranks for one dtype and operator, and their reduction.

    Attributes:
        safe_reductions: in-place reductions a buffer stands before a value may leave the type's range.
        room: logarithm of the factor by which values may grow before that.
        growth: logarithm of the factor by which an in-place reduction makes them grow; 0 where it does not.
    """

    def __init__(
        self,
        dtype_name: str,
        redop: str | None,
        nranks: int,
        seed: int,
        device: torch.device,
        timed: bool = False,
    ) -> None:
        """``timed``: data for the clock, where products must not grow, rather than for the check."""
        self._dtype = DTYPES[dtype_name]
        self._torch_dtype: torch.dtype = getattr(torch, dtype_name)
        self._redop = redop
        self._nranks = nranks
        self._device = device
        # zlib.crc32 and not hash(): every rank must draw the same table.
        self._rng_seed = (seed, zlib.crc32(f"{dtype_name}/{redop}/{nranks}".encode()))
        table, reduced = _tables(self._dtype, redop, nranks, self._rng_seed, timed)
        self._magnitude = float(np.abs(table).max())
        self._table = self._twice(table)
        self._reduced = None if reduced is None else self._twice(reduced)
        self.room, self.growth = _room(self._dtype, self._magnitude), _growth(self._dtype, redop, nranks)
        self.safe_reductions = max(1, math.floor(self.room / self.growth)) if self.growth else 1 << 30

    def _twice(self, table: Table) -> torch.Tensor:
        """The table twice over, so that a period from any start is one slice."""
        both = torch.from_numpy(np.concatenate([table, table]))
        if self._dtype.name.startswith("float8"):
            both = both.to(torch.float32)
        return both.to(self._torch_dtype).to(self._device)

    def _start(self, rank: int, shift: int) -> int:
        return _rank_offset(rank) + shift

    def fill(self, tensor: torch.Tensor, rank: int, shift: int) -> None:
        """Write rank's input of a pass into ``tensor``."""
        start = self._start(rank, shift) % PERIOD
        period = self._table[start : start + PERIOD]
        rows, rest = divmod(tensor.numel(), PERIOD)
        if rows:
            tensor[: rows * PERIOD].view(rows, PERIOD).copy_(period)
        if rest:
            tensor[rows * PERIOD :].copy_(period[:rest])

    def count_wrong(self, result: torch.Tensor, source: int | None, source_offset: int, shift: int) -> int:
        """Elements of ``result`` that differ from what they must be.

        Args:
            result: one-dimensional, a run of the result buffer.
            source: the rank it was copied from, or None for the reduction over all ranks.
            source_offset: where the run begins in the source's input.
            shift: of the pass.
        """
        if source is None:
            if self._reduced is None:
                raise ValueError("this pattern has no reduction")
            table, start = self._reduced, shift + source_offset
        else:
            table, start = self._table, self._start(source, shift) + source_offset
        start %= PERIOD
        period = table[start : start + PERIOD]
        tolerance = self._tolerance() if source is None else 0.0
        rows, rest = divmod(result.numel(), PERIOD)
        wrong = _differing(result[rows * PERIOD :], period[:rest], tolerance) if rest else 0
        body = result[: rows * PERIOD].view(rows, PERIOD)
        step = _ROWS_AT_ONCE[result.device.type]
        for first in range(0, rows, step):
            wrong += _differing(body[first : first + step], period, tolerance)
        return wrong

    def _tolerance(self) -> float:
        """Largest allowed difference of a reduction: 0 but for avg.

        An average may be the sum divided, or a sum of values each multiplied by a rounded 1/n: each
        product and the result err by half a unit in the last place of at most the largest input;
        integer averages may be cut instead of rounded.
        """
        if self._redop is None or REDOPS[self._redop].exact:
            return 0.0
        if self._dtype.kind in ("int", "uint"):
            return 1.0
        return 3.0 * torch.finfo(self._torch_dtype).eps * self._magnitude


class Patterns:
    """The patterns of a run, each made when it is first needed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[tuple[str, str | None, int, str, bool], Pattern] = {}

    def of(self, case: Case, device: torch.device) -> Callable[[bool], Pattern]:
        """The patterns of a case on a device, by whether they are for the clock rather than for the check."""

        def pattern(timed: bool) -> Pattern:
            # Only products need other data for the clock than for the check.
            is_timed = timed and _data(case.redop) == "factors"
            # How many ranks there are makes a difference to reductions only: a table each for group sizes.
            key = (case.dtype, case.redop, case.nranks if case.redop else 0, device.type, is_timed)
            if key not in self._made:
                self._made[key] = Pattern(case.dtype, case.redop, case.nranks, self._seed, device, is_timed)
            return self._made[key]

        return pattern


# Coprime to PERIOD, so that ranks begin at different places, up to PERIOD of them.
_STRIDE = 40_503


def _rank_offset(rank: int) -> int:
    """Where a rank's input begins in the table."""
    return rank * _STRIDE % PERIOD


def _tables(
    dtype: Dtype, redop: str | None, nranks: int, seed: tuple[int, int], timed: bool
) -> tuple[Table, Table | None]:
    """The input table and its reduction over all ranks, both of PERIOD entries.

    Where values or factors on all ranks at once would leave what the type holds exactly, the table is
    thinned (zeros for sums, ones for products) until the worst place fits.
    """
    density = 1.0
    while True:
        rng = np.random.default_rng([*seed, round(density * 2**20)])
        table = _draw(dtype, redop, nranks, density, rng, timed)
        if redop is None:
            return table, None
        if _largest_reduction(table, redop, nranks) <= dtype.exact_bound or density < 2**-20:
            return table, _reduce(table, redop, nranks, dtype)
        density /= 2


def _draw(
    dtype: Dtype, redop: str | None, nranks: int, density: float, rng: np.random.Generator, timed: bool
) -> Table:
    """Random entries of which many ranks' worth can be reduced, and whose result depends on every rank."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, PERIOD)
    signed = dtype.kind != "uint"
    data = _data(redop)
    if data == "factors":
        signs = rng.choice([-1, 1], PERIOD) if signed else np.ones(PERIOD, np.int64)
        factors = np.where(rng.random(PERIOD) < density * min(0.5, 4 / nranks), 2, 1)
        return np.asarray(signs if timed else signs * factors, dtype=np.int64)
    if data in ("common bits", "rare bits"):
        # Bits that one rank in ``nranks`` decides: with even odds the result would always be 0 or full.
        rare = rng.random((dtype.exact_bound.bit_length(), PERIOD)) < 1 / (nranks + 1)
        bits = rare if data == "rare bits" else ~rare
        weights = 1 << np.arange(len(bits), dtype=np.int64)
        return np.asarray((bits * weights[:, None]).sum(axis=0) & dtype.exact_bound)
    terms = nranks if data == "terms" else 1
    largest = max(1, min(_LARGEST_VALUE, dtype.exact_bound // terms))
    if data == "extremes":
        largest = min(_LARGEST_EXTREME, dtype.exact_bound)
    values = rng.integers(-largest if signed else 0, largest + 1, PERIOD)
    if density < 1:
        values = np.where(rng.random(PERIOD) < density, values, 0)
    if dtype.kind == "complex":
        imaginary = rng.integers(-largest, largest + 1, PERIOD) * (values != 0)
        return np.asarray(values + 1j * imaginary, dtype=np.complex128)
    return values


def _over_ranks(table: Table, nranks: int, combine: np.ufunc) -> Table:
    """Entry i: ``combine`` over all ranks' entries at i, in about log2(nranks) passes.

    Ranks begin a fixed stride apart; walked in steps of that stride the table turns "over all ranks"
    into "over nranks consecutive entries", and such a window is put together from windows of
    doubling width.
    """
    walk = np.arange(PERIOD) * _STRIDE % PERIOD
    window, width = table[walk], 1
    parts: list[Table] = []
    covered = 0
    while covered < nranks:
        if nranks & width:
            parts.append(np.roll(window, -covered))
            covered += width
        window = combine(window, np.roll(window, -width))
        width *= 2
    result: Table = functools.reduce(combine, parts)
    spread = np.empty_like(result)
    spread[walk] = result
    return spread


def _largest_reduction(table: Table, redop: str, nranks: int) -> float:
    """Largest magnitude that any partial reduction in any order can reach."""
    magnitudes = np.maximum(np.abs(table.real), np.abs(table.imag)).astype(np.float64)
    if _data(redop) == "terms":
        return float(_over_ranks(magnitudes, nranks, np.add).max())
    if _data(redop) == "factors":
        factors_of_two = _over_ranks(np.log2(np.maximum(magnitudes, 1)), nranks, np.add)
        return float(2.0 ** min(1000.0, factors_of_two.max()))
    return float(magnitudes.max())


def _data(redop: str | None) -> Data:
    return "values" if redop is None else REDOPS[redop].data


def _reduce(table: Table, redop: str, nranks: int, dtype: Dtype) -> Table:
    entry = REDOPS[redop]
    result = _over_ranks(table, nranks, getattr(np, entry.combine))
    if entry.divides:
        return result / nranks if dtype.kind in ("float", "complex") else np.trunc(result / nranks)
    if dtype.kind == "bool":
        # A sum of truth values is "any", as torch documents for bool tensors.
        return np.asarray(result != 0, dtype=np.int64)
    return result


def _room(dtype: Dtype, magnitude: float) -> float:
    return math.inf if dtype.largest is None else math.log(dtype.largest / max(magnitude, 1.0))


def _growth(dtype: Dtype, redop: str | None, nranks: int) -> float:
    """Of values that are summed in place: each may become ``nranks`` times as large."""
    if redop is None or not REDOPS[redop].grows or dtype.largest is None:
        return 0.0
    return math.log(nranks)


def _differing(result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> int:
    if result.device.type == "cpu" and _same_bits(result, expected):
        return 0
    dtype = result.dtype
    if dtype.itemsize == 1 and dtype.is_floating_point:
        result, expected = result.to(torch.float32), expected.to(torch.float32)
    elif not dtype.is_floating_point and not dtype.is_complex and not dtype.is_signed and dtype.itemsize > 1:
        # torch compares few unsigned types; equality is the same on the bits.
        signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        result, expected = result.view(signed), expected.view(signed)
    if tolerance == 0.0:
        return int(torch.count_nonzero(result != expected))
    # Not "difference > tolerance": a NaN must count as wrong.
    wide = torch.complex128 if dtype.is_complex else torch.float64
    close = (result.to(wide) - expected.to(wide)).abs() <= tolerance
    return int(torch.count_nonzero(~close))


def _same_bits(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether host tensors agree to the bit: several times faster than torch's comparison of values.

    Equal bits are equal values, as nothing expected here is NaN.
    """
    left, right = result.reshape(-1).view(torch.uint8), expected.view(torch.uint8)
    return np.array_equal(left.numpy(), right.numpy())
