"""How often the slow one is named rightly where recorded samples are made slow, and somebody where not.

    python benchmarks/replay.py [--trials 200] [--seed 0] [--factors 1.5,4]

Recorded are 12 passes of `suspects` over healthy emulated clusters of 4, 5 and 6 hosts at 200, 150 and 250
Mbit/s (benchmarks/recorded), noise and all. Each trial takes one of them, some of its passes in another
order, gives the hosts other numbers, and makes slow what its fault touches. So 200 tables come of three
recordings; they are less different than 200 clusters would be.
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from _bar import tell
from _link_tables import SCENARIOS, Cluster, Fault, Generator, Scenario, cluster, touched, when
from attribution import OUTCOMES, outcome

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.evidence import gathered
from ncclbench.attribution.model import Evidence, LinkSamples, RankSamples
from ncclbench.stats.intervals import Floats
from ncclbench.stats.rates import clopper_pearson
from ncclbench.store.lines import decode_line
from ncclbench.store.probes import Probe

RECORDED = Path(__file__).parent / "recorded"
HOSTS = (4, 5, 6)
PASSES = 12
FEWEST_PASSES = 3
_RIGHT_BAR = 0.98

# One rank on each host is what was recorded.
FAULTS = [one for one in SCENARIOS if one.ranks_per_host[0] == 1 and "inside" not in one.name]


@cache
def recording(hosts: int) -> Evidence:
    """What was measured on a healthy cluster of so many hosts."""
    text = gzip.decompress((RECORDED / f"healthy-{hosts}-hosts.jsonl.gz").read_bytes())
    probes: list[Probe] = [decode_line(line) for line in text.splitlines()]
    found = gathered(probes, cluster(hosts, 1, PASSES).places)
    return replace(found, groups=[], arrivals=[])


def replayed(where: Cluster, faults: list[Fault], generator: Generator) -> Evidence:
    """The recording with hosts and passes in another order, and what is slow made slow."""
    hosts = len(where.places.hosts)
    source = recording(hosts)
    now = generator.permutation(hosts)  # the new number of each recorded host
    passes = generator.choice(PASSES, where.rounds, replace=False)
    links = []
    for link in source.links:
        src, dst = int(now[link.src]), int(now[link.dst])
        slow = _slowness(faults, src, dst, where)
        assert link.both_GBs is not None
        links.append(
            LinkSamples(
                src,
                dst,
                link.bandwidth_GBs[passes] / slow,
                link.latency_us[passes],
                link.both_GBs[passes] / slow,
            )
        )
    ranks = []
    for samples in source.ranks:
        # Several compute probes belong to each pass.
        each = samples.compute_us.reshape(PASSES, -1)[passes]
        rank = int(now[samples.rank])
        slow = np.ones(where.rounds)
        for fault in faults:
            if fault.computes != "no" and fault.who[0] == rank:
                slow = np.where(when(fault, where.rounds), fault.factor, slow)
        ranks.append(RankSamples(rank, (each * slow[:, np.newaxis]).ravel()))
    return Evidence(where.places, links, ranks)


def _slowness(faults: list[Fault], src: int, dst: int, where: Cluster) -> Floats:
    """Of one link the largest factor of what it leads through, shape (rounds,)."""
    host_of = np.array(where.places.host_of)
    slow = np.ones(where.rounds)
    for fault in faults:
        if touched(fault, np.array([src]), np.array([dst]), host_of)[0]:
            slow = np.maximum(slow, np.where(when(fault, where.rounds), fault.factor, 1.0))
    return slow


def drawn(scenario: Scenario | None, generator: Generator) -> Cluster:
    """A recorded cluster that is large enough."""
    least = 0 if scenario is None else scenario.hosts[0]
    hosts = int(generator.choice([each for each in HOSTS if each >= least]))
    return cluster(hosts, 1, int(generator.integers(FEWEST_PASSES, PASSES + 1)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=200, help="of each factor, all sorts of faults together"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", default="1.5,4")
    options = parser.parse_args()
    print(f"{'':24}{'right':>26}" + "".join(f"{one:>9}" for one in OUTCOMES[1:]))
    for factor in map(float, options.factors.split(",")):
        counts: Counter[str] = Counter()
        for number in range(options.trials):
            generator = np.random.default_rng([options.seed, number, round(factor * 100)])
            scenario = FAULTS[number % len(FAULTS)]
            where = drawn(scenario, generator)
            faults = scenario.faults(generator, where, factor)
            counts[outcome(attribute(replayed(where, faults, generator)), faults, where.places)] += 1
        _show(f"slow by {factor:g}", counts, options.trials)
        right = counts["right"] / options.trials
        tell(f"replayed {factor:g}x", _rate(counts["right"], options.trials), right >= _RIGHT_BAR)
    counts = Counter()
    for number in range(options.trials):
        generator = np.random.default_rng([options.seed, number])
        where = drawn(None, generator)
        verdict = attribute(replayed(where, [], generator)).verdict
        counts["right" if verdict == "none" else "unclear" if verdict == "unclear" else "wrong"] += 1
    _show("healthy", counts, options.trials)
    tell("replayed healthy", f"named in {_rate(counts['wrong'], options.trials)}", not counts["wrong"])


def _rate(hits: int, trials: int) -> str:
    low, high = clopper_pearson(hits, trials)
    return f"{100 * hits / trials:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _show(what: str, counts: Counter[str], trials: int) -> None:
    print(
        f"{what:24}{_rate(counts['right'], trials):>26}"
        + "".join(f"{counts[one]:>9}" for one in OUTCOMES[1:]),
        flush=True,
    )


if __name__ == "__main__":
    main()
