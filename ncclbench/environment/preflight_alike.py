"""What ranks do not have alike: versions, settings, systems and clocks; with the ranks and their hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

from ncclbench.environment.collect import Description
from ncclbench.environment.flight import Finding, Flight, finding, grouped, odd, of_gpu, some
from ncclbench.units import noun_text, runs_of

# Settings of libraries, which decide how ranks talk: those of launchers differ from rank to rank rightly.
_SETTINGS = (
    *("NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "CUDA_", "GLOO_", "UCX_", "UCC_", "FI_", "NVSHMEM_"),
    *("OMP_", "MKL_", "KMP_", "GOMP_", "LD_"),
)
# Each rank has its own, or another finding tells of it.
_OWN = {"CUDA_VISIBLE_DEVICES", "TORCH_DIST_USE_NCCL2", "TORCH_DISTRIBUTED_DEBUG"}
# More than this are counted: whoever has forgotten a whole file of settings need not read all of it here.
_MOST_SETTINGS = 6
# Of which the difference is told; within it no log is hard to read.
_CLOCKS_APART_S = 1.0


def versions(flight: Flight) -> Iterator[Finding]:
    """What cannot talk to each other, or should not be compared."""
    named = (("ncclbench", "ncclbench"), ("torch", "torch"), ("torch_git", "torch's build"), ("nccl", "NCCL"))
    for key, name in named:
        values = grouped(flight.ranks, methodcaller("get", key))
        if len(values) > 1 and (key != "nccl" or flight.uses_nccl):
            what = f"{name} differs between ranks: {_who_has_what(flight, values)}"
            yield finding("error", odd(values), what, "install one version on all hosts")
            return  # one wrong installation is one finding


def settings(flight: Flight) -> Iterator[Finding]:
    """Variables that some ranks have and others have not, or not the same."""
    held = [rank.get("variables") or {} for rank in flight.ranks]
    unlike = 0
    for name in sorted({name for variables in held for name in variables}):
        if name in _OWN or not name.startswith(_SETTINGS):
            continue
        values: dict[str | None, list[Description]] = {}
        for rank, variables in zip(flight.ranks, held, strict=True):
            values.setdefault(_meant(name, variables.get(name)), []).append(rank)
        if len(values) < 2 or len(values) == len(flight.ranks) > 2:
            continue  # alike, or of every rank its own: a file for each, say
        unlike += 1
        if unlike <= _MOST_SETTINGS:
            what = f"{name} differs between ranks: {_who_has_what(flight, values)}"
            yield finding("warning", odd(values), what, f"set {name} alike on all ranks, or unset it")
    if unlike > _MOST_SETTINGS:
        what = f"{unlike - _MOST_SETTINGS} more variables differ between ranks"
        yield finding("warning", [], what, "ncclbench env under the same launcher shows them all")


def _meant(name: str, value: str | None) -> str | None:
    """Of lists of paths what the loader makes of them: mpirun adds to those of other hosts what is there."""
    if value is None or not name.startswith("LD_"):
        return value
    return ":".join(dict.fromkeys(filter(None, value.split(":")))) or None


def systems(flight: Flight) -> Iterator[Finding]:
    """Kernels and drivers."""
    kernels = grouped(flight.ranks, lambda rank: flight.hosts[rank["host"]].get("kernel"))
    drivers = grouped(flight.ranks, lambda rank: of_gpu(rank, "driver"))
    for name, values, matters in (("kernel", kernels, True), ("GPU driver", drivers, flight.uses_cuda)):
        if matters and len(values) > 1:
            what = f"the {name} differs between ranks: {_who_has_what(flight, values)}"
            yield finding("warning", odd(values), what, "compare hosts with care, or make them alike")


def clocks_apart(flight: Flight) -> Iterator[Finding]:
    """Hosts whose time of day is another: nothing that is measured depends on it, but logs do.

    Every rank has read its clock before and after the same barrier, so that the true moment lies between
    the two: a difference is told only if it is there wherever in between.
    """
    told = [rank for rank in flight.ranks if (rank.get("now") or {}).get("clock_s")]
    if not told:
        return
    midway = sorted(told, key=lambda rank: sum(rank["now"]["clock_s"]))[(len(told) - 1) // 2]
    first, last = midway["now"]["clock_s"]
    host = flight.hosts[midway["host"]]["name"]
    apart: dict[int, float] = {}
    for rank in told:
        before, after = rank["now"]["clock_s"]
        least = before - last if before > last else after - first if after < first else 0.0
        if abs(least) > _CLOCKS_APART_S and rank["host"] not in apart:
            apart[rank["host"]] = least
    if not apart:
        return
    words = [
        f"{flight.hosts[index]['name']} by {abs(least):.1f} s {'ahead' if least > 0 else 'behind'}"
        for index, least in apart.items()
    ]
    ranks = [rank for rank in told if rank["host"] in apart]
    what = f"the time of day differs from {host}'s: {some(words)}"
    mend = "synchronise the clocks (chrony, ntpd): logs and dumps of these hosts do not line up"
    yield finding("warning", ranks, what, mend)


def _who_has_what(flight: Flight, values: Mapping[Any, Sequence[Description]]) -> str:
    """Each value with the ranks that have it and their hosts, that of the most ranks last."""
    most = max(values, key=lambda value: len(values[value]))
    texts = [
        f"{_shown(value)} on {_whose(flight, ranks)}" for value, ranks in values.items() if value != most
    ]
    # Where there is one other it has a name, and "the others" would read as whoever is named last.
    rest = values[most]
    others = _whose(flight, rest) if len(rest) == 1 else "the others"
    return f"{some(texts)}, and {_shown(most)} on {others}"


def _shown(value: Any) -> str:
    return "not set" if value is None else "empty" if value == "" else str(value)


def _whose(flight: Flight, ranks: Sequence[Description]) -> str:
    numbers = sorted(rank["rank"] for rank in ranks)
    runs = [str(first) if first == last else f"{first}-{last}" for first, last in runs_of(numbers)]
    hosts = dict.fromkeys(flight.hosts[rank["host"]]["name"] for rank in ranks)
    return f"{noun_text(len(numbers), 'rank')} {some(runs)} ({some(hosts)})"
