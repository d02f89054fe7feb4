"""The tables of nccl-tests and rccl-tests: columns by the names in their header, and rows split by columns.

Every version prints `size count type`, maybe `redop` and `root`, and then one or two halves of time, algbw,
busbw and what was wrong. Names decide what a row means: a row of 13 columns that was cut short has as many as
an old one of 12.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ncclbench.importing.physics import Figure, figure
from ncclbench.tables.dtypes import DTYPES

ITEMSIZES = {name: entry.itemsize for entry in DTYPES.values() for name in (entry.name, *entry.aliases)}
REDOPS = frozenset({"sum", "prod", "max", "min", "avg", "mulsum", "none"})

# Larger than any buffer: 4 EiB.
_MOST_BYTES = 1 << 62

# Names of version 1 and of others that stand for the same.
_SAME = {
    "bytes": "size",
    "n": "count",
    "op": "redop",
    "cputime": "cputime",
    "wrong": "wrong",
    "res": "error",
    "delta": "error",
}
# A time is printed with an exponent only where it does not fit seven characters.
_WIDEST_TIME = 9_999_999.5
_REMARKS = frozenset("#<*/(|;")
_LEADING = frozenset({"size", "count", "type", "redop", "root"})
_OF_HALF = frozenset(
    {"time", "cputime", "algbw", "busbw", "wrong", "error", "i_min", "i_max", "i_p99", "i_cv%"}
)
_TIME = frozenset({"time", "cputime"})

_WORD = re.compile(r"[a-z][a-z_0-9]{0,15}", re.ASCII)
_PLACEHOLDER = re.compile(r"[Xx?*.<>-]*[Xx?][Xx?*.<>-]*")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d", re.ASCII)
_WHOLE = re.compile(r"\d{1,19}", re.ASCII)
_ROOT = re.compile(r"-1|\d{1,9}", re.ASCII)
# `%5.0le`: a deviation always has an exponent, a count (`%5g`) only from a million on.
_DEVIATION = re.compile(r"\d(?:\.\d+)?e[+-]\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a table are.

    Attributes:
        names: in order; of a half that repeats, too.
        halves: for each half, its columns by name.
        in_place: for each half; None where nothing tells.
        unit_us: microseconds in a unit of the time column: 1000 in version 1.
        printed: whether a header said so, rather than the rows.
    """

    names: tuple[str, ...]
    halves: tuple[dict[str, int], ...]
    in_place: tuple[bool | None, ...]
    unit_us: float = 1.0
    printed: bool = True

    @property
    def is_cpu_time(self) -> bool:
        """Whether the time column holds what the calls cost the CPU (``-C 1``), not what bandwidth is of."""
        return "cputime" in self.names


@dataclass(frozen=True, slots=True)
class Half:
    """Out of place or in place: what a row prints of it. Figures that are no numbers are None.

    ``failed``: rccl-tests marked the largest deviation as beyond its threshold.
    """

    in_place: bool | None
    time_us: Figure | None
    algbw: Figure | None
    busbw: Figure | None
    wrong: int | None = None
    failed: bool = False
    max_error: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    p99_us: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table, split. ``dtype`` as printed; ``redop`` "" where it was left blank."""

    line: int
    nbytes: int
    count: int | None
    dtype: str | None
    redop: str | None
    root: int | None
    halves: tuple[Half, ...]


class NotARow(Exception):
    """Why a line that looks like a row is none."""


def parse_header(tokens: Sequence[str], in_place: Sequence[bool] = ()) -> Columns | None:
    """The columns that a header names; None if these tokens are no whole header.

    Args:
        tokens: of the line.
        in_place: of the halves, as the line above the names says it.
    """
    names = [token.lstrip("#").lower() for token in tokens]
    old = "bytes" in names
    names = [_SAME.get(name, name) for name in names]
    try:
        start = names.index("size")
    except ValueError:
        return None
    names = names[start:]
    if "timestamp" in names:
        names = names[: names.index("timestamp")]
    halves: list[dict[str, int]] = []
    for place, name in enumerate(names):
        if name in _TIME:
            halves.append({"time": place})
        elif name in _OF_HALF:
            if not halves or name in halves[-1]:
                return None
            halves[-1][name] = place
        elif name in _LEADING and (halves or names.index(name) != place):
            return None
    if not 1 <= len(halves) <= 2 or any(set(half) != set(halves[0]) for half in halves):
        return None
    if not {"algbw", "busbw"} & set(halves[0]):
        return None
    places: tuple[bool | None, ...] = tuple(in_place)
    if len(places) != len(halves):
        places = (False, True) if len(halves) == 2 else (None,)
    return Columns(tuple(names), tuple(halves), places, 1000.0 if old else 1.0)


def split(line: int, tokens: Sequence[str], columns: Columns) -> Row:
    """The row of these tokens.

    Raises:
        NotARow: they do not fill the columns, or hold what no such column holds.
    """
    width = len(columns.names)
    if len(tokens) > width and tokens[width][0] in _REMARKS:
        tokens = tokens[:width]  # what somebody wrote beside a row
    if len(tokens) > 2 and _CLOCK.fullmatch(tokens[-1]) and _DAY.fullmatch(tokens[-2]):
        tokens = tokens[:-2]
    cells = _filled(list(tokens), columns.names)
    named = dict(zip(columns.names, cells, strict=True))
    nbytes = _whole(named["size"], "size")
    count = _whole(named["count"], "count") if "count" in named else None
    dtype = named.get("type")
    if dtype is not None and (dtype in REDOPS or not _WORD.fullmatch(dtype)):
        raise NotARow(f"{_told(dtype)} is no type")
    redop = named.get("redop")
    if redop and not _WORD.fullmatch(redop):
        raise NotARow(f"{_told(redop)} is no reduction operator")
    root = named.get("root")
    if root is not None and not _ROOT.fullmatch(root):
        raise NotARow(f"{_told(root)} is no root")
    halves = tuple(
        _half(cells, half, place, columns.unit_us)
        for half, place in zip(columns.halves, columns.in_place, strict=True)
    )
    return Row(line, nbytes, count, dtype, redop, None if root is None else int(root), halves)


def _filled(cells: list[str], names: Sequence[str]) -> list[str]:
    """One cell per column: a blank operator is put back.

    Raises:
        NotARow: too few or too many cells.
    """
    if "redop" in names and len(cells) == len(names) - 1:
        place = names.index("redop")
        if not cells[place][:1].isalpha():
            return [*cells[:place], "", *cells[place:]]
    if len(cells) < len(names):
        raise NotARow(f"cut short: {len(cells)} of {len(names)} columns")
    if len(cells) > len(names):
        raise NotARow(f"{len(cells)} columns under a header of {len(names)}")
    return cells


def _half(cells: Sequence[str], half: dict[str, int], in_place: bool | None, unit_us: float) -> Half:
    texts = {name: cells[place] for name, place in half.items()}
    shown = [texts[name] for name in ("time", "algbw", "busbw") if name in texts]
    if any(_PLACEHOLDER.fullmatch(text) for text in shown):
        raise NotARow("placeholders in place of numbers")
    time_us = figure(texts["time"], unit_us)
    if time_us is None or ("e" in texts["time"] and time_us.value < _WIDEST_TIME):
        raise NotARow(f"{_told(texts['time'])} is no time")
    algbw, busbw = (
        _bandwidth(texts[name], time_us) if name in texts else None for name in ("algbw", "busbw")
    )
    wrong, max_error = _check(texts)
    extra = {key: figure(texts[name]) for name, key in _PER_ITERATION.items() if name in texts}
    return Half(
        in_place,
        time_us,
        algbw,
        busbw,
        wrong,
        max_error=max_error,
        failed=texts.get("error", "").endswith("*"),
        **{key: value.value for key, value in extra.items() if value is not None},
    )


def _bandwidth(text: str, time_us: Figure) -> Figure | None:
    """None where the time was too short to be told from none, which makes it infinite or no number."""
    value = figure(text)
    if value is None and (text.lstrip("-") not in ("inf", "nan") or time_us.value > time_us.half):
        raise NotARow(f"{_told(text)} is no bandwidth")
    return value


_PER_ITERATION = {"i_min": "min_us", "i_max": "max_us", "i_p99": "p99_us"}


def _check(texts: dict[str, str]) -> tuple[int | None, float | None]:
    """Wrong elements and largest deviation, whichever the column holds."""
    text = texts.get("wrong", texts.get("error"))
    if text is None or text.upper() == "N/A":
        return None, None
    # rccl-tests once marked what was beyond its threshold.
    value = figure(text.rstrip("*"))
    if value is None:
        raise NotARow(f"{_told(text)} is no count of wrong elements")
    is_count = "wrong" in texts and not (_DEVIATION.fullmatch(text) and "e-" in text)
    if not is_count:
        return None, value.value
    if value.value != int(value.value) or value.value >= 1 << 40:
        raise NotARow(f"{_told(text)} is no count of wrong elements")
    return int(value.value), None


def is_deviation(text: str) -> bool:
    """Whether it is what versions before 2.13 print as the largest error."""
    return text == "N/A" or _DEVIATION.fullmatch(text) is not None


def _whole(text: str, what: str) -> int:
    if not _WHOLE.fullmatch(text) or int(text) >= _MOST_BYTES:
        raise NotARow(f"{_told(text)} is no {what}")
    return int(text)


def _told(text: str) -> str:
    return repr(text if len(text) <= 24 else text[:21] + "...")


def _columns(leading: str, half: str, halves: int, unit_us: float = 1.0) -> Columns:
    found = parse_header([*leading.split(), *half.split() * halves])
    assert found is not None
    return Columns(found.names, found.halves, found.in_place, unit_us, printed=False)


_NOW = "time algbw busbw wrong"
_FORMER = "time algbw busbw error"
# Tried on rows whose header was lost, which may fit several: rows that are tables of today come first.
KNOWN = (
    _columns("size count type redop root", _NOW, 2),
    _columns("size count type redop root", _NOW, 1),
    _columns("size count type redop root", _NOW + " i_min i_max i_p99 i_cv%", 2),
    *(_columns(f"size count type {more}", _FORMER, 2) for more in ("redop", "root", "", "redop root")),
    *(_columns(f"size count type {more}", _FORMER, 2, 1000.0) for more in ("redop", "", "redop root")),
    _columns("size count type root", _FORMER, 1, 1000.0),
)
