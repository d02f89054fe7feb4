"""What the page shows of runs that were measured by other tools."""

from __future__ import annotations

from collections.abc import Sequence

from ncclbench.report.model import Row

# Where the output of a tool does not tell: these stand in headings and legends, so they are words.
_UNKNOWN = {"op": "unknown operation", "dtype": "unknown type", "mode": "otherwise timed"}


def worded(rows: Sequence[Row]) -> list[Row]:
    """The rows with a word for each name that is not known."""
    return [{**row, **{key: word for key, word in _UNKNOWN.items() if row[key] is None}} for row in rows]
