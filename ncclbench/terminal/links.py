"""What a person sees of links and suspects: a grid of bandwidths, classes, names with their evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ncclbench.attribution.words import speakers
from ncclbench.terminal.columns import aligned, commented, headed, padded
from ncclbench.terminal.streams import one_line

if TYPE_CHECKING:
    from ncclbench.attribution.model import Attribution, Places, Suspect

Row = Mapping[str, Any]

# More ranks than this do not fit into a terminal's width; the report has them all.
_WIDEST = 16
_MOST_ODD = 20

# RFC 1123, and the underscores that clusters use.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]+(?<!-)(\.(?!-)[A-Za-z0-9_-]+(?<!-))*")
_LONGEST_NAME = 253


def matrix_lines(links: Sequence[Row], places: Places) -> list[str]:
    """The grid where it fits, then one line per class, then the odd links; nothing without links."""
    if not links:
        return []
    lines = _grid(links, places) if len(places.host_of) <= _WIDEST else []
    lines += _classes(links)
    odd = sorted((link for link in links if link["odd"]), key=lambda link: link["ratio_to_class_median"] or 0)
    lines += ["#", f"# {len(odd)} odd of {len(links):,} links"] if odd else ["#", "# no link is odd"]
    lines += [_odd_line(link, places) for link in odd[:_MOST_ODD]]
    if len(odd) > _MOST_ODD:
        lines.append(f"  and {len(odd) - _MOST_ODD} more in the report")
    return lines


def suspect_lines(answer: Attribution, left_out: Sequence[str]) -> list[str]:
    """Each name with its factor, interval and evidence, what was looked at, and what was not.

    What could not be told stands in ``answer.message``, which follows.
    """
    lines = []
    for suspect in answer.suspects:
        interval = (
            f" [{suspect.ci_low:.2f}, {suspect.ci_high:.2f}]"
            if suspect.ci_low is not None and suspect.ci_high is not None
            else ""
        )
        where = f"on {' and '.join(suspect.hosts)}"
        said = f"{_who(suspect)} {where}: {suspect.ratio:.2f}x time{interval}; {suspect.evidence}"
        lines.append(one_line(said))
    if answer.looked_at:
        lines.append(one_line(f"# looked at: {answer.looked_at}"))
    lines += [one_line(f"# not looked at: {text}") for text in left_out]
    valid, invalid = split_names(answer.drain_hosts)
    if valid:
        lines.append(f"# hosts to drain: {' '.join(valid)}")
    if invalid:
        lines.append(f"# {not_drained(invalid)}")
    return lines


def _who(suspect: Suspect) -> str:
    """Kind and ranks, with the direction where it is one only: link 0, 1; link 1>0; rank 3, sending,."""
    if suspect.kind == "link" and suspect.direction != "both":
        return f"link {suspect.direction}"
    who = suspect.kind if suspect.kind == "host" else f"{suspect.kind} {', '.join(map(str, suspect.ranks))}"
    way = {"out": ", sending,", "in": ", receiving,"}.get(suspect.direction, "")
    return f"{who}{way}"


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of hosts that another program may be given as they are, and those that are no names of hosts.

    What reads a list of hosts would take a name with a leading "-" for an option, one with a space for two.
    """
    valid = [name for name in names if len(name) <= _LONGEST_NAME and _HOST_NAME.fullmatch(name)]
    return valid, [name for name in names if name not in valid]


def not_drained(invalid: Sequence[str]) -> str:
    """One line on hosts whose names are none, from ``split_names``: they are to be found by hand."""
    shown = ", ".join(repr(name) if name.isprintable() else ascii(name) for name in invalid)
    return f"slow, but not to be drained by name, which is no host name: {shown}: find it by hand"


def _grid(links: Sequence[Row], places: Places) -> list[str]:
    """Bandwidth from the rank of the line to the rank of the column."""
    ranks = sorted({link["src"] for link in links} | {link["dst"] for link in links})
    rates = {(link["src"], link["dst"]): link for link in links}
    known = [link["bandwidth_GBs"] for link in links if link["bandwidth_GBs"]]
    unit, factor = ("GB/s", 1.0) if known and max(known) >= 1 else ("MB/s", 1e3)
    # Two digits of the slowest too: that is the one that is looked for.
    slowest = min(known, default=1.0) * factor
    decimals = min(3, max(1, 1 - math.floor(math.log10(slowest))))
    lines = [f"# bandwidth in {unit}, from the rank of the line to that of the column, ! is odd"]
    widths = (6, *(9 for _ in ranks))
    lines.append(commented(padded(("", *map(str, ranks)), widths, left=(), gap="")))
    for src in ranks:
        cells = [str(src)]
        for dst in ranks:
            link = rates.get((src, dst))
            rate = link["bandwidth_GBs"] if link else None
            text = "-" if rate is None else f"{rate * factor:.{decimals}f}"
            cells.append(text + ("!" if link and link["odd"] else " "))
        lines.append(padded(cells, widths, left=(), gap=""))
    return lines + _left_out(ranks, places)


def _left_out(shown: Sequence[int], places: Places) -> list[str]:
    """Which ranks have no line in the grid, and why."""
    among = speakers(shown, places)
    lines = []
    for why, ranks in (
        ("one rank speaks for each host", set(range(len(places.host_of))) - set(among)),
        ("no link of it was measured", set(among) - set(shown)),
    ):
        if ranks:
            named = ", ".join(map(str, sorted(ranks)))
            lines.append(f"# not in the table: rank{'s' * (len(ranks) > 1)} {named}: {why}")
    return lines


def _classes(links: Sequence[Row]) -> list[str]:
    cells = [("class", "links", "median GB/s", "both ways", "latency us")]
    for name in dict.fromkeys(link["class"] for link in links):
        own = [link for link in links if link["class"] == name]
        bandwidth, both, latency = (_median(own, key) for key in ("bandwidth_GBs", "both_GBs", "latency_us"))
        cells.append((name, str(len(own)), bandwidth, both, latency))
    return ["#", *headed(aligned(cells, at_least=(12, 6, 12, 10, 10)))]


def _median(links: Sequence[Row], key: str) -> str:
    values = [link[key] for link in links if link[key] is not None]
    return f"{np.median(values):.4g}" if values else "-"


def _odd_line(link: Row, places: Places) -> str:
    src, dst = link["src"], link["dst"]
    names = f"{places.hosts[places.host_of[src]]} > {places.hosts[places.host_of[dst]]}"
    ratio, low, high = (link[key] for key in ("ratio_to_class_median", "ratio_ci_low", "ratio_ci_high"))
    interval = f" [{100 * low:.0f}, {100 * high:.0f}]" if low is not None and high is not None else ""
    return one_line(f"  {src} > {dst} ({names}): {100 * ratio:.0f} %{interval} of the median of its class")
