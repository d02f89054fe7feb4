"""What changed between two environments: each fact that is not alike, with how many ranks have each value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ncclbench.environment.gpu import IDENTITY, MOMENTARY
from ncclbench.environment.topology import topology_facts
from ncclbench.environment.variables import HIDDEN

# The most telling first; what starts with none of these comes after them, as it was recorded.
_ORDER = (
    "gpu.name",
    "gpu.driver",
    "driver",
    "nccl",
    "torch",
    "cuda",
    "kernel",
    "gpu.vbios",
    "bios",
    "nic_firmware",
    "gpu.",
    "gpu_links",
    "nics",
    "net_plugin",
    "NCCL_",
    "TORCH_",
    "CUDA_",
    "ncclbench",
    "ranks",
    "host",
)
# Of the rank alone, or of the moment.
_OWN = (
    "rank",
    "host",
    "local_rank",
    "pid",
    "device",
    "now",
    "gpu",
    "variables",
    "name",
    "boot_id",
    "topology",
)
# Another in every launch of one and the same job.
_OF_A_LAUNCH = ("MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RESTART_COUNT")
# Reasons for a lowered clock that are no trouble.
_HARMLESS = {"gpu idle", "applications clocks setting", "sync boost", "display clocks setting"}
# More values of one fact than this are counted only.
_MOST_VALUES = 16

_HIDDEN = json.dumps(HIDDEN)

Counts = Counter[str]


def changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What differs between two environments as run.json holds them.

    Returns:
        ``what`` (a variable's name, ``torch``, ``gpu.driver``), ``base`` and ``new``: each ``value``
        (null: not set, not there or not recorded) with the number of ``ranks`` that have it; most
        telling first. ``base_more`` and ``new_more``: how many values were left out.
    """
    return changes_between([base], [new])


def changes_between(
    base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The same between two sides of several runs each, whose ranks are counted together.

    A fact has changed where its values are not had by the same shares of the ranks. Which very GPU or
    boot it was counts only on the same hosts: on others it is never the same.
    """
    same_hosts = host_names(base) == host_names(new)
    told = all(
        "topology" in host for side in (base, new) for each in side for host in each.get("hosts") or ()
    )
    before, after = _counted(base, same_hosts, told), _counted(new, same_hosts, told)
    for what in {*before} ^ {*after}:
        if what.startswith("gpu.") and "gpu.name" in before and "gpu.name" in after:
            # Recorded by one of two versions of ncclbench only: that tells nothing of the machines.
            before.pop(what, None), after.pop(what, None)
    absent = [Counter({"null": max(1, _nranks(side))}) for side in (base, new)]
    found = [
        changed(what, before.get(what, absent[0]), after.get(what, absent[1]))
        for what in sorted({**before, **after}, key=_place)
    ]
    return [change for change in found if change is not None]


def changed(what: str, base: Counts, new: Counts) -> dict[str, Any] | None:
    """One entry of ``changes`` from how many ranks have each value, as JSON text; None where alike.

    Two values that were hidden are not known to be alike.
    """
    if _shares(base) == _shares(new) and _HIDDEN not in base:
        return None
    return {"what": what, **_values("base", base), **_values("new", new)}


def host_names(environments: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of all hosts in the environments."""
    return {str(host.get("name")) for each in environments for host in each.get("hosts") or ()}


def value_text(value: Any) -> str:
    """A value of a fact for people."""
    if value is None:
        return "(none)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def side_text(change: Mapping[str, Any], side: str) -> str:
    """The values on one side, ``base`` or ``new``: "2.30.7", or "2.30.7 on 6 ranks, 2.29.1 on 2"."""
    values = change[side]
    if len(values) == 1:
        return value_text(values[0]["value"])
    shown = ", ".join(f"{value_text(each['value'])} on {each['ranks']} ranks" for each in values[:4])
    more = len(values) - 4 + change.get(f"{side}_more", 0)
    return f"{shown} and {more} more values" if more > 0 else shown


def _counted(
    environments: Sequence[Mapping[str, Any]], same_hosts: bool, topology: bool
) -> dict[str, Counts]:
    """How many ranks have each value, as JSON, of every fact."""
    counts: dict[str, Counts] = {}
    for environment in environments:
        for rank in environment.get("ranks") or ():
            for what, value in _facts(environment, rank, same_hosts, topology):
                counts.setdefault(what, Counter())[json.dumps(value, sort_keys=True)] += 1
    for values in counts.values():
        if missing := _nranks(environments) - values.total():
            values["null"] += missing
    counts["ranks"] = Counter()
    for environment in environments:
        nranks = len(environment.get("ranks") or ())
        counts["ranks"][str(nranks)] += max(1, nranks)
    return counts


def _nranks(environments: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(each.get("ranks") or ()) for each in environments)


def _facts(
    environment: Mapping[str, Any], rank: Mapping[str, Any], same_hosts: bool, topology: bool
) -> Iterator[tuple[str, Any]]:
    common, hosts = _mapping(environment.get("common")), environment["hosts"]
    host = _mapping(hosts[rank["host"]])
    gpu = {**_mapping(common.get("gpu")), **_mapping(rank.get("gpu"))}
    yield "host", host.get("name")
    if same_hosts:
        yield "boot_id", host.get("boot_id")
    if topology:
        yield from topology_facts(host).items()
    for key, value in gpu.items():
        if key == "throttle_reasons":
            yield "gpu.throttled", sorted(set(map(str, value or ())) - _HARMLESS) or None
        elif key in IDENTITY:
            if same_hosts:
                yield f"gpu.{key}", value
        elif key not in (*MOMENTARY, "missing"):
            yield f"gpu.{key}", value
    for key, value in {**_mapping(common.get("variables")), **_mapping(rank.get("variables"))}.items():
        if key not in _OF_A_LAUNCH:
            yield key, value
    for key, value in {**host, **common, **rank}.items():
        if key not in _OWN:
            yield key, value


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value, or nothing where a file holds something else in its place."""
    return value if isinstance(value, Mapping) else {}


def _place(what: str) -> tuple[int, str]:
    exact = [index for index, name in enumerate(_ORDER) if what == name]
    begun = [index for index, name in enumerate(_ORDER) if what.startswith(name)]
    return (*exact, *begun, len(_ORDER))[0], what


def _shares(values: Counts) -> dict[str, Fraction]:
    total = values.total()
    return {value: Fraction(count, total) for value, count in values.items() if count}


def _values(side: str, values: Counts) -> dict[str, Any]:
    ordered = [{"value": json.loads(text), "ranks": count} for text, count in values.most_common()]
    more = len(ordered) - _MOST_VALUES
    return {side: ordered[:_MOST_VALUES], **({f"{side}_more": more} if more > 0 else {})}
