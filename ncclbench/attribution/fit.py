"""Which elements explain what is slow, at one look: a model of minima, not of products.

What flows through a link is as much as the slowest thing on its way lets through: its own rate, what its
source can send, what its destination can receive. So an element is as fast as the best of its readings shows
(nothing exceeds its capacity, and a reading reaches it wherever nothing else is slower), the link between two
slow hosts tells of the slower one only, and a link is slow by itself where it is below both its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncclbench.attribution.elements import ONE_IN, Elements, Ints, Stages
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


def fit(values: Floats, classes: Ints, stages: Stages, ends: tuple[Ints, ...], margin: float) -> Fit:
    """Explain readings by slow elements, as few as will do (greedily: the one that explains most goes first).

    Args:
        values: logarithms of speeds, shape (readings,).
        classes: only readings of one class are comparable, likewise.
        stages: the elements that may be slow.
        ends: for each kind of end, whose reading it is, each of shape (readings,): sources and destinations,
            by host for links between hosts and by rank inside; for what ranks do alone the ranks.
        margin: logarithm of the smallest ratio that counts.
    """
    level = _first_levels(values, classes, ends)
    candidates, expected = _explain(values, level, stages, margin)
    healthy = _untouched(values.size, candidates)
    # The first levels are those of the best readings; now that the slow ones are known, of the healthy ones.
    level = _levels(values, classes, healthy, level)
    candidates, expected = _explain(values, level, stages, margin)
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


def _explain(values: Floats, level: Floats, stages: Stages, margin: float) -> tuple[list[Candidate], Floats]:
    expected = level.copy()
    candidates = []
    for group in stages.nodes:
        while (found := _best_node(values, expected, group, margin)) is not None:
            candidates.append(found)
            _lower(values, expected, found, margin)
    for pairs in stages.pairs:
        for found in _slow_pairs(values, expected, pairs, margin):
            candidates.append(found)
            _lower(values, expected, found, margin)
    return candidates, expected


def _lower(values: Floats, expected: Floats, found: Candidate, margin: float) -> None:
    """From now on its readings are expected to be as slow as it is."""
    members = found.elements.members(found.index)
    capacity = _capacity(values[found.members], margin)
    expected[members] = np.minimum(expected[members], capacity)


def _capacity(values: Floats, margin: float) -> float:
    """The capacity that slow readings show: the median of those that nothing else made slower still."""
    best = np.sort(values)[-1 - values.size // ONE_IN]
    return float(np.median(values[values >= best - margin]))


def _best_node(
    values: Floats, expected: Floats, group: tuple[Elements, ...], margin: float
) -> Candidate | None:
    """The slow element whose slowness explains the most readings; None where none is slow."""
    ranked: list[tuple[int, int, int]] = []
    for order, elements in enumerate(group):
        slow_by = elements.capacities(expected) - elements.capacities(values)
        possible = slow_by >= margin / 2
        if not possible.any():
            continue
        capacity = elements.capacities(values)[elements.element]
        mine = elements.reading
        explained = (expected[mine] - values[mine] >= margin / 2) & (capacity - values[mine] < margin)
        scores = np.bincount(elements.element, weights=explained, minlength=len(elements)).astype(int)
        ranked += [(-int(scores[index]), order, int(index)) for index in np.flatnonzero(possible)]
    for _, order, index in sorted(ranked):
        found = _candidate(values, expected, group[order], index, margin)
        if found is not None:
            return found
    return None


def _slow_pairs(values: Floats, expected: Floats, pairs: Elements, margin: float) -> Iterator[Candidate]:
    slow_by = pairs.capacities(expected) - pairs.capacities(values)
    for index in np.flatnonzero(slow_by >= margin / 2):
        found = _candidate(values, expected, pairs, int(index), margin)
        if found is not None:
            yield found


def _candidate(
    values: Floats, expected: Floats, elements: Elements, index: int, margin: float
) -> Candidate | None:
    """The element as a suspect; None where it is not slower than the margin by itself."""
    members = elements.members(index)
    showing = expected[members] - values[members] >= margin / 2
    if not showing.any() or (
        elements.direction == "both" and elements.is_pair and _one_way(elements, index, showing)
    ):
        return None
    slow = members[showing]
    capacity = _capacity(values[slow], margin)
    mine = slow[values[slow] >= capacity - margin]
    slowness = float(np.median(expected[mine])) - capacity
    if slowness < margin:
        return None
    partners = elements.partners(index)
    some, of = len(np.unique(partners[showing])), len(np.unique(partners))
    # With one link only, an end of it cannot be told from the link; where most links lead to slow ends, its own
    # slowness shows in too few.
    doubtful = not elements.is_pair and elements.where != "alone" and some < max(2, of / 2)
    return Candidate(elements, index, mine, (some, of), expected[mine].copy(), slowness, doubtful)


def _one_way(elements: Elements, index: int, showing: np.ndarray) -> bool:
    """Whether only one of the two directions that were read shows it: the other leads through a slow end."""
    towards = elements.partners(index)
    return len(np.unique(towards[showing])) < len(np.unique(towards))
