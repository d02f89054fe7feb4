"""What a run of ``groups`` says, in sentences: for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from ncclbench.stats.group_costs import GroupsFound, leaks
from ncclbench.units import count_text, format_bytes, format_memory, rank_ranges

Row = dict[str, Any]
TimeText = Callable[[float], str]

# Places of wrong data that a sentence names.
_PLACES_SHOWN = 4
# A slowdown whose interval lies above it is called one.
_SLOWED = 1.05


def what_text(row: Row) -> str:
    """What was counted as communicators: connections where it was these."""
    noun = "connection" if str(row["counted"]).startswith("TCP") else "communicator"
    return count_text(round(row["communicators"]), noun)


def wrong_said(found: GroupsFound) -> list[str]:
    """Whose data were wrong: "WRONG DATA in 12 elements: group of ranks 2-3 in pairs on gloo, 1K"."""
    if not found.wrong:
        return []
    places = [
        f"group of {rank_ranges(row['ranks'])} in {row['topology']} on {row['arm']}, "
        f"{format_bytes(row['nbytes'])}"
        for row in sorted(found.at_once, key=lambda row: -row["wrong"])
        if row["wrong"]
    ]
    places += [
        f"order {row['order']} on {row['arm']}, {format_bytes(cell['nbytes'])}"
        for row in found.crossed
        for cell in row["cells"]
        if cell["wrong"]
    ]
    more = f" and {len(places) - _PLACES_SHOWN} more" if len(places) > _PLACES_SHOWN else ""
    return [f"WRONG DATA in {count_text(found.wrong, 'element')}: {'; '.join(places[:_PLACES_SHOWN])}{more}"]


def headline(found: GroupsFound, time_text: TimeText) -> str:
    """The answer in one sentence for each arm: how many communicators, memory and time most groups cost."""
    said = [cost_said(row, time_text) for row in most_groups(found.rows)]
    if not said:
        said = [*at_once_said(found.at_once), *crossed_said(found.crossed)]
    return "; ".join(said) or "nothing was measured"


def most_groups(rows: Sequence[Row]) -> list[Row]:
    """Per arm and way the row with the most groups."""
    most: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["arm"], row["way"])
        if key not in most or row["groups"] > most[key]["groups"]:
            most[key] = row
    return list(most.values())


def cost_said(row: Row, time_text: TimeText) -> str:
    """What a row's groups cost: "128 groups on gloo by new_group: 128 connections, 24 MiB, 1.2 s"."""
    held = [] if row["communicators"] is None else [f"{what_text(row)} a rank"]
    if row["device_bytes"] is not None:
        held.append(f"{format_memory(row['device_bytes'])} of device memory")
    if row["rss_bytes"] is not None:
        held.append(f"{format_memory(row['rss_bytes'])} of host memory")
    held.append(f"{time_text(row['total_us'])} until all have worked")
    return f"{count_text(row['groups'], 'group')} on {row['arm']} by {row['way']}: {', '.join(held)}"


def compared_said(rows: Sequence[Row]) -> list[str]:
    """How arms stand to the first, with the most groups."""
    said = []
    for row in most_groups(rows):
        if row["ratio"] is not None:
            told = f"{row['arm']} takes {row['ratio']:.2f}x the time of {row['base']}"
            if row["ratio_ci_low"] is not None:
                told += f" ({row['ratio_ci_low']:.2f} to {row['ratio_ci_high']:.2f})"
            said.append(f"{told} for {count_text(row['groups'], 'group')} by {row['way']}")
    return said


def leaks_said(rows: Sequence[Row]) -> list[str]:
    """What stays when groups have ended; one sentence where nothing does."""
    said = []
    for row in most_groups(rows):
        stays = leaks(row)
        if stays:
            groups = count_text(row["groups"], "group")
            said.append(
                f"{', '.join(stays)} stay on a rank when {groups} on {row['arm']} by {row['way']} have ended"
            )
    if rows and not said:
        said.append("nothing but memory that the library keeps stays of groups that have ended")
    return said


def at_once_said(rows: Sequence[Row]) -> list[str]:
    """Per arm, the group that is slowed most, and how many are for certain."""
    said = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm and row["slowdown"] is not None]
        if not own:
            continue
        worst = max(own, key=lambda row: row["slowdown"])
        slowed = sum(row["ci_low"] is not None and row["ci_low"] > _SLOWED for row in own)
        interval = ""
        if worst["ci_low"] is not None:
            interval = f" ({worst['ci_low']:.2f} to {worst['ci_high']:.2f})"
        said.append(
            f"{count_text(worst['at_once'], 'group')} at once on {arm}: the one of ranks "
            f"{','.join(map(str, worst['ranks'][:8]))} takes up to {worst['slowdown']:.2f}x its time alone"
            f"{interval}, {worst['op']} of {format_bytes(worst['nbytes'])}; slowed beyond chance in {slowed} "
            f"of {len(own)} rows"
        )
    return said


def crossed_said(rows: Sequence[Row]) -> list[str]:
    """What became of the orders of calling, by outcome."""
    said = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row["outcome"])
        for outcome, same in groupby(own, lambda row: row["outcome"]):
            said.append(f"{outcome} on {arm}: {', '.join(row['order'] for row in same)}")
    return said
