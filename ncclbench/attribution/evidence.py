"""From the single tests of a run to the evidence that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ncclbench.attribution.model import Arrivals, Evidence, GroupSamples, LinkSamples, Places, RankSamples
from ncclbench.stats.intervals import Floats
from ncclbench.store.model import Run
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest


def evidence_of(run: Run) -> Evidence:
    """The evidence in a run of a search."""
    return gathered(run.probes, places_of(run.meta.get("environment") or {}, run.plan.nranks))


def gathered(probes: Sequence[Probe], places: Places) -> Evidence:
    """All tests of a search, each element's in the order of the passes; NaN where a pass lacks one."""
    return Evidence(
        places=places,
        links=_links([probe for probe in probes if isinstance(probe, PairTest)]),
        ranks=_ranks([probe for probe in probes if isinstance(probe, RankTest)]),
        groups=[
            GroupSamples(tuple(probe.ranks), probe.op, probe.nbytes, np.array(probe.times_us))
            for probe in probes
            if isinstance(probe, SubsetTest)
        ],
        arrivals=_arrivals([probe for probe in probes if isinstance(probe, WaitTest)]),
    )


def places_of(environment: Mapping[str, Any], nranks: int) -> Places:
    """Which rank is on which host; one nameless host where nothing tells."""
    hosts = environment.get("hosts") or []
    if not hosts:
        return Places((0,) * nranks, ("this host",))
    names = [str(host.get("name") or f"host {index}") for index, host in enumerate(hosts)]
    host_of = {entry["rank"]: entry["host"] for entry in environment["ranks"]}
    return Places(tuple(host_of[rank] for rank in range(nranks)), tuple(_distinct(names)))


def arrivals_of(waits_us: Floats, op: str, nbytes: int) -> Arrivals:
    """Who came last, of shape (ranks, iterations) spent in an operation in which all wait for all.

    The last to arrive waits least; what others waited longer is how much later it came. So no clock is
    compared with another.
    """
    last = np.bincount(waits_us.argmin(axis=0), minlength=waits_us.shape[0])
    lateness = np.median(np.median(waits_us, axis=0) - waits_us, axis=1)
    return Arrivals(op, nbytes, tuple(int(times) for times in last), waits_us.shape[1], lateness)


def _links(tests: Sequence[PairTest]) -> list[LinkSamples]:
    rounds = 1 + max((test.turn for test in tests), default=-1)
    found: dict[tuple[int, int], Floats] = {}
    for test in tests:
        rows = found.setdefault((test.src, test.dst), np.full((3, rounds), np.nan))
        if not test.wrong:  # of data that arrived wrong no speed counts
            rows[:, test.turn] = (test.alone_GBs, test.latency_us, test.both_GBs)
    return [LinkSamples(src, dst, rows[0], rows[1], rows[2]) for (src, dst), rows in sorted(found.items())]


def _ranks(tests: Sequence[RankTest]) -> list[RankSamples]:
    rounds = 1 + max((test.turn for test in tests), default=-1)
    found: dict[int, Floats] = {}
    for test in tests:
        rows = found.setdefault(test.rank, np.full((3, rounds), np.nan))
        copies = (test.to_device_GBs, test.from_device_GBs)
        rows[:, test.turn] = (test.compute_us, *(np.nan if rate is None else rate for rate in copies))
    return [
        RankSamples(rank, rows[0], _or_none(rows[1]), _or_none(rows[2]))
        for rank, rows in sorted(found.items())
    ]


def _or_none(rates: Floats) -> Floats | None:
    return None if np.isnan(rates).all() else rates


def _arrivals(tests: Sequence[WaitTest]) -> list[Arrivals]:
    found: dict[tuple[int, str], dict[int, list[float]]] = {}
    for test in tests:
        found.setdefault((test.turn, test.op), {})[test.rank] = test.waits_us
    return [
        arrivals_of(np.array([waits[rank] for rank in sorted(waits)]), op, 0)
        for (_, op), waits in sorted(found.items())
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Equal names with a number: containers on several machines may all be called alike."""
    return [
        name if names.count(name) == 1 else f"{name}#{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def wrong_pairs(run: Run) -> list[tuple[int, int]]:
    """Pairs between which something else arrived than was sent."""
    return sorted({(test.src, test.dst) for test in run.probes if isinstance(test, PairTest) and test.wrong})
