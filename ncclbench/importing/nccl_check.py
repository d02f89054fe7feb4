"""Whether a row says the same thing by size, count, time, algbw and busbw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ncclbench.importing.nccl_judge import TRAITS, Cell, cells_of, factor_fit, speed_fit
from ncclbench.importing.nccl_layout import ITEMSIZES, REDOPS, Half, Row
from ncclbench.importing.physics import TOLERANCE, Factor, Figure, Fit, Span, factor_of, ranks_between, ratio

# Readers of runs take no more: thirty years, or a million times the fastest link.
_MOST = 1e15

_FACTORS: tuple[Factor, ...] = ("twice", "part", "one")


@dataclass(frozen=True, slots=True)
class Checks:
    """What the rows of a section must agree with.

    Attributes:
        ops: the collectives it may be: one where that is known.
        nranks: None where they are not known.
        equal_ranks: ranks n where algbw is (n-1)/n of size over time and equals busbw; None otherwise.
        is_cpu_time: the time column is not what bandwidth is of.
    """

    ops: frozenset[str]
    nranks: int | None
    equal_ranks: int | None
    is_cpu_time: bool

    @property
    def factor(self) -> Factor | None:
        """How busbw follows from algbw here, where that is known."""
        if self.equal_ranks is not None:
            return "one"
        factors = {TRAITS[op].factor for op in self.ops}
        return factors.pop() if len(factors) == 1 else None

    @property
    def size(self) -> Literal["whole", "part", "free"] | None:
        """What size is of count, where that is known."""
        sizes = {TRAITS[op].size for op in self.ops}
        if len(sizes) > 1:
            sizes.discard("free")
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def told(self) -> str:
        """The collectives, for a message."""
        return " or ".join(sorted(self.ops)) or "any collective"

    @property
    def share(self) -> float:
        """What algbw is of size over time."""
        return 1.0 if self.equal_ranks is None else 1 - 1 / self.equal_ranks

    def remarks(self, row: Row) -> Iterator[tuple[str, str]]:
        """(kind, remark) on a row that is taken: what does not fit and does not make it false."""
        if row.nbytes == 0 and not row.count:
            return
        itemsize = ITEMSIZES.get(row.dtype or "")
        if row.dtype is not None and itemsize is None:
            yield "types not known", f"type {row.dtype!r} is not known, so its count is not checked"
        elif itemsize is not None and row.count is not None:
            wrong = self._count_remark(row, row.count, itemsize)
            if wrong is not None:
                yield "counts that do not fit the size", wrong
        if row.redop and row.redop not in REDOPS:
            yield "operators not known", f"reduction operator {row.redop!r} is not known"
        if row.root is not None and self.nranks is not None and row.root >= self.nranks:
            yield "roots beyond the ranks", f"root {row.root} is beyond {self.nranks} ranks"
        if any(_lost_digits(half) for half in row.halves):
            yield (
                "figures with fewer digits than the tools print",
                "a figure has lost digits: cut or typed again",
            )
        if not self.is_cpu_time and any(self._is_rough(cell) for cell in cells_of([row])):
            yield (
                "figures that agree within 1 % only",
                "time, algbw and busbw agree within 1 % but not within their rounding: typed again",
            )

    def _count_remark(self, row: Row, count: int, itemsize: int) -> str | None:
        """How size, count and type disagree; a mismatch is kept, since some pages were typed again."""
        if self.size == "free":
            return None
        nbytes = count * itemsize
        ranks = ""
        if self.size == "whole":
            fits, how = nbytes == row.nbytes, "not"
        elif self.size == "part" and self.nranks is not None:
            fits, how = nbytes * self.nranks == row.nbytes, "not"
            ranks = f" x {self.nranks} ranks"
        else:
            fits, how = bool(nbytes) and row.nbytes % nbytes == 0, "no multiple of"
        if fits:
            return None
        return f"size {row.nbytes} is {how} count {count} x {itemsize} bytes{ranks}: one of them is wrong"

    def _is_rough(self, cell: Cell) -> bool:
        if speed_fit(cell, self.share) is Fit.NEARLY:
            return True
        if self.equal_ranks is not None:
            return False
        factor = self.factor
        known = factor is not None and (self.nranks is not None or factor == "one")
        return known and factor is not None and factor_fit(cell, factor, self.nranks or 1) is Fit.NEARLY


def _lost_digits(half: Half) -> bool:
    """Whether a figure has fewer decimals than any version prints.

    Source: nccl-tests, src/common.cu of v2.13.0 (times by their size, `%6.2f`) and getFloatStr of later ones.
    """
    time_us = half.time_us
    if time_us is not None and time_us.decimals < (2 if time_us.value < 100 else time_us.value < 10_000):
        return True
    bandwidths = (each for each in (half.algbw, half.busbw) if each is not None)
    return any(each.value < 1000 and each.decimals < 2 for each in bandwidths)


def _prints_as(row: Row, op: str) -> bool:
    """Whether the collective's rows have such an operator and root, where there are columns of them."""
    traits = TRAITS[op]
    if row.redop is not None and traits.operator is not None:
        # "" where it was left blank, which reducing ones never do.
        reduces = row.redop not in ("", "none")
        if reduces is not traits.operator and (reduces is False or row.redop in REDOPS):
            return False
    return row.root is None or (row.root >= 0) is traits.rooted


def contradiction(row: Row, checks: Checks) -> str | None:
    """Why a row cannot be true; None where it can."""
    if checks.ops and not any(_prints_as(row, op) for op in checks.ops):
        root = "" if row.root is None else f" and root {row.root}"
        return f"operator {row.redop or 'blank'}{root} are none of {checks.told}: another test's, or damaged"
    for half in row.halves:
        figures = (half.time_us, half.algbw, half.busbw)
        if any(each is not None and each.value > _MOST for each in figures):
            return "a figure is beyond all machines"
        others = (half.min_us, half.max_us, half.p99_us, half.max_error)
        if any(each is not None and each > _MOST for each in others):
            return "a figure is beyond all machines"
        if row.nbytes == 0 and any(each is not None and each.value for each in figures[1:]):
            return "size 0, but a bandwidth"
        if half.min_us is not None and half.max_us is not None and half.min_us > half.max_us:
            return "the shortest iteration is longer than the longest"
    for cell in cells_of([row]):
        if not checks.is_cpu_time and not speed_fit(cell, checks.share):
            share = "" if checks.share == 1 else f", {checks.share:.3g} of it,"
            return f"{_told(cell.rate)} GB/s by size over time{share} but algbw {_value(cell.algbw)}"
        if not _factor_holds(cell, checks):
            return _factor_reason(cell, checks)
    return None


def _factor_holds(cell: Cell, checks: Checks) -> bool:
    if cell.algbw is None or cell.busbw is None:
        return True
    if checks.equal_ranks is not None:
        return cell.algbw.span.meets(cell.busbw.span, TOLERANCE)
    factors = _FACTORS if checks.factor is None else (checks.factor,)
    if checks.nranks is not None:
        return any(factor_fit(cell, factor, checks.nranks) for factor in factors)
    speed = cell.algbw.span if checks.is_cpu_time else cell.speed
    found = ratio(speed, cell.busbw.span)
    wide = Span(found.low * (1 - TOLERANCE), found.high * (1 + TOLERANCE))
    return any(_some_ranks(factor, wide) for factor in factors)


def _some_ranks(factor: Factor, found: Span) -> bool:
    if factor == "one":
        return found.low <= 1 <= found.high
    fewest, most = ranks_between(factor, found)
    return fewest <= most


def _factor_reason(cell: Cell, checks: Checks) -> str:
    assert cell.algbw is not None
    assert cell.busbw is not None
    algbw, busbw = cell.algbw.value, cell.busbw.value
    if checks.nranks is None or checks.factor is None:
        return f"busbw {busbw:g} does not follow from algbw {algbw:g}, whatever the ranks of {checks.told}"
    factor = factor_of(checks.factor, checks.nranks)
    where = f"{checks.told} on {checks.nranks} ranks"
    return f"busbw {busbw:g} is not {factor:.4g} x algbw {algbw:g}, as for {where}"


def _told(rate: Span) -> str:
    return f"{rate.low:.4g}" if rate.high == rate.low else f"{rate.low:.4g} to {rate.high:.4g}"


def _value(printed: Figure | None) -> str:
    return "none" if printed is None else f"{printed.value:g}"
