"""Runs of a search made of numbers, for tests of what is shown of them: no process measured anything."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.model import Run
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest

# GB/s of a healthy link, by whether its ends share a host.
INSIDE_GBs, ACROSS_GBs = 180.0, 24.0
_NBYTES = 64 << 20


def make_search(
    folder: Path = Path("results/search"),
    *,
    kind: str = "suspects",
    hosts: int = 4,
    ranks_per_host: int = 1,
    passes: int = 6,
    slow_hosts: Mapping[int, float] | None = None,
    slow_pairs: Mapping[tuple[int, int], float] | None = None,
    slow_ranks: Mapping[int, float] | None = None,
    sampled: float = 1.0,
    names: Sequence[str] | None = None,
    seed: int = 1,
) -> Run:
    """A complete search.

    Args:
        slow_hosts: factor of time of all links to and from other hosts, by host.
        slow_pairs: factor of time, by ordered pair of ranks.
        slow_ranks: factor of the time of compute, by rank; such a rank also comes last.
        sampled: the part of the pairs that is measured.
        names: of the hosts.
    """
    generator = np.random.default_rng(seed)
    nranks = hosts * ranks_per_host
    host_of = [rank // ranks_per_host for rank in range(nranks)]
    slow_hosts, slow_pairs, slow_ranks = slow_hosts or {}, slow_pairs or {}, slow_ranks or {}
    pairs = [pair for pair in itertools.combinations(range(nranks), 2) if generator.random() < sampled]
    own = {pair: generator.normal(0, 0.01) for pair in itertools.permutations(range(nranks), 2)}

    def factor(src: int, dst: int) -> float:
        one, other = host_of[src], host_of[dst]
        slowest = max(slow_hosts.get(one, 1.0), slow_hosts.get(other, 1.0)) if one != other else 1.0
        return max(slowest, slow_pairs.get((src, dst), 1.0)) * float(np.exp(own[src, dst]))

    probes: list[Probe] = []
    for turn in range(passes):
        if kind == "suspects":
            probes += [
                RankTest(
                    turn=turn,
                    rank=rank,
                    compute_us=200.0 * slow_ranks.get(rank, 1.0) * float(np.exp(generator.normal(0, 0.01))),
                    to_device_GBs=50.0 * float(np.exp(generator.normal(0, 0.01))),
                    from_device_GBs=48.0 * float(np.exp(generator.normal(0, 0.01))),
                )
                for rank in range(nranks)
            ]
        for pair in pairs:
            latency_us = float(
                (4.0 if host_of[pair[0]] == host_of[pair[1]] else 12.0) * np.exp(generator.normal(0, 0.03))
            )
            for src, dst in (pair, pair[::-1]):
                rate = INSIDE_GBs if host_of[src] == host_of[dst] else ACROSS_GBs
                rate /= factor(src, dst) * float(np.exp(generator.normal(0, 0.01)))
                probes.append(
                    PairTest(
                        turn=turn,
                        src=src,
                        dst=dst,
                        nbytes=_NBYTES,
                        latency_us=latency_us,
                        alone_GBs=rate,
                        both_GBs=0.9 * rate,
                        wrong=False,
                    )
                )
    if kind == "suspects":
        probes += _waits(generator, nranks, slow_ranks)
        probes += _subsets(generator, nranks, ranks_per_host, slow_hosts)
    return Run(
        folder=folder,
        meta=_meta(kind, nranks, host_of, names or [make_host(index)["name"] for index in range(hosts)]),
        plan=unplanned((Arm("nccl2", "nccl2"),), nranks),
        probes=probes,
    )


def _waits(
    generator: np.random.Generator, nranks: int, slow_ranks: Mapping[int, float], iterations: int = 60
) -> list[WaitTest]:
    """What each rank spends in all_reduce: 100 us once the last has come."""
    work_us = 4000.0 * np.exp(generator.normal(0, 0.005, (nranks, iterations)))
    for rank, slowness in slow_ranks.items():
        work_us[rank] *= slowness
    waits_us = 100.0 + work_us.max(axis=0) - work_us
    return [
        WaitTest(turn=0, rank=rank, op="all_reduce", waits_us=own.tolist())
        for rank, own in enumerate(waits_us)
    ]


def _subsets(
    generator: np.random.Generator, nranks: int, ranks_per_host: int, slow_hosts: Mapping[int, float]
) -> list[SubsetTest]:
    """all_reduce on ever more hosts, the slow ones last, then all_to_all on everybody."""
    order = sorted(range(nranks // ranks_per_host), key=lambda host: (host in slow_hosts, host))

    def test(op: str, hosts: Sequence[int]) -> SubsetTest:
        ranks = [host * ranks_per_host + at for host in sorted(hosts) for at in range(ranks_per_host)]
        slowness = max(slow_hosts.get(host, 1.0) for host in hosts)
        part = 2 * (len(ranks) - 1) / len(ranks)
        times_us = slowness * part * _NBYTES / 1e3 / 200.0 * np.exp(generator.normal(0, 0.01, 3))
        return SubsetTest(
            turn=0, op=op, ranks=ranks, nbytes=_NBYTES, times_us=times_us.tolist(), iterations=3
        )

    grown = [test("all_reduce", order[:count]) for count in range(2, len(order) + 1)]
    return [*grown, test("all_to_all", order)] if len(order) > 1 else []


def _meta(kind: str, nranks: int, host_of: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": kind,
        "ncclbench": "0.1.0",
        "label": None,
        "created": "2026-11-29T15:50:00Z",
        "command": ["ncclbench", kind],
        "plan": unplanned((Arm("nccl2", "nccl2"),), nranks).to_json(),
        "asked": {"level": "rank", "at_once": "host", "passes": 6, "quick": False, "time_budget": None},
        "status": "complete",
        "message": None,
        "environment": {
            "hosts": [{**make_host(index), "name": name} for index, name in enumerate(names)],
            "ranks": [
                {"rank": rank, "host": host_of[rank], "local_rank": rank - host_of.index(host_of[rank])}
                for rank in range(nranks)
            ],
        },
        "preflight": [],
        "attempts": [],
    }
