"""What a person sees of links and suspects: a grid of bandwidths, classes, names with their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ncclbench.terminal.streams import one_line

if TYPE_CHECKING:
    from ncclbench.attribution.model import Attribution, Places

Row = Mapping[str, Any]

# More ranks than this do not fit into a terminal's width; the report has them all.
_WIDEST = 16
_MOST_ODD = 20


def matrix_lines(links: Sequence[Row], places: Places) -> list[str]:
    """The grid where it fits, then one line per class, then the odd links."""
    lines = _grid(links) if len(places.host_of) <= _WIDEST else []
    lines += _classes(links)
    odd = sorted((link for link in links if link["odd"]), key=lambda link: link["ratio_to_class_median"] or 0)
    lines += ["#", f"# {len(odd)} odd of {len(links):,} links"] if odd else ["#", "# no link is odd"]
    lines += [_odd_line(link, places) for link in odd[:_MOST_ODD]]
    if len(odd) > _MOST_ODD:
        lines.append(f"  and {len(odd) - _MOST_ODD} more in the report")
    return lines


def suspect_lines(answer: Attribution, left_out: Sequence[str]) -> list[str]:
    """Each name with its factor, interval and evidence; what could not be told; what was not looked at."""
    lines = []
    for suspect in answer.suspects:
        interval = (
            f" [{suspect.ci_low:.2f}, {suspect.ci_high:.2f}]"
            if suspect.ci_low is not None and suspect.ci_high is not None
            else ""
        )
        ranks = ", ".join(map(str, suspect.ranks[:8])) + (" .." if len(suspect.ranks) > 8 else "")
        who = f"{suspect.kind} {ranks if suspect.kind != 'host' else ''}".strip()
        where = f"on {' and '.join(suspect.hosts)}"
        lines.append(one_line(f"{who} {where}: {suspect.ratio:.2f}x time{interval}; {suspect.evidence}"))
    lines += [one_line(f"cannot tell: {text}") for text in answer.unclear]
    lines.append(one_line(f"# looked at: {answer.looked_at}"))
    lines += [one_line(f"# not looked at: {text}") for text in left_out]
    if answer.drain_hosts:
        lines.append(one_line(f"# hosts to drain: {' '.join(answer.drain_hosts)}"))
    return lines


def _grid(links: Sequence[Row]) -> list[str]:
    """Bandwidth from the rank of the line to the rank of the column."""
    ranks = sorted({link["src"] for link in links} | {link["dst"] for link in links})
    rates = {(link["src"], link["dst"]): link for link in links}
    known = [link["bandwidth_GBs"] for link in links if link["bandwidth_GBs"]]
    unit, factor = ("GB/s", 1.0) if known and max(known) >= 1 else ("MB/s", 1e3)
    lines = [f"# bandwidth in {unit}, from the rank of the line to that of the column, ! is odd"]
    lines.append("#" + f"{'':>5}" + "".join(f"{rank:>9}" for rank in ranks))
    for src in ranks:
        cells = []
        for dst in ranks:
            link = rates.get((src, dst))
            rate = link["bandwidth_GBs"] if link else None
            text = "-" if rate is None else f"{rate * factor:.1f}"
            cells.append(f"{text + ('!' if link and link['odd'] else ' '):>9}")
        lines.append(f"{src:>6}{''.join(cells)}".rstrip())
    return lines


def _classes(links: Sequence[Row]) -> list[str]:
    lines = ["#", f"# {'class':<12}{'links':>8}{'median GB/s':>14}{'both ways':>12}{'latency us':>12}"]
    for name in dict.fromkeys(link["class"] for link in links):
        own = [link for link in links if link["class"] == name]
        cells = [_median(own, key) for key in ("bandwidth_GBs", "both_GBs", "latency_us")]
        lines.append(f"  {name:<12}{len(own):>8}{cells[0]:>14}{cells[1]:>12}{cells[2]:>12}")
    return lines


def _median(links: Sequence[Row], key: str) -> str:
    values = [link[key] for link in links if link[key] is not None]
    return f"{np.median(values):.4g}" if values else "-"


def _odd_line(link: Row, places: Places) -> str:
    src, dst = link["src"], link["dst"]
    names = f"{places.hosts[places.host_of[src]]} > {places.hosts[places.host_of[dst]]}"
    ratio, low, high = (link[key] for key in ("ratio_to_class_median", "ratio_ci_low", "ratio_ci_high"))
    interval = f" [{100 * low:.0f}, {100 * high:.0f}]" if low is not None and high is not None else ""
    return one_line(f"  {src} > {dst} ({names}): {100 * ratio:.0f} %{interval} of the median of its class")
