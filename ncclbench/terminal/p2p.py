"""What a person sees of a point-to-point run: a table for each part, and the answer in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from ncclbench.stats.p2p import P2p, by_arm, outcomes_of, quotable, size_words, way_words
from ncclbench.terminal.columns import aligned, indented, table
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING
from ncclbench.units import format_bytes, format_us

Row = dict[str, Any]

_MARKS = {
    "otherwise": "OTHERWISE",
    "not-here": "not here",
    "unanswered": "UNANSWERED",
}
_WIDTH = 80


def p2p_lines(found: P2p) -> list[str]:
    """What stands above the answer on a terminal."""
    parts = (
        list(map(_arm_line, found.arms)),
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


def _way_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in by_arm(rows).items():
        columns = [
            ("way", lambda row: way_words(row).removesuffix(" ways")),
            ("bytes", _size),
            ("call", _us("host_us")),
            ("free", _us("free_us")),
            ("done", _us("total_us")),
            ("there", _us("latency_us")),
            ("95% interval", _interval),
            ("GB/s", _rate),
        ]
        if any(row["wrong"] for row in own):
            columns.append(("#wrong", lambda row: str(row["wrong"])))
        lines += table(f"{arm}, rank 0 to rank 1, medians in us", columns, own)
    if lines:
        lines += [
            "# call: returned; free: from then until done, for the host; done: on rank 0;",
            "# there: on rank 1 since the fence, of a ping-pong half the round trip;",
            "# both: as much the other way at the same time, GB/s of one way",
        ]
    return lines


def _first_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in by_arm(rows).items():
        columns = [
            ("peer", lambda row: str(row["dst"])),
            ("first", _us("first_us")),
            ("worst", _us("first_worst_us")),
            ("later", _us("later_us")),
            ("ratio", lambda row: NOTHING if row["ratio"] is None else f"{row['ratio']:.1f}x"),
            ("group", _us("init_us")),
            ("group + first", _us("cold_us")),
        ]
        title = f"{arm}, first {own[0]['nbytes']} bytes from rank 0 in a fresh group, medians in us"
        lines += table(title, columns, own)
    return lines


def _peer_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in by_arm(rows).items():
        columns = [
            ("peers", lambda row: f"{row['peers']}{' + ' + row['beside'] if row['beside'] else ''}"),
            ("bytes", _size),
            ("all", _us("total_us")),
            ("alone", _us("one_us")),
            ("collective", _us("beside_us")),
            ("ratio", _ratio("ratio")),
            ("95% interval", _ratios),
            ("best", _ratio("ratio_at_best")),
        ]
        lines += table(f"{arm}, rank 0 to several peers at once, medians in us", columns, own)
    if lines:
        lines.append("# ratio: time of all at once over one after the other; best: if none waits")
    return lines


def _ratio(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else f"{row[name]:.2f}x"


def _ratios(row: Row) -> str:
    return NOTHING if row["ci_low"] is None else f"{row['ci_low']:.2f}..{row['ci_high']:.2f}"


def verdict(row: Row) -> str:
    """What became of an order, in a few words."""
    good = row["completed_to_nbytes"]
    told = "the smallest tried" if good is None else f"completed up to {size_words(good)}"
    if row["outcome"] != "completed":
        told = f"{row['outcome']} from {size_words(row['from_nbytes'])} on, {told}"
    return f"{told}, WRONG DATA" if any(cell["wrong"] for cell in row["cells"]) else told


def _ordering_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in by_arm(rows).items():
        lines.append(one_line(f"# {arm}, orders of calling on two ranks, each cell in processes of its own"))
        cells = []
        for row in own:
            cells.append((one_line(row["order"]), verdict(row)))
            if row["stood"]:
                cells.append(("", one_line(row["stood"])))
        lines += indented(aligned(cells, left=None))
    return lines


def _mark(row: Row) -> str:
    expected = "as one would think" if row["silent"] else "as documented"
    return _MARKS.get(row["outcome"], expected)


def _semantics_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    for arm, own in by_arm(rows).items():
        lines.append(one_line(f"# {arm}, what torch documents and what it does"))
        for row in own:
            lines.append(f"  {one_line(row['check'])}: {_mark(row)}")
            for what, words in (("documented", row["documented"] or NOTHING), ("seen", row["said"])):
                lines += textwrap.wrap(
                    f"{what}: {one_line(words)}", _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8
                )
    return lines


def _ways_said(rows: Sequence[Row]) -> str:
    said = []
    for arm, own in by_arm(rows).items():
        quoted = quotable(own)
        if quoted is not None:
            latency, bandwidth = quoted
            half = "half of " if latency["round_trip"] else ""
            interval = "" if latency["ci_low_us"] is None else f" [{_interval(latency)}]"
            said.append(
                f"{arm}: latency {format_us(latency['latency_us'])}{interval} us ({half}{_which(latency)}), "
                f"most bandwidth one way {_rate(bandwidth)} GB/s ({_which(bandwidth)})"
            )
    return "; ".join(said)


def _which(row: Row) -> str:
    return f"{row['way']} of {size_words(row['nbytes'])}"


def _first_said(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    worst = max(rows, key=lambda row: row["first_us"])
    return (
        f"a first message takes {format_us(worst['first_us'])} us, at worst "
        f"{format_us(worst['first_worst_us'])} us (rank {worst['dst']} on {worst['arm']}), "
        f"later ones {format_us(worst['later_us'])} us"
    )


def _peers_said(rows: Sequence[Row]) -> str:
    said = []
    alone = [row for row in rows if row["ratio"] is not None and row["beside"] is None]
    for arm, own in by_arm(alone).items():
        most = max(own, key=lambda row: (row["peers"], row["nbytes"]))
        what = f"{size_words(most['nbytes'])} to {most['peers']} peers at once on {arm}"
        interval = "" if most["ci_low"] is None else f" [{_ratios(most)}]"
        said.append(f"{what} takes {most['ratio']:.2f}x{interval} the time of one after the other")
    return "; ".join(said)


def _ordering_said(rows: Sequence[Row]) -> str:
    """By outcome and arm: an order may end on one arm and not on another."""
    arms = by_arm(rows)
    said = []
    for arm, own in arms.items():
        where = f" on {arm}" if len(arms) > 1 else ""
        for outcome in sorted({row["outcome"] for row in own}):
            names = [row["order"] for row in own if row["outcome"] == outcome]
            said.append(f"{outcome}{where}: {', '.join(names)}")
    return "; ".join(said)


def _semantics_said(rows: Sequence[Row]) -> str:
    told = outcomes_of(rows)
    said = []
    if told.otherwise:
        said.append(
            f"torch does otherwise than documented or thought in {len(told.otherwise)} of {len(told.asked)} "
            f"questions: {', '.join(told.otherwise)}"
        )
    elif told.asked:
        said.append(
            f"torch does as documented or thought in {len(told.asked)} of {len(told.asked)} questions"
        )
    if told.unanswered:
        said.append(f"unanswered: {', '.join(told.unanswered)}")
    return "; ".join(said)
