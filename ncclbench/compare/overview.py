"""A comparison in few lines: each collective's small and large messages, and one row for spreadsheets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# Below, latency counts; from here on, bandwidth.
LARGE_BYTES = 64 << 10

# In the order in which a reader cares.
WORDS = ("slower", "faster", "same", "unclear")

Row = Mapping[str, Any]


def by_collective(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One entry for each collective, mode and class of sizes, in the order of the rows.

    Returns:
        ``op``, ``mode``, ``base`` and ``new``, ``messages`` ("small": under 64 KiB, or "large"), ``rows``,
        ``ratio`` (geometric mean of the ratios of times, null where no row has one) and the number of
        rows with each verdict under its word.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        messages = "large" if row["nbytes"] >= LARGE_BYTES else "small"
        key = (row["op"], row["mode"], messages, str(row["base"]), str(row["new"]))
        groups.setdefault(key, []).append(row)
    return [
        {
            "op": op,
            "mode": mode,
            "messages": messages,
            "base": base,
            "new": new,
            "rows": len(members),
            "ratio": typical_ratio(members),
            **counts(members),
        }
        for (op, mode, messages, base, new), members in groups.items()
    ]


def typical_ratio(rows: Sequence[Row]) -> float | None:
    """The geometric mean of the rows' ratios; None where none has one."""
    logs = [math.log(row["ratio"]) for row in rows if row["ratio"]]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows have each verdict."""
    found = Counter(row["verdict"] for row in rows)
    return {word: found[word] for word in WORDS}


def counted(found: Mapping[str, int]) -> str:
    """The words that occur with their numbers: "3 slower, 12 same"."""
    return ", ".join(f"{found[word]:,} {word}" for word in WORDS if found.get(word))


def flat(row: Row) -> dict[str, Any]:
    """A row of plain values: each quantile of the shift function in columns of its own."""
    columns = {key: value for key, value in row.items() if key != "shift"}
    for entry in row.get("shift") or ():
        for key in ("ratio", "ci_low", "ci_high"):
            columns[f"shift_{entry['quantile']}_{key}"] = entry[key]
    return columns
