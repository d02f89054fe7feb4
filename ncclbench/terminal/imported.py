"""What an import tells on the terminal: a line per file, its problems, the rows as nccl-tests has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING, Row
from ncclbench.units import format_us

PROBLEMS_SHOWN = 5
# More lines of a table than this are read in summary.csv.
_LINES_SHOWN = 100

_SOURCES = {"text": "from the text", "option": "by --op", "derived": "derived from the figures"}
_RANKS = {"header": "from the header", "derived": "derived"}

# What rows of one line of the table share; the halves are told apart by ``in_place``.
_LINE = ("arm", "op", "dtype", "redop", "root", "nbytes", "count", "nranks", "mode", "file", "repeat")
_GROUP = ("op", "nranks", "mode")


def file_lines(entry: Mapping[str, Any]) -> list[str]:
    """What came of one file, then its first problems."""
    problems = entry["problems"]
    lines = [one_line(f"{entry['file']}: {_found(entry)}")]
    for problem in problems[:PROBLEMS_SHOWN]:
        place = "" if problem["line"] is None else f"line {problem['line']}: "
        lines.append(f"  {one_line(place + problem['reason'])}")
    if len(problems) > PROBLEMS_SHOWN:
        lines.append(f"  and {len(problems) - PROBLEMS_SHOWN} more problems: --json tells them all")
    return lines


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The rows, out of place and in place side by side, under a heading for each operation."""
    lines: list[str] = []
    shown = 0
    arms = {row["arm"] for row in rows}
    for _, group in groupby(rows, key=lambda row: [row[name] for name in (*_GROUP, "arm")]):
        found = list(group)
        places = _places(found)
        title = ["#", _title(found[0], with_arm=len(arms) > 1), *_header(places)]
        if len(lines) + len(title) < _LINES_SHOWN:
            lines += title
        for line in _paired(found):
            if len(lines) < _LINES_SHOWN:
                lines.append(_line(line, places))
                shown += len(line)
    if shown < len(rows):
        lines.append(f"# and {_count(len(rows) - shown, 'row')} more: summary.csv has all rows")
    return lines


def _found(entry: Mapping[str, Any]) -> str:
    if entry["format"] is None:
        return "not read"
    tools = {section["tool"] for section in entry["sections"]}
    named = f"{' and '.join(sorted(tools)) or entry['format']}"
    version = f" {entry['version']}" if entry.get("version") else ""
    words = [f"{named}{version}"]
    if entry["rows"]:
        words += [_op(entry), _ranks(entry)]
        sections = len(entry["sections"])
        if sections > 1:
            words.append(f"{sections} invocations")
    taken = f"{_count(entry['rows_taken'], 'row')} taken, {entry['rows_rejected']} rejected"
    more = [text for text in (_average(entry), _missing(entry), _failure(entry)) if text]
    return "; ".join([f"{', '.join(words)}: {taken}", *more])


def _op(entry: Mapping[str, Any]) -> str:
    ops = {section["op"] for section in entry["sections"] if section["rows_taken"]}
    if len(ops) > 1:
        return f"{len(ops)} collectives"
    if entry["op"] is None:
        return "collective not known (give it with --op)"
    return f"{entry['op']} ({_SOURCES.get(entry['op_from'], 'from the text')})"


def _ranks(entry: Mapping[str, Any]) -> str:
    counts = {section["nranks"] for section in entry["sections"] if section["rows_taken"]}
    if len(counts) > 1:
        return "several numbers of ranks"
    if entry["nranks"] is None:
        return "number of ranks not known"
    return f"{_count(entry['nranks'], 'rank')} ({_RANKS.get(entry['nranks_from'], 'from the text')})"


def _average(entry: Mapping[str, Any]) -> str | None:
    averages = [section for section in entry["sections"] if section["average_busbw_GBs"] is not None]
    if not averages:
        return None
    fits = {True: "fits the rows", False: "does NOT fit the rows", None: "cannot be held against the rows"}
    if len(averages) > 1:
        return f"{len(averages)} averages: {fits[entry['average_fits']]}"
    return f"average {averages[0]['average_busbw_GBs']:g} GB/s {fits[entry['average_fits']]}"


def _missing(entry: Mapping[str, Any]) -> str | None:
    return f"missing: {', '.join(entry['missing'])}" if entry["missing"] else None


def _failure(entry: Mapping[str, Any]) -> str | None:
    return f"it failed: {entry['failure'][:160]}" if entry["failure"] else None


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# The table.


def _title(row: Row, *, with_arm: bool) -> str:
    ranks = "ranks not known" if row["nranks"] is None else _count(row["nranks"], "rank")
    how = row["mode"] or "timed in the tool's own way"
    words = [row["op"] or "collective not known", ranks, how, *([row["arm"]] if with_arm else [])]
    return one_line(f"# {', '.join(words)} - imported: means only, no intervals")


def _paired(rows: Sequence[Row]) -> Iterator[dict[bool | None, Row]]:
    """The rows of each line of the table, by ``in_place``."""
    pending: dict[bool | None, Row] = {}
    for row in rows:
        first = next(iter(pending.values()), None)
        fits = first is not None and all(first[name] == row[name] for name in _LINE)
        if first is not None and (not fits or row["in_place"] in pending):
            yield pending
            pending = {}
        pending[row["in_place"]] = row
    if pending:
        yield pending


def _places(rows: Sequence[Row]) -> list[bool | None]:
    """The halves that a table has, out of place first."""
    return [place for place in (None, False, True) if any(row["in_place"] is place for row in rows)]


def _header(places: Sequence[bool | None]) -> list[str]:
    titles = {None: "", False: "out-of-place", True: "in-place"}
    above = "".join(titles[place].center(_HALF) for place in places).rstrip()
    leading = f"#{'size':>11}{'count':>13}{'type':>10}{'redop':>7}{'root':>6}"
    names = f"{'time':>10}{'algbw':>9}{'busbw':>9}{'#wrong':>8}" * len(places)
    units = f"{'(us)':>10}{'(GB/s)':>9}{'(GB/s)':>9}{'':>8}" * len(places)
    lines = [leading + names, (f"#{'(B)':>11}{'(elements)':>13}{'':>23}{units}").rstrip()]
    return [f"#{'':47}{above}", *lines] if above else lines


_HALF = 36


def _line(halves: Mapping[bool | None, Row], places: Sequence[bool | None]) -> str:
    row = next(iter(halves.values()))
    count = NOTHING if row["count"] is None else row["count"]
    root = NOTHING if row["root"] is None else row["root"]
    cells = f"{row['nbytes']:>12}{count:>13}{_short(row['dtype']):>10}{_short(row['redop']):>7}{root:>6}"
    cells += "".join(_half(halves.get(place)) for place in places)
    mark = "  WRONG DATA" if any(each["status"] == "wrong" for each in halves.values()) else ""
    return (cells + mark).rstrip()


def _half(row: Row | None) -> str:
    if row is None:
        return " " * _HALF
    time = NOTHING if row["median_us"] is None else format_us(row["median_us"])
    wrong = NOTHING if row["wrong"] is None else row["wrong"]
    return f"{time:>10}{_rate(row['algbw_GBs']):>9}{_rate(row['busbw_GBs']):>9}{wrong:>8}"


def _rate(rate_GBs: float | None) -> str:
    if rate_GBs is None:
        return NOTHING
    # Two decimals are what was printed; what is derived or from JSON has more to tell.
    return f"{rate_GBs:.{2 if rate_GBs >= 1 or round(rate_GBs, 2) == rate_GBs else 4}f}"


def _short(name: str | None) -> str:
    return one_line(name or NOTHING)[:9]
