"""What a person sees of a run of ``groups``: a table for each part, and the answer in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ncclbench.stats.group_costs import GroupsFound
from ncclbench.stats.group_words import (
    at_once_said,
    compared_said,
    cost_said,
    crossed_said,
    leaks_said,
    most_groups,
    wrong_said,
)
from ncclbench.tables.groups import CROSSED_OP
from ncclbench.terminal.columns import aligned, indented, table
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING
from ncclbench.units import count_text, format_bytes, format_memory, format_time, format_us

Row = dict[str, Any]


def groups_lines(found: GroupsFound) -> list[str]:
    """What stands above the answer on a terminal."""
    parts = (
        [
            one_line(f"# {arm['arm']}: {arm['implementation'] or 'not here: ' + str(arm['reason'])}")
            for arm in found.arms
        ],
        _cost_lines(found.rows),
        _at_once_lines(found.at_once),
        _crossed_lines(found.crossed),
        [
            one_line(f"# left out: {line['part']} on {line['arm'] or 'any arm'}: {line['reason']}")
            for line in found.left_out
        ],
    )
    lines = [line for part in parts if part for line in ("#", *part)]
    return lines[1:]


def sentences(found: GroupsFound) -> list[str]:
    """The answer: what was wrong first, then what each part found."""
    said = wrong_said(found)
    if found.leftover_processes:
        said.append(f"{found.leftover_processes} processes left behind")
    said += [cost_said(row, format_time) for row in most_groups(found.rows)]
    said += [*compared_said(found.rows), *leaks_said(found.rows)]
    said += [*at_once_said(found.at_once), *crossed_said(found.crossed)]
    return said or ["nothing was measured"]


def _us(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else format_us(row[name])


def _bytes(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else format_memory(row[name])


def _count(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else f"{row[name]:g}"


def _interval(row: Row) -> str:
    if row["ci_low_us"] is None:
        return NOTHING
    return f"{format_us(row['ci_low_us'])}..{format_us(row['ci_high_us'])}"


def _cost_lines(rows: Sequence[Row]) -> list[str]:
    """Times, what is held and what stays, each in a table of its own that fits a terminal of 80 columns."""
    groups = ("groups", lambda row: str(row["groups"]))
    times = [
        groups,
        ("all", _us("total_us")),
        ("95% interval", _interval),
        ("making", _us("new_us")),
        ("first op", _us("first_us")),
        ("later op", _us("later_us")),
        ("first p2p", _us("p2p_us")),
        ("ending", _us("destroy_us")),
    ]
    held = [
        groups,
        ("communicators", _count("communicators")),
        ("host mem", _bytes("rss_bytes")),
        ("device mem", _bytes("device_bytes")),
        ("files", _count("files")),
        ("threads", _count("threads")),
    ]
    stays = [
        groups,
        ("host mem", _bytes("leaked_rss_bytes")),
        ("device mem", _bytes("leaked_device_bytes")),
        ("files", _count("leaked_files")),
        ("threads", _count("leaked_threads")),
    ]
    lines = []
    for key in dict.fromkeys((row["arm"], row["way"]) for row in rows):
        own = [row for row in rows if (row["arm"], row["way"]) == key]
        first = own[0]
        size = first["group_size"]
        whose = f"{key[0]} by {key[1]}, {first['kind']} groups of {count_text(size, 'rank')}"
        lines += table(f"{whose}: us of all groups together", times, own)
        lines += ["#", *table("what the fullest rank holds more than before it made them", held, own)]
        lines.append(one_line(f"# communicators: {first['counted']}"))
        lines += ["#", *table("what stays when all have ended", stays, own)]
    return lines


def _slowdowns(row: Row) -> str:
    return NOTHING if row["ci_low"] is None else f"{row['ci_low']:.2f}..{row['ci_high']:.2f}"


def _at_once_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        columns = [
            ("group", lambda row: f"{row['topology']} {row['group']}"),
            ("ranks", lambda row: ",".join(map(str, row["ranks"][:8]))),
            ("bytes", lambda row: format_bytes(row["nbytes"])),
            ("alone (us)", _us("alone_us")),
            ("at once", _us("together_us")),
            ("slowdown", lambda row: NOTHING if row["slowdown"] is None else f"{row['slowdown']:.2f}x"),
            ("95% interval", _slowdowns),
            ("#wrong", lambda row: str(row["wrong"])),
        ]
        title = f"{arm}, {own[0]['op']} in {own[0]['at_once']} groups at once, medians"
        lines += table(title, columns, own)
    return lines


def crossed_verdict(row: Row) -> str:
    """What became of an order, in a few words."""
    done = row["completed_to_nbytes"]
    if row["outcome"] == "completed":
        return f"completed up to {format_bytes(done)}"
    told = f"{row['outcome']} from {format_bytes(row['from_nbytes'])} on"
    return f"{told}, the smallest tried" if done is None else f"{told}, completed up to {format_bytes(done)}"


def _crossed_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        cuts = " and ".join(own[0]["topologies"])
        title = f"# {arm}, {CROSSED_OP} by ranks in groups of {cuts}, each cell in processes of its own"
        lines.append(one_line(title))
        cells = []
        for row in own:
            cells.append((one_line(row["order"]), crossed_verdict(row)))
            bad = next((cell for cell in row["cells"] if cell["nbytes"] == row["from_nbytes"]), None)
            if bad is not None:
                stood = ", ".join(f"rank {rank} {said}" for rank, said in bad["said"].items())
                cells.append(("", one_line(stood)))
        lines += indented(aligned(cells, left=None))
    return lines
