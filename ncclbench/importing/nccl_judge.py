"""What a table's rows say together: their layout where the header is lost, the collective, the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ncclbench.importing.nccl_layout import ITEMSIZES, KNOWN, Columns, NotARow, Row, is_deviation, split
from ncclbench.importing.physics import (
    Factor,
    Figure,
    Fit,
    Span,
    Votes,
    agree,
    factor_of,
    ranks_between,
    rate_GBs,
    ratio,
    vote,
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What tells one collective's rows from another's.

    Attributes:
        factor: of busbw over algbw.
        size: "whole" where size is count x element, "part" where it is that times the ranks, "free" where
            neither need be.
        operator: whether a reduction operator is printed; None where it is left blank.
        rooted: whether a root is.
        in_place: whether wrong values are counted in place, too; N/A otherwise.
    """

    factor: Factor
    size: Literal["whole", "part", "free"]
    operator: bool | None
    rooted: bool
    in_place: bool = True


# Source: nccl-tests, src/*.cu, GetBw, GetCollByteCount and RunTest.
TRAITS = {
    "all_reduce": Traits("twice", "whole", True, False),
    "all_gather": Traits("part", "part", False, False),
    "reduce_scatter": Traits("part", "part", True, False),
    "broadcast": Traits("one", "whole", False, True),
    "reduce": Traits("one", "whole", True, True),
    "all_to_all": Traits("part", "part", False, False, in_place=False),
    "all_to_allv": Traits("part", "free", False, False, in_place=False),
    "send_recv": Traits("one", "whole", True, False, in_place=False),
    "scatter": Traits("part", "part", False, True),
    "gather": Traits("part", "part", False, True),
    "hypercube": Traits("one", "part", None, False),
}
# Before June 2020 algbw of these held (n-1)/n already and equalled busbw; hypercube's does to this day.
FORMERLY_EQUAL = frozenset({"all_gather", "reduce_scatter"})


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one half that can be checked: its size, bandwidth by size and time, and as printed."""

    nbytes: int
    count: int | None
    itemsize: int | None
    rate: Span
    time_us: Figure
    algbw: Figure | None
    busbw: Figure | None

    @property
    def speed(self) -> Span:
        """algbw as narrow as all figures leave it."""
        if self.algbw is None:
            return self.rate
        printed = self.algbw.span
        low, high = max(printed.low, self.rate.low), min(printed.high, self.rate.high)
        return Span(low, high) if low <= high else printed

    @property
    def is_sharp(self) -> bool:
        """Whether busbw over algbw can tell anything."""
        algbw, busbw = self.algbw, self.busbw
        return (
            algbw is not None and busbw is not None and algbw.is_sharp and (busbw.is_sharp or not busbw.value)
        )

    @property
    def parts(self) -> int | None:
        """Size over count x element where that is a whole number: the ranks, or 1."""
        if not self.count or not self.itemsize:
            return None
        parts, rest = divmod(self.nbytes, self.count * self.itemsize)
        return parts if parts and not rest else None


def cells_of(rows: Iterable[Row]) -> list[Cell]:
    """One for each half of each row that moved data in a time that can be told."""
    return [
        Cell(row.nbytes, row.count, ITEMSIZES.get(row.dtype or ""), rate_GBs(row.nbytes, half.time_us),
             half.time_us, half.algbw, half.busbw)
        for row in rows
        for half in row.halves
        if row.nbytes and half.time_us is not None
    ]  # fmt: skip


def speed_fit(cell: Cell, share: float = 1.0) -> Fit:
    """Whether algbw is ``share`` of size over time."""
    if cell.algbw is None:
        return Fit.EXACT
    return agree(Span(cell.rate.low * share, cell.rate.high * share), cell.algbw.span)


def factor_fit(cell: Cell, kind: Factor, nranks: int) -> Fit:
    """Whether busbw is the factor on that many ranks times algbw."""
    if cell.busbw is None or cell.algbw is None:
        return Fit.EXACT
    factor = factor_of(kind, nranks)
    speed = cell.speed
    fit = agree(Span(speed.low * factor, speed.high * factor), cell.busbw.span)
    if fit is Fit.EXACT:
        return fit
    printed = cell.algbw.span
    return max(
        fit,
        Fit.NEARLY if agree(Span(printed.low * factor, printed.high * factor), cell.busbw.span) else Fit.NO,
    )


def ranks_by_factor(cells: Iterable[Cell], kind: Factor) -> Votes:
    """The ranks by busbw over algbw."""
    return vote(
        ranks_between(kind, ratio(cell.speed, cell.busbw.span))
        for cell in cells
        if cell.is_sharp and cell.busbw is not None
    )


def ranks_by_count(cells: Sequence[Cell]) -> int | None:
    """Size over count x element where nine of ten cells agree on it."""
    counted = Counter(cell.parts for cell in cells if cell.count)
    if not counted:
        return None
    parts, agreeing = counted.most_common(1)[0]
    return parts if parts is not None and agreeing >= 0.9 * counted.total() else None


def layout_of(rows: Sequence[tuple[int, list[str]]]) -> Columns | None:
    """The layout in which rows without a header are true; None if there is none, or several.

    A time that is none, or bandwidth that does not follow from size and time, rules a layout out for a row.
    """
    sample = rows[:: max(1, len(rows) // 200)]
    fits = [(sum(_is_true(line, tokens, columns) for line, tokens in sample), columns) for columns in KNOWN]
    best = max(count for count, _ in fits)
    found = [columns for count, columns in fits if count == best]
    # Those that differ in nothing but what the last column of a half holds are told apart by the row itself.
    return (
        found[0]
        if best and len({(len(each.names), each.halves[0]["time"], each.unit_us) for each in found}) == 1
        else None
    )


def _is_true(line: int, tokens: Sequence[str], columns: Columns) -> bool:
    try:
        row = split(line, tokens, columns)
    except NotARow:
        return False
    shift = len(tokens) - len(columns.names)  # a blank operator
    if any("error" in each and not is_deviation(tokens[each["error"] + shift]) for each in columns.halves):
        return False
    for half in row.halves:
        if half.time_us is None or not _is_printed_time(half.time_us, columns.unit_us):
            return False
        if row.halves[0].wrong is not None and half.max_error is not None:
            return False
    return all(speed_fit(cell) or _reduced(cell) for cell in cells_of([row]))


def _is_printed_time(time_us: Figure, unit_us: float) -> bool:
    """Whether the tool prints such a time so: ms with three decimals, us with two at most."""
    if unit_us == 1000:
        return time_us.decimals == 3
    return time_us.decimals == 2 or (time_us.value >= 100 and time_us.decimals <= 1)


def _reduced(cell: Cell) -> bool:
    return cell.parts is not None and cell.parts > 1 and bool(speed_fit(cell, 1 - 1 / cell.parts))


def equal_bandwidths(cells: Sequence[Cell], nranks: int | None) -> int | None:
    """Ranks n where algbw is (n-1)/n of size over time and busbw equals it; None where that is not so.

    Args:
        nranks: as the header says.
    """
    sharp = [cell for cell in cells if cell.is_sharp]
    parts = ranks_by_count(cells) or nranks
    if not sharp or parts is None or parts < 2:
        return None
    share = 1 - 1 / parts
    reduced = sum(
        1
        for cell in sharp
        if speed_fit(cell, share) and cell.algbw and cell.busbw and agree(cell.algbw.span, cell.busbw.span)
    )
    plain = sum(1 for cell in sharp if speed_fit(cell) is Fit.EXACT)
    return parts if reduced > 0.5 * len(sharp) and reduced > plain else None


def possible_ops(rows: Sequence[Row], columns: Columns) -> set[str]:
    """Collectives that print such columns, operators, roots and checks."""
    if any("error" in half for half in columns.halves) and not _most(row.root == -1 for row in rows):
        return _by_columns(rows, columns)
    found = dict(TRAITS)
    if "redop" in columns.names:
        if _most(row.redop == "" for row in rows):
            # all_to_all left it blank in 2.13.0; of others, "none" may have been lost.
            found = {op: found[op] for op in ("hypercube", "all_to_all", "all_gather")}
        else:
            operator = _most(row.redop != "none" for row in rows)
            found = {op: traits for op, traits in found.items() if traits.operator is operator}
    if "root" in columns.names:
        rooted = _most(row.root is not None and row.root >= 0 for row in rows)
        found = {op: traits for op, traits in found.items() if traits.rooted is rooted}
    pairs = [row.halves for row in rows if len(row.halves) == 2]
    checked = [second for first, second in pairs if first.wrong is not None]
    if 2 * len(checked) > len(pairs):
        counted = _most(half.wrong is not None for half in checked)
        found = {op: traits for op, traits in found.items() if traits.in_place is counted}
    if "hypercube" in found and equal_bandwidths(cells_of(rows), None) is not None:
        return {"hypercube"}  # all others were mended before this layout
    return set(found)


def usual_root(rows: Sequence[Row]) -> int | None:
    """The root of all rows, or of all but one; None where they have several, as with ``-r -1``."""
    roots = Counter(row.root for row in rows)
    root, number = roots.most_common(1)[0] if roots else (None, 0)
    return root if number > 2 and number >= len(rows) - 1 else None


def _most(answers: Iterable[bool]) -> bool:
    """Whether it is so in more rows than not: a damaged one decides nothing."""
    found = list(answers)
    return 2 * sum(found) > len(found)


def _by_columns(rows: Sequence[Row], columns: Columns) -> set[str]:
    """Before 2.13 each collective had the columns it needs."""
    if "root" in columns.names:
        return {"reduce"} if "redop" in columns.names else {"broadcast", "scatter", "gather"}
    if "redop" in columns.names:
        return {"all_reduce", "reduce_scatter"} if _most(bool(row.redop) for row in rows) else {"all_to_all"}
    return {"all_gather"} if columns.unit_us == 1000 else {"all_gather", "send_recv", "hypercube"}


def fitting(ops: Iterable[str], cells: Sequence[Cell], nranks: int | None) -> set[str]:
    """Those of the collectives whose bandwidths and counts these are.

    Args:
        nranks: as the header says; None leaves it to the figures.
    """
    shares = {op: _share(op, cells, nranks) for op in ops}
    best = max(shares.values(), default=0.0)
    found = {op for op, share in shares.items() if share >= 0.5 and share >= best - 0.1}
    counts = {op: _counted(op, cells, nranks) for op in found}
    most = max(counts.values(), default=0.0)
    return {op for op in found if counts[op] >= most - 0.1} if most >= 0.9 else found


def _share(op: str, cells: Sequence[Cell], nranks: int | None) -> float:
    """Of the cells that tell anything, those that fit; 1 where none does."""
    traits = TRAITS[op]
    sharp = [cell for cell in cells if cell.is_sharp]
    if not sharp:
        return 1.0
    equal = equal_bandwidths(cells, nranks)
    if op == "hypercube":
        return 1.0 if equal is not None else 0.0
    if equal is not None:
        return 1.0 if op in FORMERLY_EQUAL else 0.0
    if traits.factor == "one" or nranks is not None:
        return sum(1 for cell in sharp if factor_fit(cell, traits.factor, nranks or 1)) / len(sharp)
    votes = ranks_by_factor(cells, traits.factor)
    return votes.agreeing / votes.cells if votes.cells else 1.0


def _counted(op: str, cells: Sequence[Cell], nranks: int | None) -> float:
    """Of the cells with a count, those whose size is what the collective makes of it."""
    counts = [cell for cell in cells if cell.count and cell.itemsize]
    if not counts:
        return 0.0
    traits = TRAITS[op]
    if traits.size == "free":
        return 0.5
    if traits.size == "whole":
        return sum(1 for cell in counts if cell.parts == 1) / len(counts)
    votes = ranks_by_factor(cells, traits.factor)
    parts = ranks_by_count(counts)
    if parts is None or (votes.agreeing and not votes.fewest <= parts <= votes.most and parts != nranks):
        return 0.0
    return sum(1 for cell in counts if cell.parts == parts) / len(counts)
