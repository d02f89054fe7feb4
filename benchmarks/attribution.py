"""How often the slow one is named rightly, and how often somebody in a healthy cluster is.

    python benchmarks/attribution.py [--trials 200] [--seed 0] [--factors 1.5,2,4,10]

Tables of links and ranks are drawn for clusters of random shape (_link_tables.py: noise of 0.2 % to 3 %,
links that differ by up to 3 %, rounds that take twice as long, drift) with faults of one sort in each. Right
is only the exact set of suspects, each with its kind, its ranks and its direction; "wrong" holds a name that
is none of them, "part" names some of two. Rates stand with their Clopper-Pearson intervals; the last column
is how many 95 % intervals of the ratio held the factor.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace

import numpy as np
from _link_tables import (
    ROUNDS,
    SCENARIOS,
    Cluster,
    Fault,
    Generator,
    Noise,
    Scenario,
    cluster,
    sampled,
    table,
    usual_noise,
)

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.model import Attribution, Evidence, Places
from ncclbench.stats.rates import clopper_pearson

Name = tuple[str, tuple[int, ...], str]

OUTCOMES = ("right", "part", "wrong", "unclear", "none")
LARGE = 64
MANY_HOSTS = 250


def name_of(fault: Fault, places: Places) -> Name:
    """The suspect that a fault should give: kind, ranks, direction."""
    if fault.kind == "rank":
        return "rank", fault.who, fault.direction
    if fault.kind == "host":
        return "host", places.ranks_on(fault.who[0]), fault.direction
    ends = tuple(places.ranks_on(end)[0] if fault.of_hosts else end for end in fault.who)
    return "link", tuple(sorted(ends)), "both" if fault.direction == "both" else f"{ends[0]}>{ends[1]}"


def outcome(answer: Attribution, faults: list[Fault], places: Places) -> str:
    """How an answer compares with the truth."""
    truth = {name_of(fault, places) for fault in faults}
    named = {(one.kind, one.ranks, one.direction) for one in answer.suspects}
    if named - truth:
        return "wrong"
    if named:
        return "right" if named == truth else "part"
    return "unclear" if answer.verdict == "unclear" else "none"


def random_cluster(generator: Generator, hosts: tuple[int, int], per_host: tuple[int, int]) -> Cluster:
    """A cluster of up to 64 ranks, numbered host by host or not."""
    nhosts = int(generator.integers(hosts[0], hosts[1] + 1))
    most = max(per_host[0], min(per_host[1], LARGE // nhosts))
    nranks = int(generator.integers(per_host[0], most + 1))
    rounds = int(generator.choice(ROUNDS))
    return cluster(nhosts, nranks, rounds, generator if generator.random() < 0.5 else None)


def trial(generator: Generator, scenario: Scenario, factor: float) -> tuple[Evidence, list[Fault]]:
    """One table with the faults in it."""
    where = random_cluster(generator, scenario.hosts, scenario.ranks_per_host)
    faults = scenario.faults(generator, where, factor)
    return table(where, faults, usual_noise(generator), generator), faults


def count(scenario: Scenario, factor: float, trials: int, seed: int) -> tuple[Counter[str], int, int]:
    """Outcomes of so many tables, and how many intervals of right names held the factor, of how many."""
    outcomes: Counter[str] = Counter()
    held = told = 0
    for number in range(trials):
        generator = np.random.default_rng([seed, SCENARIOS.index(scenario), number])
        evidence, faults = trial(generator, scenario, factor)
        answer = attribute(evidence)
        one = outcome(answer, faults, evidence.places)
        outcomes[one] += 1
        factors = {name_of(fault, evidence.places): fault.factor for fault in faults}
        for suspect in answer.suspects:
            true = factors.get((suspect.kind, suspect.ranks, suspect.direction))
            if true is not None and suspect.ci_low is not None and suspect.ci_high is not None:
                told += 1
                held += suspect.ci_low <= true <= suspect.ci_high
    return outcomes, held, told


HEALTHY = {
    "usual noise": lambda generator: usual_noise(generator),
    "links differ by 5 %": lambda generator: replace(usual_noise(generator), between=0.05),
    "heavy tails, 5 %": lambda generator: Noise(0.02, 0.05, student=3),
    "rounds far out, 10 %": lambda generator: replace(usual_noise(generator), far_out=0.1),
}


def healthy(kind: str, trials: int, seed: int) -> Counter[str]:
    """Verdicts on tables with no fault."""
    verdicts: Counter[str] = Counter()
    for number in range(trials):
        generator = np.random.default_rng([seed, 1000 + list(HEALTHY).index(kind), number])
        where = random_cluster(generator, (1, 16), (1, 8))
        if where.nranks < 2:
            where = cluster(2, 1, where.rounds)
        verdicts[attribute(table(where, [], HEALTHY[kind](generator), generator)).verdict] += 1
    return verdicts


def _rate(hits: int, trials: int) -> str:
    low, high = clopper_pearson(hits, trials)
    return f"{100 * hits / trials:5.1f} % [{100 * low:4.1f}, {100 * high:5.1f}]"


def _speed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    noise = Noise(0.01, 0.02)
    for name, where in (
        (f"{LARGE} ranks, all pairs", cluster(8, LARGE // 8, 5)),
        (f"{LARGE} hosts, all pairs", cluster(LARGE, 1, 5)),
        (f"{MANY_HOSTS} hosts, sampled", sampled(cluster(MANY_HOSTS, 1, 5), 8, generator)),
    ):
        fault = Fault("host", (3,), 1.5)
        evidence = table(where, [fault], noise, generator)
        begun = time.perf_counter()
        answer = attribute(evidence)
        took = time.perf_counter() - begun
        print(f"{name:24} {len(where.pairs):6} links: {took:.2f} s, {outcome(answer, [fault], where.places)}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200, help="of each sort of fault and factor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", default="1.5,2,4,10")
    options = parser.parse_args()
    print(
        f"{'fault':20} {'factor':>6}  {'right':24}"
        + "".join(f"{one:>8}" for one in OUTCOMES[1:])
        + "  interval"
    )
    for scenario in SCENARIOS:
        for factor in map(float, options.factors.split(",")):
            outcomes, held, told = count(scenario, factor, options.trials, options.seed)
            print(
                f"{scenario.name:20} {factor:6g}  {_rate(outcomes['right'], options.trials):24}"
                + "".join(f"{outcomes[one]:8}" for one in OUTCOMES[1:])
                + (f"  {100 * held / told:5.1f} %" if told else ""),
                flush=True,
            )
    print(f"\n{'healthy':24} {'somebody named':24} unclear")
    for kind in HEALTHY:
        verdicts = healthy(kind, options.trials, options.seed)
        named = options.trials - verdicts["none"] - verdicts["unclear"]
        print(f"{kind:24} {_rate(named, options.trials):24} {verdicts['unclear']}", flush=True)
    print()
    _speed(options.seed)


if __name__ == "__main__":
    main()
