"""A plain table on a terminal: a title, a line of headings, and a line for each row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ncclbench.terminal.streams import one_line

Row = dict[str, Any]


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
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [one_line(f"# {title}")]
    for number, line in enumerate(cells):
        first, *rest = (
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, to_left, strict=True)
        )
        lines.append("  ".join(["# " + first if number == 0 else "  " + first, *rest]).rstrip())
    return lines
