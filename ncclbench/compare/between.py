"""What launches are worth as evidence: their times, what the unit is, and the ratio of two sets of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ncclbench.compare.alike import Launch
from ncclbench.compare.verdict import geometric_mean
from ncclbench.stats.intervals import Floats, LogMean, log_mean, log_ratio, log_ratio_of_two
from ncclbench.stats.shape import is_between_modes
from ncclbench.stats.shift import SHIFT
from ncclbench.stats.summary import epoch_quantiles
from ncclbench.store.model import Run

# Under so many a side, the variation from launch to launch is all but unknown.
FEWEST_LAUNCHES = 4
NEEDS_LAUNCHES = f"a verdict needs {FEWEST_LAUNCHES} a side"
# From so many a side on, the node is the unit and a claim is about kinds of nodes. Three leave a t interval
# 2 to 4 degrees of freedom: wide, and honest about it. Launches cost little, so of these more is asked.
FEWEST_NODES = 3

Hosts = frozenset[str]
Unit = Literal["launches", "nodes"]


@dataclass(frozen=True, slots=True)
class Observed:
    """A side's launches of one case as numbers, times in microseconds.

    Attributes:
        us: the statistic, shape (launches,).
        shift_us: the quantiles of ``SHIFT``, shape (launches, len(SHIFT)).
        fastest_us: the statistic of the minimum over ranks, shape (launches,).
        fewest_samples: in any epoch of any launch.
        hosts: the names of each launch's hosts.
        spread: standard deviation over epochs of the log of the statistic, within launches; None where no
            launch has two epochs.
        between_modes: whether in a launch the statistic moves between two modes of its samples.
    """

    us: Floats
    shift_us: Floats
    fastest_us: Floats
    fewest_samples: int
    hosts: list[Hosts]
    spread: float | None
    between_modes: bool

    @property
    def p90_us(self) -> Floats:
        """Shape (launches,)."""
        p90s: Floats = self.shift_us[:, list(SHIFT).index("p90")]
        return p90s

    def __len__(self) -> int:
        return self.us.size


def observe(launches: Sequence[Launch], quantile: float) -> Observed:
    """The numbers of a side's launches, at least one; ``quantile`` is the statistic's."""
    rows, between_modes = [], False
    squares, freedom = 0.0, 0.0
    for launch in launches:
        rank_times = [unit.rank_time_us for unit in launch.units]
        slowest = [times.max(axis=0) for times in rank_times]
        epochs = epoch_quantiles(slowest, (quantile, *SHIFT.values()))
        fastest = epoch_quantiles([times.min(axis=0) for times in rank_times], (quantile,))
        with np.errstate(divide="ignore"):  # geometric means, 0 where one of the epochs is
            rows.append(np.exp(np.log(np.hstack([epochs, fastest])).mean(axis=0)))
        between_modes = between_modes or is_between_modes(np.concatenate(slowest), epochs[:, 0])
        if (mean := log_mean(epochs[:, 0])) is not None:
            squares += mean.spread**2 * mean.df
            freedom += mean.df
    table = np.array(rows)
    return Observed(
        us=table[:, 0],
        shift_us=table[:, 1:-1],
        fastest_us=table[:, -1],
        fewest_samples=min(unit.total_us.shape[1] for launch in launches for unit in launch.units),
        hosts=[hosts_of(launch.run) for launch in launches],
        spread=math.sqrt(squares / freedom) if freedom else None,
        between_modes=between_modes,
    )


def hosts_of(run: Run) -> Hosts:
    """The names of the hosts a run was measured on; none where it does not tell."""
    environment = run.meta.get("environment") or {}
    return frozenset(str(host.get("name")) for host in environment.get("hosts") or ())


def unit_of(base: Sequence[Hosts], new: Sequence[Hosts]) -> tuple[Unit, str | None, str | None]:
    """What an observation is, given the hosts of each launch of both sides.

    A node is the set of all hosts of a launch. Launches that have a host in common share what that host is
    like, so they are no two nodes; and sides that have one in common are not independent of each other.

    Returns:
        the unit; a doubt where no claim is possible; and a note on what a claim would be about.
    """
    if set(base) == set(new):
        if _shares(base) == _shares(new):
            return "launches", None, None
        return "launches", "hosts are not equally often on both sides: launch on each as often", None
    if _union(base) & _union(new):
        return "launches", "some hosts are on both sides, others are not: launch both on the same", None
    nodes = _nodes(base), _nodes(new)
    if min(nodes) >= FEWEST_NODES:
        return "nodes", None, None
    told = f" ({nodes[0]} against {nodes[1]})" if all(nodes) else ""
    return "launches", None, f"about these nodes only{told}, not about their kind"


def _nodes(hosts: Sequence[Hosts]) -> int:
    """How many nodes the launches ran on; 0 where some share a host or are not told."""
    nodes = set(hosts)
    are_apart = sum(map(len, nodes)) == len(_union(hosts))
    return len(nodes) if are_apart and all(nodes) else 0


def _union(hosts: Sequence[Hosts]) -> Hosts:
    return frozenset(name for each in hosts for name in each)


def by_node(values: Floats, hosts: Sequence[Hosts]) -> Floats:
    """The geometric mean of each node's launches, shape (nodes,)."""
    members = [[index for index, each in enumerate(hosts) if each == node] for node in dict.fromkeys(hosts)]
    return np.array([geometric_mean(values[each]) for each in members])


def ratio_of_two(base: Floats, new: Floats, together: bool = False) -> LogMean | None:
    """new / base of one value per launch, shapes (n,) and (m,); None where nothing can be said of it.

    ``together``: the same launches gave both, in the same order; then they are paired.

    A single launch against several is held against the interval for one more of them: the t interval of a
    single new observation, which supposes that its side varies as the other does (Sokal and Rohlf,
    "Biometry", 1981, p. 228; Crawford and Howell, "Comparing an individual's test score against norms
    derived from small samples", Clin. Neuropsychol. 1998).
    """
    if together:
        return log_ratio(base, new)
    if min(base.size, new.size) != 1:
        return log_ratio_of_two(base, new)
    several, single = (base, new) if new.size == 1 else (new, base)
    mean = log_mean(several)
    if mean is None or not single[0] > 0:
        return None
    apart = math.log(single[0]) - mean.mean
    se = mean.spread * math.sqrt(1 + 1 / mean.n)
    return LogMean(n=1, mean=apart if new.size == 1 else -apart, se=se, df=mean.df)


def _shares(hosts: Sequence[Hosts]) -> dict[Hosts, float]:
    return {each: count / len(hosts) for each, count in Counter(hosts).items()}
