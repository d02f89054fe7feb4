"""An axis of ranks or hosts: one place for each, named by host where a host has several."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ncclbench.attribution.model import Places
from ncclbench.report.figures import Axis, Trace, plain

_MOST_TICKS = 16
_LONGEST_NAME = 18
_LINE = {"color": "var(--muted)", "width": 1}


@dataclass(frozen=True, slots=True)
class Line:
    """Places beside each other, in groups.

    Attributes:
        groups: name of each group and how many places it has.
        title: what the places are: "rank" or "host".
    """

    groups: tuple[tuple[str, int], ...]
    title: str

    @property
    def edges(self) -> list[float]:
        """Where one group ends and the next begins; none where every place is a group."""
        if all(size == 1 for _, size in self.groups):
            return []
        return [at - 0.5 for at in itertools.accumulate(size for _, size in self.groups[:-1])]

    def axis(self, title: str) -> Axis:
        """The axis from left to right."""
        ends = list(itertools.accumulate(size for _, size in self.groups))
        every = math.ceil(len(self.groups) / _MOST_TICKS)
        middles = [end - size / 2 - 0.5 for end, (_, size) in zip(ends, self.groups, strict=True)]
        return {
            "type": "linear",
            "title": {"text": title},
            "tickvals": middles[::every],
            "ticktext": [plain(_short(name)) for name, _ in self.groups[::every]],
            "range": [-0.5, ends[-1] - 0.5],
            "showgrid": False,
        }

    def separators(self) -> list[Trace]:
        """Upright lines between the groups, as plotly's shapes."""
        return [
            {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": _LINE}
            for at in self.edges
        ]

    def grid(self) -> list[Trace]:
        """Lines between the groups of a map that has this line on both sides."""
        end = sum(size for _, size in self.groups) - 0.5
        return [
            {"type": "line", **dict(zip(("x0", "x1", "y0", "y1"), ends, strict=True)), "line": _LINE}
            for at in self.edges
            for ends in ((at, at, -0.5, end), (-0.5, end, at, at))
        ]


def rank_row(places: Places, order: Sequence[int]) -> Line:
    """The ranks in an order in which those of a host stand beside each other."""
    hosts = [places.host_of[rank] for rank in order]
    if len(set(hosts)) == 1:
        return Line(tuple((str(rank), 1) for rank in order), "rank")
    groups = tuple((places.hosts[host], len(list(own))) for host, own in itertools.groupby(hosts))
    return Line(groups, "rank, by host")


def host_row(places: Places, hosts: Sequence[int]) -> Line:
    """One place for each of the hosts."""
    return Line(tuple((places.hosts[host], 1) for host in hosts), "host")


def _short(name: str) -> str:
    """A host's name for an axis: what tells it from others mostly stands at its ends."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"
