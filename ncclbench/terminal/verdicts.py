"""Verdicts in words: one line per comparison of a sweep with several arms, and one that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.compare.overview import counted, counts
from ncclbench.terminal.columns import aligned, indented
from ncclbench.terminal.streams import one_line
from ncclbench.units import format_bytes

# What is to be had more of, by the unit of a comparison.
_MORE = {"epochs": "more --epochs", "launches": "more launches", "nodes": "more nodes"}


def verdict_lines(comparisons: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of ratios with their verdicts, each arm's counts last; nothing for a run with one arm."""
    if not comparisons:
        return []
    first = comparisons[0]
    lines = [
        "#",
        f"# {first['statistic']} of time against {first['base']}: ratio of times, 95 % interval, verdict",
    ]
    lines += indented(
        aligned([(case_name(row), str(row["new"]), _ratio(row)) for row in comparisons], left=None)
    )
    for arm in dict.fromkeys(row["new"] for row in comparisons):
        found = counts([row for row in comparisons if row["new"] == arm])
        lines.append(f"# {arm} against {first['base']}: {counted(found)}")
    if all(row["verdict"] == "unclear" for row in comparisons):
        lines.append(f"# no verdict: {why_unclear(comparisons)}")
    return lines


def case_name(row: Mapping[str, Any]) -> str:
    """A case as people say it: "all_reduce float32 sum 64K isolated"."""
    parts = [row["op"], row["dtype"], row["redop"] or "", format_bytes(row["nbytes"]), row["mode"]]
    if row["async"]:
        parts.append("async")
    return " ".join(part for part in parts if part)


def why_unclear(rows: Sequence[Mapping[str, Any]]) -> str:
    """What stood in the way of most of these rows, all of them unclear, and what to do about it."""
    reasons = Counter(str(row["doubt"] or "") for row in rows)
    reason, count = reasons.most_common(1)[0]
    row = next(row for row in rows if str(row["doubt"] or "") == reason)
    if not reason:
        return f"the {row['unit']} vary too much: {_MORE[row['unit']]}, or a quieter machine"
    if reason.startswith("these two launches"):
        return "one launch a side cannot tell: repeat both and compare --base R1 R2 R3 R4 --new R5 R6 R7 R8"
    told = one_line(reason)
    if reason.startswith(f"{row['epochs']} epochs on both arms"):
        told = f"too few epochs in one job ({told}): {_MORE['epochs']}"
    return told if count == len(rows) else f"{told} (and other reasons)"


def verdict_words(row: Mapping[str, Any]) -> list[str]:
    """The verdict of a row, with its ratio, and what to know of it beside its note."""
    word, ratio, least = row["verdict"], row["ratio"], row.get("detectable")
    words = [word if ratio is None or word == "unclear" else f"{ratio:.2f}x time, {word}"]
    if row.get("tail"):
        words.append(row["tail"])
    if word == "unclear" and not row.get("doubt") and least:
        words.append(f"would find {100 * least:.1f} % and more")
    if row.get("between_modes"):
        words.append("sits between two modes")
    return words


def _ratio(row: Mapping[str, Any]) -> str:
    words = [row["verdict"], row.get("tail"), row.get("note")]
    if row.get("between_modes"):
        words.append("sits between two modes")
    said = ", ".join(str(word) for word in words if word)
    if row["ratio"] is None:
        return said
    interval = ""
    if row["ci_low"] is not None:
        interval = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    return f"{row['ratio']:.3f}x time{interval}  {said}"
