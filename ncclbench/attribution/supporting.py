"""What supports: who arrives last more often than chance allows, and which groups run at full speed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from ncclbench.attribution.model import Evidence, GroupSamples
from ncclbench.stats.intervals import holm
from ncclbench.stats.rates import clopper_pearson
from ncclbench.tables.collectives import COLLECTIVES

# Arrivals alone name a rank where it is last in this share of the iterations of every operation: then all
# others wait for it nearly always, whatever it is that it does there. Below that some other part of the
# machine has its turn as well, and the blame would be shared by chance.
_NEARLY_ALWAYS = 0.75


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that comes last more often than chance allows.

    Attributes:
        rank: which.
        last, iterations: in how many of how many, all operations together.
        interval: of that rate, exact, 95 %.
        lateness_us: by how much, the median over operations.
        always: nearly always, and in every operation.
    """

    rank: int
    last: int
    iterations: int
    interval: tuple[float, float]
    lateness_us: float
    always: bool


def late_ranks(evidence: Evidence, alpha: float) -> list[Late]:
    """Ranks that come last too often: exact binomial tests against one in as many as there are, by Holm."""
    records = [one for one in evidence.arrivals if one.iterations > 0]
    nranks = len(evidence.places.host_of)
    if not records or nranks < 2:
        return []
    iterations = sum(one.iterations for one in records)
    counts = np.array([one.last for one in records]).sum(axis=0)
    p_values = [
        float(bdtrc(count - 1, iterations, 1 / nranks)) if count else 1.0 for count in counts.tolist()
    ]
    found = []
    for rank, p in enumerate(holm(p_values)):
        if p > alpha:
            continue
        lateness_us = float(np.median([one.lateness_us[rank] for one in records]))
        always = all(one.last[rank] >= _NEARLY_ALWAYS * one.iterations for one in records)
        last = int(counts[rank])
        found.append(
            Late(
                rank,
                last,
                iterations,
                clopper_pearson(last, iterations),
                lateness_us,
                always and lateness_us > 0,
            )
        )
    return found


def largest_healthy_group(evidence: Evidence, margin: float) -> tuple[GroupSamples, int] | None:
    """The largest group at full speed, and how many ranks the largest slow one has; None where none is slow.

    Groups of the same operation and size are compared by busbw, which does not depend on how many ranks they
    have while links limit them, and only those inside one host with each other, as only those across hosts.
    """
    host_of = evidence.places.host_of
    alike: dict[tuple[str, int, bool], list[tuple[float, GroupSamples]]] = defaultdict(list)
    for group in evidence.groups:
        times_us = group.time_us[np.isfinite(group.time_us) & (group.time_us > 0)]
        if group.op in COLLECTIVES and group.nbytes and len(group.ranks) > 1 and times_us.size:
            factor = COLLECTIVES[group.op].busbw_factor(len(group.ranks))
            across = len({host_of[rank] for rank in group.ranks}) > 1
            busbw = factor * group.nbytes / float(np.median(times_us))
            alike[group.op, group.nbytes, across].append((busbw, group))
    healthy, slow = [], []
    for members in alike.values():
        best = max(busbw for busbw, _ in members)
        healthy += [group for busbw, group in members if busbw * (1 + margin) >= best]
        slow += [group for busbw, group in members if busbw * (1 + margin) < best]
    if not healthy or not slow:
        return None
    return max(healthy, key=lambda group: len(group.ranks)), max(len(group.ranks) for group in slow)
