"""What a person sees of a point-to-point run: a table for each part, and the answer in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from ncclbench.stats.p2p import P2p
from ncclbench.terminal.columns import NOTHING, table
from ncclbench.terminal.streams import one_line
from ncclbench.units import format_bytes, format_us

Row = dict[str, Any]

_MARKS = {"as-documented": "as documented", "otherwise": "OTHERWISE", "not-here": "not here"}


def p2p_lines(found: P2p) -> list[str]:
    """What stands above the answer on a terminal."""
    parts = (
        [
            f"# {arm['arm']}: {arm['implementation'] or 'not here: ' + str(arm['reason'])}"
            for arm in found.arms
        ],
        _way_lines(found.rows),
        _first_lines(found.first_calls),
        _peer_lines(found.peers),
        _ordering_lines(found.ordering),
        _semantics_lines(found.semantics),
        list(map(_left_out_line, found.left_out)),
    )
    lines = [line for part in parts if part for line in ("#", *part)]
    return lines[1:]


def _arm_line(arm: Row) -> str:
    return one_line(f"# {arm['arm']}: {arm['implementation'] or 'not here: ' + str(arm['reason'])}")


def _left_out_line(line: Row) -> str:
    where = f" on {line['arm']}" if line["arm"] else ""
    return one_line(f"# left out: {line['part']}{where}: {line['reason']}")


def sentences(found: P2p) -> list[str]:
    """The answer: what was wrong first, then a sentence for each part."""
    said = []
    if found.wrong:
        said.append(f"WRONG DATA in {found.wrong} messages")
    if found.leftover_processes:
        said.append(f"{found.leftover_processes} processes left behind")
    said += [text for text in (_ways_said(found.rows), _first_said(found.first_calls)) if text]
    said += [text for text in (_peers_said(found.peers), _ordering_said(found.ordering)) if text]
    said += [text for text in (_semantics_said(found.semantics),) if text]
    return said or ["nothing was measured"]


def _us(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else format_us(row[name])


def _interval(row: Row) -> str:
    if row["ci_low_us"] is None:
        return NOTHING
    return f"{format_us(row['ci_low_us'])}..{format_us(row['ci_high_us'])}"


def _size(row: Row) -> str:
    return format_bytes(row["nbytes"])


def _rate(row: Row) -> str:
    rate = row["bandwidth_GBs"]
    return NOTHING if rate is None else f"{rate:.{4 if rate < 1 else 2 if rate < 100 else 1}f}"


def way_title(row: Row) -> str:
    """A way with its direction: "isend", "isend, both ways"."""
    return f"{row['way']}, both ways" if row["both"] else str(row["way"])


def _way_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in _by_arm(rows):
        columns = [
            ("way", way_title),
            ("bytes", _size),
            ("call (us)", _us("host_us")),
            ("host free", _us("free_us")),
            ("done", _us("total_us")),
            ("there", _us("latency_us")),
            ("95% interval", _interval),
            ("GB/s", _rate),
            ("#wrong", lambda row: str(row["wrong"])),
        ]
        lines += table(f"{arm}, rank 0 to rank 1, medians", columns, own)
    return lines


def _first_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in _by_arm(rows):
        columns = [
            ("peer", lambda row: str(row["dst"])),
            ("first (us)", _us("first_us")),
            ("worst", _us("first_worst_us")),
            ("later", _us("later_us")),
            ("ratio", lambda row: NOTHING if row["ratio"] is None else f"{row['ratio']:.1f}x"),
        ]
        title = (
            f"{arm}, first message of {own[0]['nbytes']} bytes from rank 0 in a fresh group "
            f"(making it: {format_us(own[0]['init_us'])} us)"
        )
        lines += table(title, columns, own)
    return lines


def _peer_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in _by_arm(rows):
        columns = [
            ("peers at once", lambda row: f"{row['peers']}{' + ' + row['beside'] if row['beside'] else ''}"),
            ("bytes", _size),
            ("all (us)", _us("total_us")),
            ("alone", _us("one_us")),
            ("collective", _us("beside_us")),
            ("ratio", _ratio("ratio")),
            ("95% interval", _ratios),
            ("at best", _ratio("ratio_at_best")),
        ]
        title = f"{arm}, rank 0 to several peers (ratio: all at once over one after the other)"
        lines += table(title, columns, own)
    return lines


def _ratio(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else f"{row[name]:.2f}x"


def _ratios(row: Row) -> str:
    return NOTHING if row["ci_low"] is None else f"{row['ci_low']:.2f}..{row['ci_high']:.2f}"


def verdict(row: Row) -> str:
    """What became of an order, in a few words."""
    if row["outcome"] == "completed":
        return f"completed up to {format_bytes(row['completed_to_nbytes'])}"
    told = f"{row['outcome']} from {format_bytes(row['from_nbytes'])} on"
    if row["completed_to_nbytes"] is None:
        return f"{told}, the smallest tried"
    return f"{told}, completed up to {format_bytes(row['completed_to_nbytes'])}"


def _ordering_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in _by_arm(rows):
        lines.append(one_line(f"# {arm}, orders of calling on two ranks, each cell in processes of its own"))
        width = max(len(one_line(row["order"])) for row in own)
        for row in own:
            lines.append(f"  {one_line(row['order']):<{width}}  {verdict(row)}")
            bad = next((cell for cell in row["cells"] if cell["nbytes"] == row["from_nbytes"]), None)
            if bad is not None:
                stood = ", ".join(f"rank {rank} {said}" for rank, said in bad["said"].items())
                lines.append(f"  {'':<{width}}  {one_line(stood)}")
    return lines


def _semantics_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in _by_arm(rows):
        lines.append(one_line(f"# {arm}, what torch documents and what it does"))
        for row in own:
            lines.append(f"  {one_line(row['check'])}: {_MARKS[row['outcome']]}")
            lines.append(f"      documented: {row['documented'] or NOTHING}")
            lines.append(f"      seen: {one_line(row['said'])}")
    return lines


def _by_arm(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    arms = dict.fromkeys(row["arm"] for row in rows)
    return ((arm, [row for row in rows if row["arm"] == arm]) for arm in arms)


def _ways_said(rows: Sequence[Row]) -> str:
    plain = [row for row in rows if not row["both"] and row["bandwidth_GBs"] is not None]
    if not plain:
        return ""
    fastest = min(plain, key=lambda row: row["latency_us"])
    widest = max(plain, key=lambda row: row["bandwidth_GBs"])
    return (
        f"shortest latency {format_us(fastest['latency_us'])} us ({_which(fastest)}), "
        f"most bandwidth {_rate(widest)} GB/s ({_which(widest)})"
    )


def _which(row: Row) -> str:
    return f"{row['way']} of {_size(row)} on {row['arm']}"


def _first_said(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    worst = max(rows, key=lambda row: row["first_us"])
    return (
        f"a first message takes up to {format_us(worst['first_us'])} us "
        f"(rank {worst['dst']} on {worst['arm']}), later ones {format_us(worst['later_us'])} us"
    )


def _peers_said(rows: Sequence[Row]) -> str:
    said = []
    for arm, own in _by_arm([row for row in rows if row["ratio"] is not None and row["beside"] is None]):
        most = max(own, key=lambda row: (row["peers"], row["nbytes"]))
        said.append(
            f"{_size(most)} to {most['peers']} peers at once on {arm} takes {most['ratio']:.2f}x the time "
            "of one after the other"
        )
    return "; ".join(said)


def _ordering_said(rows: Sequence[Row]) -> str:
    said = []
    for outcome, same in groupby(sorted(rows, key=lambda row: row["outcome"]), lambda row: row["outcome"]):
        names = dict.fromkeys(row["order"] for row in same)
        said.append(f"{outcome}: {', '.join(names)}")
    return "; ".join(said)


def _semantics_said(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    otherwise = dict.fromkeys(row["check"] for row in rows if row["outcome"] == "otherwise")
    asked = len({row["check"] for row in rows if row["outcome"] != "not-here"})
    if not otherwise:
        return f"torch does what it documents in {asked} of {asked} questions"
    names = ", ".join(otherwise)
    return (
        f"torch does otherwise than documented or thought in {len(otherwise)} of {asked} questions: {names}"
    )
