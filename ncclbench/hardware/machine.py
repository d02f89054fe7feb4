"""On what a run was measured, as far as it tells: kind of GPU, hosts, ranks on each, rates of the NICs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncclbench.hardware.gpu_links import GpuLinks, links_of
from ncclbench.hardware.parts import Part, find_part
from ncclbench.hardware.ports import Ports, ports_of
from ncclbench.store.model import Run

# What reduces within NVSwitches.
_NVLS = {"nvls", "nvlstree"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the hardware under some rows.

    Attributes:
        gpu: name as the driver gives it; None where unknown or where there are several.
        part: the entry of parts.toml, None where there is none.
        why_no_part: why, "" where there is one.
        hosts: how many; None where unknown.
        ranks_per_host: of the host with the most; None where unknown.
        ports: the ports of the host that has least.
        gpu_links: what joins the GPUs of a host, as it was recorded; None where that is unknown.
        domains: NVLink domains that the GPUs of all hosts belong to; None where unknown.
        nvls_off: settings of the run rule out in-network reduction.
        files: of an imported run, the machine of each invocation in each file.
    """

    gpu: str | None = None
    part: Part | None = None
    why_no_part: str = ""
    hosts: int | None = None
    ranks_per_host: int | None = None
    ports: Ports = field(default_factory=Ports)
    gpu_links: GpuLinks | None = None
    domains: int | None = None
    nvls_off: bool = False
    files: tuple[tuple[Machine, ...], ...] = ()

    def under(self, row: Mapping[str, Any]) -> Machine:
        """The machine of one row: of an imported one that of the invocation that printed it."""
        file, section = row.get("file"), row.get("section", 0)
        if not self.files or not isinstance(file, int):
            return self
        try:
            own: Machine = self.files[file][section]
        except (IndexError, TypeError):
            return Machine(why_no_part="the GPU is unknown")
        return own


def machine_of(run: Run) -> Machine:
    """The machine of a run, from its environment or from what the imported files tell."""
    whole = _described(_mapping(run.meta.get("environment")))
    files = _entries(_mapping(run.meta.get("imported")).get("files"))
    if not files:
        return whole
    return _imported(whole, files)


def _described(environment: Mapping[str, Any]) -> Machine:
    hosts = _entries(environment.get("hosts"))
    ranks = _entries(environment.get("ranks"))
    common = _mapping(environment.get("common"))
    on_hosts = Counter(rank["host"] for rank in ranks if isinstance(rank.get("host"), int))
    names = [
        _mapping(common.get("gpu")).get("name"),
        *(_mapping(rank.get("gpu")).get("name") for rank in ranks),
    ]
    variables = [_mapping(common.get("variables")), *(_mapping(rank.get("variables")) for rank in ranks)]
    gpu, part, why = _part(sorted({str(name) for name in names if name}))
    return Machine(
        gpu=gpu,
        part=part,
        why_no_part=why,
        hosts=len(hosts) or None,
        ranks_per_host=max(on_hosts.values(), default=None),
        ports=ports_of(hosts, _on_each(hosts, ranks, common)),
        gpu_links=links_of(hosts),
        domains=_domains(hosts),
        nvls_off=any(_rules_nvls_out(values) for values in variables),
    )


def _imported(whole: Machine, files: Sequence[Mapping[str, Any]]) -> Machine:
    """An imported run: each invocation tells of its own machine, and what it does not tell is not known.

    Of the run as a whole is known what all that gave rows have in common.
    """
    sections = [_entries(file.get("sections")) for file in files]
    machines = tuple(tuple(_invocation(section) for section in found) for found in sections)
    if not any(machines):
        return whole
    used = {_invocation(section) for found in sections for section in found if section.get("rows_taken")}
    gpu, part, why = _part(sorted({machine.gpu for machine in used if machine.gpu}))
    return Machine(
        gpu,
        part,
        why,
        hosts=_common({machine.hosts for machine in used}),
        ranks_per_host=_common({machine.ranks_per_host for machine in used}),
        nvls_off=any(machine.nvls_off for machine in used),
        files=machines,
    )


def _common(values: set[int | None]) -> int | None:
    return values.pop() if len(values) == 1 else None


def _invocation(section: Mapping[str, Any]) -> Machine:
    gpu, part, why = _part([str(section["gpu"])] if section.get("gpu") else [])
    return Machine(
        gpu,
        part,
        why,
        hosts=_positive(section.get("nhosts")),
        ranks_per_host=_positive(section.get("ranks_per_host")),
        nvls_off=_rules_nvls_out(_mapping(section.get("environment"))),
    )


def _rules_nvls_out(variables: Mapping[str, Any]) -> bool:
    """Whether settings rule NVLS out for all_reduce: a switch, or a list of algorithms without it.

    NCCL_ALGO is "ring,tree", "^nvls,nvlstree" for all but these, or such a list per operation:
    "allreduce:ring;broadcast:tree". In what case does not matter.
    """
    if str(variables.get("NCCL_NVLS_ENABLE", "")).strip() == "0":
        return True
    lists = {}
    for part in str(variables.get("NCCL_ALGO") or "").lower().split(";"):
        op, colon, algorithms = part.strip().rpartition(":")
        lists[op if colon else ""] = algorithms.strip()
    asked = lists.get("allreduce") or lists.get("") or ""
    named = {word.strip() for word in asked.removeprefix("^").split(",")}
    if asked.startswith("^"):
        return named >= _NVLS
    return bool(asked) and not named & _NVLS


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _part(names: Sequence[str]) -> tuple[str | None, Part | None, str]:
    """Name, part, and why there is no part."""
    if not names:
        return None, None, "the GPU is unknown"
    if len(names) > 1:
        return None, None, f"several kinds of GPU: {', '.join(names)}"
    (name,) = names
    part = find_part(name)
    return name, part, "" if part else f"no entry in the table of parts is called {name}"


def _on_each(
    hosts: Sequence[Any], ranks: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
) -> list[list[Mapping[str, Any]]]:
    """Of every host the variables of its ranks, where they differ."""
    shared = _mapping(common.get("variables"))
    own: list[list[Mapping[str, Any]]] = [[] for _ in hosts]
    for rank in ranks:
        host, variables = rank.get("host"), {**shared, **_mapping(rank.get("variables"))}
        if isinstance(host, int) and 0 <= host < len(own) and variables not in own[host]:
            own[host].append(variables)
    return own


def _domains(hosts: Sequence[Mapping[str, Any]]) -> int | None:
    """How many NVLink domains there are, where every GPU of every host tells its own."""
    gpus = [gpu for host in hosts for gpu in _entries(_mapping(host.get("topology")).get("gpus"))]
    told = [_mapping(gpu.get("fabric")) for gpu in gpus]
    # A cluster of zeros is no domain beyond the host.
    if not told or not all(str(fabric.get("cluster") or "").strip("0-") for fabric in told):
        return None
    return len({(fabric["cluster"], fabric.get("clique")) for fabric in told})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
