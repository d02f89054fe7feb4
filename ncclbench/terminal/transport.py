"""What a person sees of weights that were moved: a table of the ways, small messages, faults."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ncclbench.stats.transport import LatencyRow, OverEpochs, WayRow, way_name
from ncclbench.stats.transport_words import (
    FROZEN,
    LEGEND,
    NOT_THE_SAME,
    TORN,
    fault_words,
    generators_text,
    ratio_text,
)
from ncclbench.store.transfers import TransferFault
from ncclbench.terminal.columns import aligned, headed, padded
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING
from ncclbench.units import count_text, format_bytes, format_digits, format_time, format_us

_WIDTH = 80
# Titles, one above the other, and width; the first of each is of the one beside it too.
_COLUMNS = (
    ("all", "hold", 7),
    ("", "GB/s", 8),
    ("over", "bcast", 7),
    ("trainer", "held", 8),
    ("", "frozen", 7),
    ("gener.", "held", 7),
    ("", "stale", 7),
    ("", "torn", 5),
)


def transport_lines(
    rows: Sequence[WayRow], latency: Sequence[LatencyRow], faults: Sequence[TransferFault]
) -> list[str]:
    """What stands above the answer on a terminal."""
    lines: list[str] = []
    measured = [row for row in rows if row.total_us is not None]
    if measured:
        lines += _way_lines(measured)
    lines += [
        one_line(f"# {row.name}: not here: {row.reason}") for row in rows if row.status == "unavailable"
    ]
    if latency:
        lines += ["#", *_latency_lines(latency)]
    if faults:
        lines += ["#", *_fault_lines(faults)]
    if {"one-sided", "two-sided"} <= {row.kind for row in measured}:
        lines += ["#", *_wrapped(NOT_THE_SAME)]
    if any(row.torn for row in measured):
        lines += _wrapped(TORN)
    if any(row.is_one_sided for row in measured):
        lines += _wrapped(FROZEN)
    return lines


def _way_lines(rows: Sequence[WayRow]) -> list[str]:
    first = rows[0]
    width = max(*(len(row.name) for row in rows), len("two-sided"))
    wrong = sum(row.wrong or 0 for row in rows)
    lines = [
        f"# {format_bytes(first.nbytes or 0)} of weights in {count_text(first.tensors or 0, 'tensor')} to "
        f"{generators_text(first)}; medians over {count_text(first.epochs, 'epoch')}; "
        f"{f'{wrong:,} bytes WRONG' if wrong else 'no byte wrong'}"
    ]
    above, titles = [first for first, _, _ in _COLUMNS], [second for _, second, _ in _COLUMNS]
    lines.append(f"# {_line('', above, width)}")
    for kind in ("two-sided", "one-sided"):
        own = [row for row in rows if row.kind == kind]
        if own:
            lines += [f"# {_line(kind, titles, width)}", *(_way_line(row, width) for row in own)]
    return [*lines, *_wrapped(LEGEND)]


def _way_line(row: WayRow, width: int) -> str:
    cells = [
        _short(row.total_us),
        NOTHING if row.GBs is None else format_digits(row.GBs, 3),
        NOTHING if row.against is None else ratio_text(row.against.ratio),
        *(_short(found) for found in (row.trainer_us, row.frozen_us, row.generator_us, row.stale_us)),
        f"{100 * row.torn / row.steps:.0f}%" if row.steps else NOTHING,
    ]
    line = _line(one_line(row.name), cells, width)
    return f"  {line}{'  WRONG DATA' if row.status == 'wrong' else ''}"


def _line(name: str, cells: Sequence[str], width: int) -> str:
    """The name of a way, in so many characters, and what stands beside it."""
    return padded((name, *cells), (width, *(column[2] for column in _COLUMNS)), gap="")


def _short(found: OverEpochs | None) -> str:
    """A time with its unit in six characters: 2.07us, 14.4ms."""
    return NOTHING if found is None else format_time(found.median).replace(" ", "")


def _wrapped(text: str) -> list[str]:
    """A remark in lines that fit on a terminal."""
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _latency_lines(latency: Sequence[LatencyRow]) -> list[str]:
    sizes = sorted({row.nbytes for row in latency})
    by_way: dict[str, dict[int, LatencyRow]] = {}
    for row in latency:
        by_way.setdefault(way_name(row.way, row.arm), {})[row.nbytes] = row
    cells = [["way", *(format_bytes(size) for size in sizes)]]
    for name, own in by_way.items():
        times = (format_us(own[size].total_us.median) if size in own else NOTHING for size in sizes)
        cells.append([one_line(name), *times])
    title = "# a small message until a generator knows of it, us; reads by the reader's clock"
    return [title, *headed(aligned(cells, at_least=(0, *(9 for _ in sizes))))]


def _fault_lines(faults: Sequence[TransferFault]) -> list[str]:
    lines = ["# in the middle of a transfer, as the side that is left sees it"]
    for fault in faults:
        done, seen = fault_words(fault)
        after = format_time(1e6 * fault.seconds)
        way = way_name(fault.way, fault.arm)
        lines.append(f"  {one_line(f'{way}, {done}: {seen} after {after}: {fault.said}')}")
    return lines
