"""What an import tells on the terminal: a line per file, its problems, the rows as nccl-tests has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ncclbench.terminal.columns import commented, padded
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING, Row
from ncclbench.units import count_text, format_us

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
        lines.append(f"# and {count_text(len(rows) - shown, 'row')} more: summary.csv has all rows")
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
    taken = f"{count_text(entry['rows_taken'], 'row')} taken, {entry['rows_rejected']} rejected"
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
    return f"{count_text(entry['nranks'], 'rank')} ({_RANKS.get(entry['nranks_from'], 'from the text')})"


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


# The table.


def _title(row: Row, *, with_arm: bool) -> str:
    ranks = "ranks not known" if row["nranks"] is None else count_text(row["nranks"], "rank")
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
    names = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * len(places))
    units = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * len(places))
    lines = [commented(_columns(cells, places)) for cells in (names, units)]
    return [commented(" " * sum(_OF_THE_CASE) + above), *lines] if above else lines


# Widths of the columns, and of what one place has beside them.
_OF_THE_CASE = (12, 13, 10, 7, 6)
_OF_A_PLACE = (10, 9, 9, 8)
_HALF = sum(_OF_A_PLACE)


def _columns(cells: Sequence[str], places: Sequence[bool | None]) -> str:
    return padded(cells, (*_OF_THE_CASE, *_OF_A_PLACE * len(places)), left=(), gap="")


def _line(halves: Mapping[bool | None, Row], places: Sequence[bool | None]) -> str:
    row = next(iter(halves.values()))
    count = NOTHING if row["count"] is None else row["count"]
    root = NOTHING if row["root"] is None else row["root"]
    cells = [str(row["nbytes"]), str(count), _short(row["dtype"]), _short(row["redop"]), str(root)]
    cells += [cell for place in places for cell in _half(halves.get(place))]
    mark = "  WRONG DATA" if any(each["status"] == "wrong" for each in halves.values()) else ""
    return _columns(cells, places) + mark


def _half(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ("",) * len(_OF_A_PLACE)
    time = NOTHING if row["median_us"] is None else format_us(row["median_us"])
    wrong = NOTHING if row["wrong"] is None else row["wrong"]
    return time, _rate(row["algbw_GBs"]), _rate(row["busbw_GBs"]), str(wrong)


def _rate(rate_GBs: float | None) -> str:
    if rate_GBs is None:
        return NOTHING
    # Two decimals are what was printed; what is derived or from JSON has more to tell.
    return f"{rate_GBs:.{2 if rate_GBs >= 1 or round(rate_GBs, 2) == rate_GBs else 4}f}"


def _short(name: str | None) -> str:
    return one_line(name or NOTHING)[:9]
