"""From the single tests of a run to the evidence that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ncclbench.attribution.model import Arrivals, Evidence, GroupSamples, LinkSamples, Places, RankSamples
from ncclbench.stats.intervals import Floats
from ncclbench.store.model import Run
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest

# Microseconds and GB/s that can be measured, generously.
_LEAST, _MOST = 1e-9, 1e15


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
    """Which rank is on which host; one nameless host where nothing tells, one more for ranks left out."""
    hosts = environment.get("hosts") or []
    if not hosts:
        return Places((0,) * nranks, ("this host",))
    names = [str(host.get("name") or f"host {index}") for index, host in enumerate(hosts)]
    host_of = {entry["rank"]: entry["host"] for entry in environment["ranks"]}
    # Of a search that was read every rank is told; of a sweep whose file was cut perhaps not.
    places = tuple(host_of.get(rank, len(names)) for rank in range(nranks))
    if len(names) in places:
        names.append("a host not told")
    return Places(places, tuple(_distinct(names)))


def arrivals_of(waits_us: Floats, op: str, nbytes: int) -> Arrivals:
    """Who came last, of shape (ranks, iterations) spent in an operation in which all wait for all.

    The last to arrive waits least; what others waited longer is how much later it came. So no clock is
    compared with another.
    """
    last = np.bincount(waits_us.argmin(axis=0), minlength=waits_us.shape[0])
    lateness = np.median(np.median(waits_us, axis=0) - waits_us, axis=1)
    return Arrivals(op, nbytes, tuple(int(times) for times in last), waits_us.shape[1], lateness)


def _links(tests: Sequence[PairTest]) -> list[LinkSamples]:
    round_of = _rounds(tests)
    found: dict[tuple[int, int], Floats] = {}
    for test in tests:
        rows = found.setdefault((test.src, test.dst), np.full((3, len(round_of)), np.nan))
        if not test.wrong:  # of data that arrived wrong no speed counts
            rows[:, round_of[test.turn]] = (test.alone_GBs, test.latency_us, test.both_GBs)
    return [LinkSamples(*pair, *map(_believed, rows)) for pair, rows in sorted(found.items())]


def _ranks(tests: Sequence[RankTest]) -> list[RankSamples]:
    round_of = _rounds(tests)
    found: dict[int, Floats] = {}
    for test in tests:
        rows = found.setdefault(test.rank, np.full((3, len(round_of)), np.nan))
        copies = (test.to_device_GBs, test.from_device_GBs)
        rows[:, round_of[test.turn]] = (
            test.compute_us,
            *(np.nan if rate is None else rate for rate in copies),
        )
    return [
        RankSamples(rank, _believed(rows[0]), _or_none(rows[1]), _or_none(rows[2]))
        for rank, rows in sorted(found.items())
    ]


def _rounds(tests: Sequence[PairTest] | Sequence[RankTest]) -> dict[int, int]:
    """Where each pass stands among those that there are."""
    return {turn: at for at, turn in enumerate(sorted({test.turn for test in tests}))}


def _believed(values: Floats) -> Floats:
    """NaN where a number is none that a clock can give."""
    return np.where((values >= _LEAST) & (values <= _MOST), values, np.nan)


def _or_none(rates: Floats) -> Floats | None:
    return None if np.isnan(rates).all() else _believed(rates)


def _arrivals(tests: Sequence[WaitTest]) -> list[Arrivals]:
    """Of whole loops: the reader refuses or drops those in which a rank lacks or has fewer iterations."""
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
