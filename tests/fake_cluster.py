"""A cluster of known rates that answers the orders of a search as its workers would: arrays, no processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.course import Search, search_course
from ncclbench.attribution.evidence import gathered
from ncclbench.attribution.model import Attribution, Places
from ncclbench.attribution.stages import FEWEST_PASSES, Size
from ncclbench.plan.pairs import plan_pairs
from ncclbench.store.probes import Probe
from ncclbench.tables.collectives import COLLECTIVES

Array = NDArray[np.float64]


@dataclass
class FakeCluster:
    """One rank on each host unless ``per_host`` says otherwise.

    Attributes:
        hosts, per_host: how many.
        rate_GBs: of a healthy link.
        slow_hosts, slow_links, slow_ranks: factors of time, by host, by (src, dst) and by rank.
        noise: standard deviation of the logarithm of every reading.
        orders: what was asked, in order.
    """

    hosts: int = 4
    per_host: int = 1
    rate_GBs: float = 0.025
    slow_hosts: dict[int, float] = field(default_factory=dict)
    slow_links: dict[tuple[int, int], float] = field(default_factory=dict)
    slow_ranks: dict[int, float] = field(default_factory=dict)
    noise: float = 0.01
    orders: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nranks = self.hosts * self.per_host
        names = tuple(f"node-{host}" for host in range(self.hosts))
        self.places = Places(tuple(rank // self.per_host for rank in range(self.nranks)), names)
        self._random = np.random.default_rng(0)

    def rate(self, src: int, dst: int) -> float:
        """What flows from a rank to another, GB/s."""
        ends = [self.slow_hosts.get(self.places.host_of[rank], 1.0) for rank in (src, dst)]
        return self.rate_GBs / max(*ends, self.slow_links.get((src, dst), 1.0))

    def answer(self, order: dict[str, Any]) -> Array:
        """What rank 0's worker would send back."""
        self.orders.append(order)
        stages: dict[str, Callable[[dict[str, Any]], Array]] = {
            "pairs": self._pairs,
            "compute": self._compute,
            "arrivals": self._arrivals,
            "subsets": self._subsets,
        }
        found = stages[order["stage"]](order)
        return found * np.exp(self._random.normal(0, self.noise, found.shape))

    def _pairs(self, order: dict[str, Any]) -> Array:
        found = np.full((self.nranks, len(order["rounds"]), 4), np.nan)
        for number, pairs in enumerate(order["rounds"]):
            for a, b in pairs:
                found[a, number] = (50.0, self.rate(a, b), self.rate(b, a), 0.0)
                found[b, number] = (50.0, self.rate(b, a), self.rate(a, b), 0.0)
        return found

    def _compute(self, order: dict[str, Any]) -> Array:
        found = np.full((self.nranks, 3), np.nan)
        found[:, 0] = [500.0 * self.slow_ranks.get(rank, 1.0) for rank in range(self.nranks)]
        return found

    def _arrivals(self, order: dict[str, Any]) -> Array:
        work_us = order["work_s"] * 1e6
        come_us = np.array([work_us * self.slow_ranks.get(rank, 1.0) for rank in range(self.nranks)])
        come = come_us[:, np.newaxis] * np.exp(
            self._random.normal(0, self.noise, (self.nranks, order["iterations"]))
        )
        return 20.0 + come.max(axis=0) - come

    def _subsets(self, order: dict[str, Any]) -> Array:
        found = np.full((self.nranks, len(order["groups"]), order["iterations"]), np.nan)
        for number, ranks in enumerate(order["groups"]):
            slowest = min(self.rate(a, b) for a in ranks for b in ranks if a != b)
            factor = COLLECTIVES[order["op"]].busbw_factor(len(ranks))
            found[list(ranks), number] = factor * order["nbytes"] / (slowest * 1e3)
        return found


def drive(orders: Generator[dict[str, Any], Array, None], cluster: FakeCluster) -> None:
    """Answer all that is asked."""
    try:
        order = next(orders)
        while True:
            order = orders.send(cluster.answer(order))
    except StopIteration:
        pass


def searched(
    cluster: FakeCluster, passes: int = FEWEST_PASSES, more: int = 0
) -> tuple[list[Probe], Attribution]:
    """A whole search: the lines it keeps, and what is said of them."""
    plan = plan_pairs(
        cluster.places.host_of,
        level="rank",
        at_once="host",
        passes=passes,
        fewest_passes=FEWEST_PASSES,
        pair_s=0.1,
        budget_s=None,
        seed=0,
    )
    kept: list[Probe] = []

    def judge(probes: Sequence[Probe]) -> Attribution:
        return attribute(gathered(probes, cluster.places))

    drive(search_course(Search(plan, more, Size(), False), cluster.places, kept.extend, judge), cluster)
    return kept, judge(kept)
