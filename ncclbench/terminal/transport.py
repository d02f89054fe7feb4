"""What a person sees of weights that were moved: a table of the ways, small messages, faults."""

from __future__ import annotations

from collections.abc import Sequence

from ncclbench.stats.transport import LatencyRow, OverEpochs, WayRow, way_name
from ncclbench.stats.transport_words import FROZEN, NOT_THE_SAME, TORN, fault_words
from ncclbench.store.transfers import TransferFault
from ncclbench.terminal.streams import one_line
from ncclbench.units import format_bytes, format_us


def time_text(time_us: float) -> str:
    """Microseconds with the unit that suits them."""
    if time_us < 1e3:
        return f"{time_us:.3g} us"
    return f"{time_us / 1e3:.3g} ms" if time_us < 999_500 else f"{time_us / 1e6:.3g} s"


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
        lines += ["#", f"# {NOT_THE_SAME}"]
    if any(row.torn for row in measured):
        lines.append(f"# {TORN}")
    if any(row.is_one_sided for row in measured):
        lines.append(f"# {FROZEN}")
    return lines


def _way_lines(rows: Sequence[WayRow]) -> list[str]:
    first = rows[0]
    width = max(len("way"), *(len(row.name) for row in rows))
    heading = (
        f"# {format_bytes(first.nbytes or 0)} of weights in {first.tensors} tensors to {first.generators} "
        f"generators; ms, medians over {first.epochs} epochs"
    )
    titles = ("all hold", "GB/s", "/broadcast", "trainer", "frozen", "generator", "stale", "torn", "wrong")
    lines = [heading, f"# {'way':<{width}}  {'kind':<9}" + "".join(f"  {title:>11}" for title in titles)]
    for row in rows:
        cells = [
            _ms(row.total_us),
            "-" if row.GBs is None else f"{row.GBs:.3g}",
            "-" if row.against is None else f"{row.against.ratio:.2f}",
            _ms(row.trainer_us),
            _ms(row.frozen_us),
            _ms(row.generator_us),
            _ms(row.stale_us),
            f"{row.torn}/{row.steps}" if row.steps else "-",
            "-" if row.wrong is None else str(row.wrong),
        ]
        lines.append(
            f"  {one_line(row.name):<{width}}  {row.kind:<9}" + "".join(f"  {cell:>11}" for cell in cells)
        )
    return lines


def _ms(found: OverEpochs | None) -> str:
    return "-" if found is None else f"{found.median / 1e3:.3g}"


def _latency_lines(latency: Sequence[LatencyRow]) -> list[str]:
    sizes = sorted({row.nbytes for row in latency})
    by_way: dict[str, dict[int, LatencyRow]] = {}
    for row in latency:
        by_way.setdefault(way_name(row.way, row.arm), {})[row.nbytes] = row
    width = max(len("way"), *map(len, by_way))
    lines = [
        "# a small message to one generator until it knows of it, us, medians; reads by the reader's clock",
        f"# {'way':<{width}}" + "".join(f"  {format_bytes(size):>9}" for size in sizes),
    ]
    for name, own in by_way.items():
        cells = [format_us(own[size].total_us.median) if size in own else "-" for size in sizes]
        lines.append(f"  {one_line(name):<{width}}" + "".join(f"  {cell:>9}" for cell in cells))
    return lines


def _fault_lines(faults: Sequence[TransferFault]) -> list[str]:
    lines = ["# in the middle of a transfer, as the side that is left sees it"]
    for fault in faults:
        done, seen = fault_words(fault)
        said = one_line(f"{fault.way}, {done}: {seen} after {fault.seconds:.3g} s: {fault.said}")
        lines.append(f"  {said}")
    return lines
