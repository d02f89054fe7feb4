"""Tables of what a made-up cluster would measure, with faults in them and the names of whom to blame."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ncclbench.attribution.model import Evidence, LinkSamples, Places, RankSamples
from ncclbench.stats.intervals import Floats

Generator = np.random.Generator

# Rates of healthy links by class, GB/s, and how long the work of a rank takes.
INSIDE_GBs, SWITCH_GBs, ACROSS_GBs = 180.0, 22.0, 17.0
COMPUTE_US = 900.0
ROUNDS = (5, 6, 8)


@dataclass(frozen=True, slots=True)
class Noise:
    """How healthy tables vary, standard deviations of logarithms where not said otherwise.

    Attributes:
        within: a link, from round to round.
        between: links of a class.
        far_out: how often a round takes twice as long.
        drift: the whole cluster, from the first round to the last.
        student: degrees of freedom of a heavy-tailed law between links; None for a normal one. Nobody is more
            than twice as slow as usual by it: such a link is no healthy one, whatever the law.
    """

    within: float
    between: float
    far_out: float = 0.01
    drift: float = 0.05
    student: float | None = None


def usual_noise(generator: Generator) -> Noise:
    """Within links 0.2 % to 3 %, between them 0 to 3 %, up to 2 % of the rounds far out, drift up to 10 %."""
    return Noise(
        within=math.exp(generator.uniform(math.log(0.002), math.log(0.03))),
        between=generator.uniform(0, 0.03),
        far_out=generator.uniform(0, 0.02),
        drift=generator.uniform(-0.1, 0.1),
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """What is slow, and how.

    Attributes:
        kind: as in a suspect.
        who: the rank, the host, or both ends of the link: ranks, or hosts with ``of_hosts``.
        factor: how many times slower.
        direction: of a node "both", "out", "in"; of a link "both" or "one" (from the first end to the other).
        of_hosts: a link between all ranks of two hosts.
        first_round: the round from which on, from 0.
        computes: a rank (or all ranks of the host) computes slower as well, or only ("only").
        inside_too: a rank is slow towards its own host too.
    """

    kind: str
    who: tuple[int, ...]
    factor: float
    direction: str = "both"
    of_hosts: bool = False
    first_round: int = 0
    computes: str = "no"
    inside_too: bool = True


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where ranks live, how often links were measured, and which."""

    places: Places
    rounds: int
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nranks(self) -> int:
        """How many ranks there are."""
        return len(self.places.host_of)


def cluster(hosts: int, ranks_per_host: int, rounds: int, generator: Generator | None = None) -> Cluster:
    """All ordered pairs; with a generator ranks are scattered over the hosts."""
    host_of = np.repeat(np.arange(hosts), ranks_per_host)
    if generator is not None:
        generator.shuffle(host_of)
    places = Places(tuple(host_of.tolist()), tuple(f"node-{host}" for host in range(hosts)))
    nranks = host_of.size
    return Cluster(places, rounds, [(i, j) for i in range(nranks) for j in range(nranks) if i != j])


def sampled(whole: Cluster, partners: int, generator: Generator) -> Cluster:
    """The same with so many random partners of each rank, both directions."""
    kept = set()
    for rank in range(whole.nranks):
        for other in generator.choice(whole.nranks - 1, size=partners, replace=False).tolist():
            peer = other + (other >= rank)
            kept |= {(rank, peer), (peer, rank)}
    return Cluster(whole.places, whole.rounds, sorted(kept))


def table(where: Cluster, faults: list[Fault], noise: Noise, generator: Generator) -> Evidence:
    """What would be measured: each link as fast as the slowest on its way, times noise."""
    src, dst = np.array(where.pairs).T
    host_of = np.array(where.places.host_of)
    levels = _levels(where.places, host_of[src], host_of[dst])
    rates = np.repeat(levels[:, np.newaxis], where.rounds, axis=1)
    for fault in faults:
        slow = levels[:, np.newaxis] / fault.factor
        hit = touched(fault, src, dst, host_of)[:, np.newaxis] & when(fault, where.rounds)
        rates = np.where(hit, np.minimum(rates, slow), rates)
    drift = np.exp(noise.drift * np.linspace(0, 1, where.rounds))
    between = _between(noise, generator, len(src))
    one_way = rates * between[:, np.newaxis] * drift * _within(noise, generator, rates.shape)
    latency = 20 * _within(noise, generator, rates.shape)
    times = COMPUTE_US * np.ones((where.nranks, where.rounds))
    for fault in faults:
        if fault.computes != "no":
            mine = (
                host_of == fault.who[0] if fault.kind == "host" else np.arange(where.nranks) == fault.who[0]
            )
            times = np.where(mine[:, np.newaxis] & when(fault, where.rounds), times * fault.factor, times)
    times *= _between(noise, generator, where.nranks)[:, np.newaxis] / _within(noise, generator, times.shape)
    return Evidence(
        where.places,
        [LinkSamples(a, b, one_way[at], latency[at]) for at, (a, b) in enumerate(where.pairs)],
        [RankSamples(rank, times[rank]) for rank in range(where.nranks)],
    )


def _levels(places: Places, src_host: np.ndarray, dst_host: np.ndarray) -> Floats:
    across = np.full(len(src_host), ACROSS_GBs)
    if places.switch_of is not None:
        switch = np.array(places.switch_of)
        across = np.where(switch[src_host] == switch[dst_host], SWITCH_GBs, ACROSS_GBs)
    return np.where(src_host == dst_host, INSIDE_GBs, across)


def touched(fault: Fault, src: np.ndarray, dst: np.ndarray, host_of: np.ndarray) -> np.ndarray:
    """Which links a fault slows down, shape (links,)."""
    if fault.computes == "only":
        return np.zeros(len(src), dtype=bool)
    across = host_of[src] != host_of[dst]
    one, other = (host_of[src], host_of[dst]) if fault.kind == "host" or fault.of_hosts else (src, dst)
    if fault.kind == "link":
        a, b = fault.who
        there = (one == a) & (other == b)
        return there if fault.direction == "one" else there | ((one == b) & (other == a))
    out, into = one == fault.who[0], other == fault.who[0]
    hit = {"both": out | into, "out": out, "in": into}[fault.direction]
    return hit & across if fault.kind == "host" or not fault.inside_too else hit


def when(fault: Fault, rounds: int) -> np.ndarray:
    return np.arange(rounds) >= fault.first_round


def _between(noise: Noise, generator: Generator, n: int) -> Floats:
    if noise.student is not None:
        return np.exp(
            np.clip(noise.between * generator.standard_t(noise.student, n), -math.log(2), math.log(2))
        )
    return np.exp(noise.between * generator.normal(size=n))


def _within(noise: Noise, generator: Generator, shape: tuple[int, ...]) -> Floats:
    far = np.where(generator.random(shape) < noise.far_out, 0.5, 1.0)
    return np.exp(noise.within * generator.normal(size=shape)) * far


# Scenarios: a cluster of random shape and faults of one sort in it. Where a fault is at all to be told from
# others is part of it: a host needs two others, two slow hosts need two healthy ones.


@dataclass(frozen=True, slots=True)
class Scenario:
    """A sort of fault.

    Attributes:
        name: what it is known by.
        hosts, ranks_per_host: the least and the most.
        faults: some of this sort in a cluster, each by the factor given.
    """

    name: str
    hosts: tuple[int, int]
    ranks_per_host: tuple[int, int]
    faults: Callable[[Generator, Cluster, float], list[Fault]]


def _some(generator: Generator, many: int, count: int) -> list[int]:
    return generator.choice(many, size=count, replace=False).tolist()


def _host(direction: str) -> Callable[[Generator, Cluster, float], list[Fault]]:
    def faults(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
        (host,) = _some(generator, len(where.places.hosts), 1)
        return [Fault("host", (host,), factor, direction)]

    return faults


def _pair(direction: str) -> Callable[[Generator, Cluster, float], list[Fault]]:
    def faults(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
        one, other = _some(generator, len(where.places.hosts), 2)
        return [Fault("link", (one, other), factor, direction, of_hosts=True)]

    return faults


def _rank(computes: str, inside_too: bool) -> Callable[[Generator, Cluster, float], list[Fault]]:
    def faults(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
        (rank,) = _some(generator, where.nranks, 1)
        return [Fault("rank", (rank,), factor, computes=computes, inside_too=inside_too)]

    return faults


def _inner_link(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    (host,) = _some(generator, len(where.places.hosts), 1)
    ranks = where.places.ranks_on(host)
    one, other = _some(generator, len(ranks), 2)
    return [Fault("link", (ranks[one], ranks[other]), factor)]


def _two_hosts(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    return [
        Fault("host", (host,), factor * more)
        for host, more in zip(_some(generator, len(where.places.hosts), 2), (1.0, 1.6), strict=True)
    ]


def _two_pairs(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    one, two, three = _some(generator, len(where.places.hosts), 3)
    ends = [(one, two), (one, three)] if generator.random() < 0.5 or len(where.places.hosts) < 4 else []
    if not ends:
        a, b, c, d = _some(generator, len(where.places.hosts), 4)
        ends = [(a, b), (c, d)]
    return [Fault("link", pair, factor, of_hosts=True) for pair in ends]


def _host_and_pair(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    host, one, other = _some(generator, len(where.places.hosts), 3)
    return [Fault("host", (host,), factor), Fault("link", (one, other), factor * 1.3, of_hosts=True)]


def _host_and_its_pair(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    host, other = _some(generator, len(where.places.hosts), 2)
    return [Fault("host", (host,), factor), Fault("link", (host, other), factor * 2, of_hosts=True)]


def _from_the_middle(generator: Generator, where: Cluster, factor: float) -> list[Fault]:
    kind = _host("both") if generator.random() < 0.5 else _pair("both")
    (fault,) = kind(generator, where, factor)
    first = where.rounds // 2
    return [Fault(fault.kind, fault.who, factor, of_hosts=fault.of_hosts, first_round=first)]


SCENARIOS = (
    Scenario("host", (3, 16), (1, 4), _host("both")),
    Scenario("host, one way", (3, 16), (1, 4), _host("out")),
    Scenario(
        "host, computes",
        (3, 8),
        (2, 8),
        lambda g, c, f: [Fault("host", (_some(g, len(c.places.hosts), 1)[0],), f, computes="only")],
    ),
    Scenario("pair of hosts", (3, 16), (1, 4), _pair("both")),
    Scenario("pair, one way", (3, 16), (1, 4), _pair("one")),
    Scenario("link inside a host", (1, 8), (4, 8), _inner_link),
    Scenario("rank, links", (1, 8), (4, 8), _rank("no", True)),
    Scenario("rank, links across", (3, 8), (2, 8), _rank("no", False)),
    Scenario("rank, computes", (3, 16), (1, 4), _rank("only", False)),
    Scenario("rank, all of it", (3, 8), (1, 8), _rank("too", True)),
    Scenario("two hosts", (4, 16), (1, 4), _two_hosts),
    Scenario("two pairs", (4, 16), (1, 4), _two_pairs),
    Scenario("host and a pair", (4, 16), (1, 4), _host_and_pair),
    Scenario("host and its pair", (4, 16), (1, 4), _host_and_its_pair),
    Scenario("from the middle", (3, 16), (1, 4), _from_the_middle),
)
