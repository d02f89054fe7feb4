"""What a run with several arms says of them: one line per comparison, and one that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.units import format_bytes

# In the order in which a reader cares.
_WORDS = ("slower", "faster", "same", "unclear")


def verdict_lines(comparisons: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of ratios with their verdicts, each arm's counts last; nothing for a run with one arm."""
    if not comparisons:
        return []
    first = comparisons[0]
    lines = [
        "#",
        f"# {first['statistic']} of time against {first['base']}: ratio of times, 95 % interval, verdict",
    ]
    width = max(len(_case(row)) for row in comparisons)
    arm_width = max(len(str(row["new"])) for row in comparisons)
    lines += [f"  {_case(row):<{width}}  {row['new']:<{arm_width}}  {_ratio(row)}" for row in comparisons]
    for arm in dict.fromkeys(row["new"] for row in comparisons):
        counts = Counter(row["verdict"] for row in comparisons if row["new"] == arm)
        said = ", ".join(f"{counts[word]} {word}" for word in _WORDS if counts[word])
        lines.append(f"# {arm} against {first['base']}: {said}")
    if all(row["verdict"] == "unclear" for row in comparisons):
        lines.append("# more epochs (--epochs, 6 at least) or a quieter machine may make it clear")
    return lines


def _case(row: Mapping[str, Any]) -> str:
    parts = [row["op"], row["dtype"], row["redop"] or "", format_bytes(row["nbytes"]), row["mode"]]
    if row["async"]:
        parts.append("async")
    return " ".join(part for part in parts if part)


def _ratio(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return str(row["verdict"])
    interval = ""
    if row["ci_low"] is not None:
        interval = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    words = ", ".join(str(word) for word in (row["verdict"], row.get("tail"), row.get("note")) if word)
    return f"{row['ratio']:.3f}x time{interval}  {words}"
