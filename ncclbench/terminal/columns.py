"""Columns of text: the one place that aligns cells, for every table on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ncclbench.terminal.streams import one_line

Row = dict[str, Any]

# Between two columns.
GAP = "  "


def padded(
    cells: Sequence[str], widths: Sequence[int], left: Collection[int] | None = (0,), gap: str = GAP
) -> str:
    """One line of cells; for tables whose lines come one by one, so that widths are known beforehand.

    Args:
        widths: of the columns, in characters; a longer cell is not cut.
        left: numbers of the columns that stand to the left, the others to the right; None: all of them.
    """
    return gap.join(
        cell.ljust(width) if left is None or column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def aligned(
    lines: Sequence[Sequence[str]],
    left: Collection[int] | None = (0,),
    gap: str = GAP,
    at_least: Sequence[int] = (),
) -> list[str]:
    """Lines of cells under each other, each column as wide as its longest cell.

    Args:
        lines: of one number of cells each.
        left: as in ``padded``.
        at_least: how wide the first columns are even where no cell is.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    least = [*at_least, *[0] * (len(widths) - len(at_least))]
    return [padded(line, [*map(max, widths, least)], left, gap) for line in lines]


def headed(lines: Sequence[str]) -> list[str]:
    """The first line as a comment, for programs that read the table, and the others under it."""
    return [f"{'  ' if number else '# '}{line}" for number, line in enumerate(lines)]


def indented(lines: Sequence[str]) -> list[str]:
    """All lines under a heading that stands above them."""
    return [f"  {line}" for line in lines]


def commented(line: str) -> str:
    """``line`` with its first, blank character made a ``#``, so that programs skip it."""
    return f"#{line[1:]}".rstrip()


def table(
    title: str,
    columns: Sequence[tuple[str, Callable[[Row], str]]],
    rows: Sequence[Row],
    left: Collection[str] = (),
) -> list[str]:
    """Lines of cells under a title and a line of headings; the first column and ``left`` are to the left."""
    to_left = [not index or heading in left for index, (heading, _) in enumerate(columns)]
    cells = [[heading for heading, _ in columns]]
    cells += [[one_line(text(row)) for _, text in columns] for row in rows]
    own_left = {index for index, is_left in enumerate(to_left) if is_left}
    return [one_line(f"# {title}"), *headed(aligned(cells, own_left))]
