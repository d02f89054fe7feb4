"""Which elements explain what is slow, at one look: a model of minima, not of products.

What flows through a link is as much as the slowest thing on its way lets through: its own rate, what its
source can send, what its destination can receive. So an element is as fast as the best of its readings shows
(nothing exceeds its capacity, and a reading reaches it wherever nothing else is slower), the link between two
slow hosts tells of the slower one only, and a link is slow by itself where it is below both its ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncclbench.attribution.elements import ONE_IN, Elements, Ints, Order
from ncclbench.stats.intervals import Floats


@dataclass(frozen=True, slots=True)
class Candidate:
    """An element that reads slow.

    Attributes:
        elements, index: which.
        members: the readings that show it: those that nothing else makes as slow, or slower.
        partners: how many are at the other end of its slow readings, and of all of them.
        expected: the logarithm of what these would read if it were healthy, shape (members,).
        slowness: logarithm of how much slower than that they are, the median.
        doubtful: it cannot be told from another explanation.
    """

    elements: Elements
    index: int
    members: Ints
    partners: tuple[int, int]
    expected: Floats
    slowness: float
    doubtful: bool

    @property
    def label(self) -> tuple[int, ...]:
        """Who it is: the element, or both ends of the pair."""
        return tuple(int(one) for one in self.elements.labels[self.index])


@dataclass(frozen=True, slots=True)
class Fit:
    """One look at the readings, with everything explained that is slow.

    Attributes:
        level: logarithm of what healthy readings of a reading's class show, shape (readings,).
        expected: of what the slow elements leave of it, likewise.
        values: of what was read, likewise.
        candidates: the elements that are slow.
        healthy: readings on whose way nothing is slow, shape (readings,).
    """

    level: Floats
    expected: Floats
    values: Floats
    candidates: list[Candidate]
    healthy: np.ndarray


def fit(values: Floats, classes: Ints, order: Order, ends: tuple[Ints, ...], margin: float) -> Fit:
    """Explain readings by slow elements, as few as will do (greedily: the one that explains most goes first).

    Args:
        values: logarithms of speeds, shape (readings,).
        classes: only readings of one class are comparable, likewise.
        order: the elements that may be slow.
        ends: for each kind of end, whose reading it is, each of shape (readings,): sources and destinations,
            by host for links between hosts and by rank inside; for what ranks do alone the ranks.
        margin: logarithm of the smallest ratio that counts.
    """
    level = _first_levels(values, classes, ends)
    candidates, expected = _explain(values, classes, level, order, margin)
    healthy = _untouched(values.size, candidates)
    # The first levels are those of the best readings; now that the slow ones are known, of the healthy ones.
    level = _levels(values, classes, healthy, level)
    candidates, expected = _explain(values, classes, level, order, margin)
    return Fit(level, expected, values, candidates, _untouched(values.size, candidates))


def _untouched(count: int, candidates: list[Candidate]) -> np.ndarray:
    healthy = np.ones(count, dtype=bool)
    for candidate in candidates:
        healthy[candidate.members] = False
    return healthy


def _first_levels(values: Floats, classes: Ints, ends: tuple[Ints, ...]) -> Floats:
    """The level of each class where up to half of its hosts (or ranks) may be slow, shape (readings,).

    The median capacity of the faster half of the ends of its links; links are many times as many, but one
    slow host of four makes half of them slow, and one of three two thirds.
    """
    level = np.empty_like(values)
    for each in np.unique(classes):
        mine = np.flatnonzero(classes == each)
        found: list[float] = []
        for end in ends:
            order = mine[np.lexsort((-values[mine], end[mine]))]
            counts = np.unique(end[order], return_counts=True)[1]
            starts = np.cumsum(counts) - counts
            found += values[order[starts + counts // ONE_IN]].tolist()
        faster = np.sort(found)[len(found) // 2 :]
        level[mine] = np.median(faster)
    return level


def _levels(values: Floats, classes: Ints, healthy: np.ndarray, otherwise: Floats) -> Floats:
    """The median of the healthy readings of each class, shape (readings,)."""
    level = otherwise.copy()
    for each in np.unique(classes):
        mine = classes == each
        if (mine & healthy).any():
            level[mine] = np.median(values[mine & healthy])
    return level


def _explain(
    values: Floats, classes: Ints, level: Floats, order: Order, margin: float
) -> tuple[list[Candidate], Floats]:
    expected = level.copy()
    candidates = []
    for group in order.nodes:
        while (found := _best_node(values, classes, level, expected, group, margin)) is not None:
            candidates.append(found)
            _lower(values, classes, expected, found)
    for pairs in order.pairs:
        for index in _slow(values, level, expected, pairs, margin):
            link = _candidate(values, classes, expected, pairs, index, margin)
            if link is not None:
                candidates.append(link)
                _lower(values, classes, expected, link)
    return candidates, expected


def _lower(values: Floats, classes: Ints, expected: Floats, found: Candidate) -> None:
    """From now on its readings are expected to be as slow as those that show it, by class."""
    members = found.elements.members(found.index)
    for each in np.unique(classes[found.members]):
        capacity = np.median(values[found.members[classes[found.members] == each]])
        mine = members[classes[members] == each]
        expected[mine] = np.minimum(expected[mine], capacity)


def _slow(values: Floats, level: Floats, expected: Floats, elements: Elements, margin: float) -> list[int]:
    """Those whose capacity is below what is expected of them.

    Against the level of each reading's class: what is fast in one class is slow in no other.
    """
    slow_by = elements.capacities(expected - level) - elements.capacities(values - level)
    return [int(index) for index in np.flatnonzero(slow_by >= margin / 2)]


def _best_node(
    values: Floats,
    classes: Ints,
    level: Floats,
    expected: Floats,
    group: tuple[Elements, ...],
    margin: float,
) -> Candidate | None:
    """The slow element that the most slow readings lead through; None where none is slow."""
    is_slow = expected - values >= margin / 2
    ranked: list[tuple[int, int, int]] = []
    for place, elements in enumerate(group):
        found = _slow(values, level, expected, elements, margin)
        ranked += [(-int(is_slow[elements.members(index)].sum()), place, index) for index in found]
    for _, place, index in sorted(ranked):
        best = _candidate(values, classes, expected, group[place], index, margin)
        if best is not None:
            return best
    return None


def _candidate(
    values: Floats, classes: Ints, expected: Floats, elements: Elements, index: int, margin: float
) -> Candidate | None:
    """The element as a suspect; None where it is not slower than the margin by itself."""
    members = elements.members(index)
    showing = expected[members] - values[members] >= margin / 2
    both_ways = elements.is_pair and elements.direction == "both"
    if not showing.any() or (both_ways and _one_way(elements, index, showing)):
        return None
    mine = _at_capacity(values, classes, members[showing], margin)
    slowness = float(np.median(expected[mine] - values[mine]))
    if slowness < margin:
        return None
    partners = elements.partners(index)
    some, of = len(np.unique(partners[showing])), len(np.unique(partners))
    # With one link only, an end of it cannot be told from the link; where most links lead to slow ends, its
    # own slowness shows in too few.
    doubtful = not elements.is_pair and elements.where != "alone" and some < max(2, of / 2)
    return Candidate(elements, index, mine, (some, of), expected[mine].copy(), slowness, doubtful)


def _at_capacity(values: Floats, classes: Ints, slow: Ints, margin: float) -> Ints:
    """Those slow readings that nothing else makes slower still: near the best of their class."""
    kept = []
    for each in np.unique(classes[slow]):
        mine = slow[classes[slow] == each]
        best = np.sort(values[mine])[-1 - mine.size // ONE_IN]
        kept.append(mine[values[mine] >= best - margin])
    return np.concatenate(kept)


def _one_way(elements: Elements, index: int, showing: np.ndarray) -> bool:
    """Whether only one of the two directions that were read shows it: the other leads through a slow end."""
    towards = elements.partners(index)
    return len(np.unique(towards[showing])) < len(np.unique(towards))
