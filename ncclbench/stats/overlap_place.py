"""Where an overlap run ran: whether what it reads there is overlap, and what carries the communication."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.environment.collect import whole_ranks
from ncclbench.environment.host import parse_ranges
from ncclbench.store.model import Run
from ncclbench.tables.backends import BACKENDS

# On a CPU one core computes, and one moves the bytes meanwhile.
CORES_PER_RANK = 2

_INTERFACE = "GLOO_SOCKET_IFNAME"
# With them the host waits for one of the two before it can issue the other.
_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "CUDA_LAUNCH_BLOCKING")
_OFF = ("", "0", "n", "no", "f", "false", "off")

# As ``describe_share`` writes them.
_CORES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?){0,9999}", re.ASCII)


def why_no_figure(run: Run) -> str | None:
    """Why communication and compute contend here, so that no figure of overlap comes of it; None where not.

    On a GPU the two share multiprocessors and memory, which is what a training step sees too. On a CPU, bytes
    between ranks of one host are copied by the cores that compute, whatever the interface is called; and
    between hosts a rank needs a core to compute on and another that serves the network.
    """
    ranks = _ranks(run)
    if not ranks:
        return "the run does not say where it ran"
    if any(str(rank.get("device")).startswith("cuda") for rank in ranks):
        gpus = {(rank["host"], _gpu(rank)) for rank in ranks}
        if len(gpus) < len(ranks):
            return f"{len(ranks)} ranks share {len(gpus)} GPUs"
        return _what_blocks(ranks)
    hosts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for rank in ranks:
        hosts[rank["host"]].append(rank)
    if len(hosts) == 1:
        cores = _cores(ranks)
        who = "the" if cores is None else f"{cores:g}"
        whose = "both ranks" if len(ranks) == 2 else f"all {len(ranks)} ranks"
        return (
            f"{whose} are on one host, where communication is copying by the {who} cores that compute, so "
            "the two contend"
        )
    for members in hosts.values():
        cores = _cores(members)
        if cores is None:
            return "the run does not say how many cores a rank has"
        if cores < CORES_PER_RANK * len(members):
            return (
                f"rank {members[0]['rank']}'s host has {cores:g} cores for {len(members)} ranks: each needs "
                f"{CORES_PER_RANK}, one that computes and one that communicates, so the two contend"
            )
    return None


def _what_blocks(ranks: Sequence[Mapping[str, Any]]) -> str | None:
    for rank in ranks:
        for name in _BLOCKING:
            value = _variable(rank, name) or ""
            if value.strip().lower() not in _OFF:
                return f"{name}={value} makes the host wait before it issues both: unset it"
    return None


def carrier(run: Run, arm: str) -> str:
    """An arm and what carries it, in words: "gloo over eth0", "gloo between 2 hosts", "nccl2 on 8 GPUs"."""
    ranks = _ranks(run)
    backends = {each.id: each.backend for each in run.plan.arms}
    backend = BACKENDS.get(backends.get(arm, ""))
    if any(str(rank.get("device")).startswith("cuda") for rank in ranks):
        return f"{arm} on {len(ranks)} GPUs"
    names = {_variable(rank, _INTERFACE) for rank in ranks}
    hosts = len({rank["host"] for rank in ranks})
    if backend is not None and backend.name == "gloo" and len(names) == 1 and (name := names.pop()):
        return f"{arm} over {name}"
    return f"{arm} between {hosts} hosts" if hosts > 1 else f"{arm} on one host"


def _ranks(run: Run) -> list[dict[str, Any]]:
    environment = run.meta.get("environment")
    return whole_ranks(environment) if environment else []


def _cores(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    """What ranks of one host may compute on together; None where they do not say."""
    together: set[int] = set()
    least = float("inf")
    for rank in ranks:
        cores, quota = rank.get("cores"), rank.get("cpu_quota_cores")
        if not isinstance(cores, str) or not _CORES.fullmatch(cores):
            return None
        own = parse_ranges(cores)
        together |= own
        # Bound to too few, a rank contends with itself however many the host has.
        least = min(least, len(own) * len(ranks))
        if isinstance(quota, int | float):
            least = min(least, quota)
    return min(len(together), least)


def _gpu(rank: Mapping[str, Any]) -> str:
    """What tells a rank's GPU from the others of its host: each rank may see its own one only, as cuda:0."""
    gpu = rank.get("gpu")
    uuid = gpu.get("uuid") if isinstance(gpu, dict) else None
    return str(uuid or rank.get("device"))


def _variable(rank: Mapping[str, Any], name: str) -> str | None:
    variables = rank.get("variables")
    value = variables.get(name) if isinstance(variables, dict) else None
    return value if isinstance(value, str) else None
