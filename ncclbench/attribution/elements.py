"""The elements that could be slow, and which readings each has a part in.

A reading is what one measurement says of one ordered pair of ranks, or of one rank alone. An element is a
host, a rank, a switch's uplink or a link: everything whose slowness would show in its readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ncclbench.attribution.model import Places
from ncclbench.stats.intervals import Floats

Ints = NDArray[np.intp]
Level = Literal["rank", "host", "switch"]
Where = Literal["across", "inside", "alone"]
Sort = Literal["links", "ends", "alone"]
Direction = Literal["both", "out", "in", "one"]

SORTS: tuple[Sort, ...] = ("links", "ends", "alone")

# Of so many links of a rank or host one may be fast without proving that it is healthy.
ONE_IN = 8

# Ranks of a host, below which one that is slow inside it cannot be told from its only link there.
_FEWEST_INSIDE = 3


@dataclass(frozen=True, slots=True)
class Elements:
    """All elements of one sort.

    Attributes:
        level: what they are, or what their ends are.
        is_pair: they are links, and no ends of links.
        direction: of a node what it sends, receives, or both; of a pair both directions or one.
        where: between hosts, inside hosts, or of ranks that worked alone.
        labels: who they are, shape (elements, 1) of nodes, (elements, 2) of pairs.
        reading, element: reading ``reading[k]`` has a part in element ``element[k]``; sorted by element.
        partner: the element at the other end of that reading.
        starts: where each element's readings begin in these arrays, shape (elements + 1,).
    """

    level: Level
    is_pair: bool
    direction: Direction
    where: Where
    labels: Ints
    reading: Ints
    element: Ints
    partner: Ints
    starts: Ints

    @property
    def sort(self) -> Sort:
        """Links, their ends, or ranks that worked alone."""
        if self.where == "alone":
            return "alone"
        return "links" if self.is_pair else "ends"

    def __len__(self) -> int:
        return len(self.labels)

    def members(self, index: int) -> Ints:
        """The readings of one element."""
        return self.reading[self.starts[index] : self.starts[index + 1]]

    def partners(self, index: int) -> Ints:
        """Who is at the other end of each of them."""
        return self.partner[self.starts[index] : self.starts[index + 1]]

    def capacities(self, values: Floats) -> Floats:
        """What the best readings of each element show that it can do, shape (elements,).

        The largest value, but for one in eight: what flows through an element is at most its capacity, and
        reaches it wherever nothing else is slower.
        """
        return self._kth(values, np.diff(self.starts) // ONE_IN)

    def least(self, values: Floats) -> Floats:
        """What all values of each element but one in eight exceed, shape (elements,)."""
        return -self.capacities(-values)

    def medians(self, values: Floats) -> Floats:
        """The (upper) median of each element's values, shape (elements,)."""
        return self._kth(values, (np.diff(self.starts) - 1) // 2)

    def _kth(self, values: Floats, k: Ints) -> Floats:
        """Of each element's values the k-th largest, counted from 0."""
        mine = values[self.reading]
        if len(mine) == len(self):
            return mine
        ordered = mine[np.lexsort((-mine, self.element))]
        found: Floats = ordered[self.starts[:-1] + k]
        return found


@dataclass(frozen=True, slots=True)
class Order:
    """Elements in the order in which slowness is ascribed to them.

    Attributes:
        nodes: ends of links, group by group: within a group the one that explains most goes first.
        pairs: links, the broader first.
    """

    nodes: tuple[tuple[Elements, ...], ...]
    pairs: tuple[Elements, ...]

    def all(self) -> list[Elements]:
        """Every sort of element."""
        return [*(elements for group in self.nodes for elements in group), *self.pairs]


def _build(
    level: Level, is_pair: bool, direction: Direction, where: Where, parts: Sequence[tuple[Ints, Ints, Ints]]
) -> list[Elements]:
    """The elements, from (labels, readings, partners) of each part; none from nothing."""
    labels = np.concatenate([part[0] for part in parts])
    if not len(labels):
        return []
    reading, partner = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
    unique, element = np.unique(labels, axis=0, return_inverse=True)
    element = element.reshape(-1)
    order = np.argsort(element, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(element))])
    return [
        Elements(
            level, is_pair, direction, where, unique, reading[order], element[order], partner[order], starts
        )
    ]


def _nodes(level: Level, where: Where, src: Ints, dst: Ints, used: Ints) -> list[Elements]:
    """Ends of the links ``used``, which go from ``src`` to ``dst``: as a whole, as senders, as receivers."""
    out = src[used][:, np.newaxis], used, dst[used]
    into = dst[used][:, np.newaxis], used, src[used]
    return [
        *_build(level, False, "both", where, [out, into]),
        *_build(level, False, "out", where, [out]),
        *_build(level, False, "in", where, [into]),
    ]


def _pairs(level: Level, where: Where, src: Ints, dst: Ints, used: Ints) -> list[Elements]:
    """The links themselves, both directions and one."""
    ends = np.stack([src[used], dst[used]], axis=1)
    return [
        *_build(level, True, "both", where, [(np.sort(ends, axis=1), used, dst[used])]),
        *_build(level, True, "one", where, [(ends, used, dst[used])]),
    ]


def link_order(src: Ints, dst: Ints, places: Places) -> Order:
    """The elements of ordered pairs of ranks, shapes (links,)."""
    host_of = np.array(places.host_of, dtype=np.intp)
    hosts = host_of[src], host_of[dst]
    inside = hosts[0] == hosts[1]
    across, within = np.flatnonzero(~inside), np.flatnonzero(inside)
    # Where one rank of a host alone was measured towards others, it stands for its host.
    speakers = _count_distinct(
        np.concatenate([hosts[0][across], hosts[1][across]]),
        np.concatenate([src[across], dst[across]]),
        len(places.hosts),
    )
    ranks_inside = _count_distinct(hosts[0][within], src[within], len(places.hosts))
    many_out = across[speakers[hosts[0][across]] > 1]
    many_in = across[speakers[hosts[1][across]] > 1]
    crowded = within[ranks_inside[hosts[0][within]] >= _FEWEST_INSIDE]
    many = np.intersect1d(many_out, many_in) if len(places.hosts) > 1 else across[:0]
    nodes = [
        *_nodes("host", "across", *hosts, across),
        *_rank_nodes(src, dst, many_out, many_in),
        *(
            _build(
                "host", False, "both", "inside", [(hosts[0][crowded][:, np.newaxis], crowded, dst[crowded])]
            )
        ),
        *_nodes("rank", "inside", src, dst, crowded),
    ]
    # A host whose inside there is nothing to compare with is not asked about.
    nodes = [one for one in nodes if not (one.where == "inside" and one.level == "host" and len(one) == 1)]
    several = np.union1d(many, np.union1d(many_out, many_in))
    pairs = [
        *_pairs("host", "across", *hosts, across),
        *_pairs("rank", "across", src, dst, several),
        *_pairs("rank", "inside", src, dst, within),
    ]
    groups = [tuple(nodes)]
    if places.switch_of is not None and len(set(places.switch_of)) > 2:
        names = places.switches
        switch_of = np.array([names.index(name) for name in places.switch_of], dtype=np.intp)
        switches = switch_of[hosts[0]], switch_of[hosts[1]]
        # A switch of one host cannot be told from that host.
        large = np.bincount(switch_of) > 1
        used = np.flatnonzero((switches[0] != switches[1]) & large[switches[0]] & large[switches[1]])
        groups.append(tuple(_nodes("switch", "across", *switches, used)))
        pairs = [*_pairs("switch", "across", *switches, used), *pairs]
    return Order(tuple(groups), tuple(pairs))


def _rank_nodes(src: Ints, dst: Ints, many_out: Ints, many_in: Ints) -> list[Elements]:
    """Ranks towards other hosts, of hosts of which several were measured."""
    out = src[many_out][:, np.newaxis], many_out, dst[many_out]
    into = dst[many_in][:, np.newaxis], many_in, src[many_in]
    return [
        *_build("rank", False, "both", "across", [out, into]),
        *_build("rank", False, "out", "across", [out]),
        *_build("rank", False, "in", "across", [into]),
    ]


def rank_order(ranks: Ints, places: Places) -> Order:
    """The elements of what ranks do alone, shape (ranks,)."""
    host_of = np.array(places.host_of, dtype=np.intp)[ranks]
    at = np.arange(len(ranks))
    shared = np.bincount(host_of, minlength=len(places.hosts)) > 1
    several = at[shared[host_of]] if len(set(host_of.tolist())) > 1 else at[:0]
    hosts = _build(
        "host", False, "both", "alone", [(host_of[several][:, np.newaxis], several, ranks[several])]
    )
    return Order(
        (tuple(hosts),), tuple(_build("rank", False, "both", "alone", [(ranks[:, np.newaxis], at, ranks)]))
    )


def _count_distinct(groups: Ints, values: Ints, ngroups: int) -> Ints:
    """How many different values each group has, shape (ngroups,)."""
    together = np.unique(np.stack([groups, values]), axis=1)[0]
    return np.bincount(together, minlength=ngroups)
