"""A run's health: what every rank's GPU and every host's NICs say before it and after it, and what rose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.environment.collect import gpu_bus_id, whole_ranks
from ncclbench.environment.counters import (
    complaints,
    factored,
    nic_complaints,
    nic_risen,
    read_counters,
    risen,
)
from ncclbench.environment.nics import read_nic_counters
from ncclbench.environment.topology import why_no_gpu

Reading = dict[str, Any]


def read_health(local_rank: int, device: str) -> Reading:
    """One rank's part, to be called in a worker: ``gpu``, and from the first rank of a host ``nics``.

    Args:
        device: "cpu", or "cuda:N" with torch's number of the device that this worker uses. On the CPU
            ``gpu`` is None and ``missing`` says why.
    """
    bus_id = gpu_bus_id(device)
    return {
        "gpu": None if bus_id is None else read_counters(bus_id),
        **({"missing": why_no_gpu()} if bus_id is None else {}),
        "nics": read_nic_counters() if local_rank == 0 else None,
    }


def health_entry(
    attempt: int,
    environment: Mapping[str, Any],
    before: Sequence[Reading],
    after: Sequence[Reading] | None,
) -> dict[str, Any]:
    """What run.json keeps of an attempt.

    Args:
        environment: of the run, as ``merge`` makes it.
        before, after: ``read_health`` of all ranks, in order of rank; ``after`` is None until the end.

    Returns:
        ``attempt``; ``before`` and ``after``: ``gpus`` as ``factored`` has them and ``nics`` by host;
        ``rose``: by ``rank`` or ``host`` the ``counters`` that rose; ``problems``: the same and what else
        became worse, a line each. ``missing`` says why there is nothing of GPUs.
    """
    names = [str(host.get("name")) for host in environment["hosts"]]
    ranks = whole_ranks(environment)
    entry: dict[str, Any] = {"attempt": attempt, "before": _kept(before, ranks, names), "after": None}
    reasons = {each["missing"] for each in before if "missing" in each}
    if reasons and all(each["gpu"] is None for each in before):
        entry["missing"] = ", ".join(sorted(reasons))
    rose, problems = [], []
    if after is not None:
        entry["after"] = _kept(after, ranks, names)
        for rank, then, now in zip(ranks, before, after, strict=True):
            if then["gpu"] is not None and now["gpu"] is not None:
                if counters := risen(then["gpu"], now["gpu"]):
                    rose.append({"rank": rank["rank"], "counters": counters})
                what = "; ".join(complaints(then["gpu"], now["gpu"]))
                if what:
                    gpu = str(rank["device"]).removeprefix("cuda:")
                    problems.append(f"rank {rank['rank']} ({names[rank['host']]}, GPU {gpu}): {what}")
        for name, then in entry["before"]["nics"].items():
            if counters := nic_risen(then, entry["after"]["nics"].get(name, {})):
                rose.append({"host": name, "counters": counters})
                problems += [f"{name}, NIC {what}" for what in nic_complaints(counters)]
    return {**entry, "rose": rose, "problems": problems}


def _kept(
    readings: Sequence[Reading], ranks: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    gpus = [each["gpu"] for each in readings]
    return {
        "gpus": None if all(gpu is None for gpu in gpus) else factored(gpus),
        "nics": {
            names[rank["host"]]: each["nics"]
            for rank, each in zip(ranks, readings, strict=True)
            if each["nics"] is not None
        },
    }
