"""On what a run was measured, as far as it tells: kind of GPU, hosts, ranks on each, rates of the NICs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.hardware.parts import Part, find_part
from ncclbench.store.model import Run

# Switches NVLS off for all_reduce, each by itself.
_NVLS_OFF = {"NCCL_NVLS_ENABLE": ("0",), "NCCL_ALGO": ("RING", "TREE", "RING,TREE", "TREE,RING")}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the hardware under some rows.

    Attributes:
        gpu: name as the driver gives it; None where unknown or where there are several.
        part: the entry of parts.toml, None where there is none.
        why_no_part: why, "" where there is one.
        hosts: how many; None where unknown.
        ranks_per_host: of the host with the most; None where unknown.
        ports_gbps: rates of the fastest ports of the host that has least, Gb/s each; empty where unknown.
        domains: NVLink domains that the GPUs of all hosts belong to; None where unknown.
        nvls_off: settings of the run rule out in-network reduction.
        files: of an imported run, the machine of each file.
    """

    gpu: str | None = None
    part: Part | None = None
    why_no_part: str = ""
    hosts: int | None = None
    ranks_per_host: int | None = None
    ports_gbps: tuple[float, ...] = ()
    domains: int | None = None
    nvls_off: bool = False
    files: tuple[Machine, ...] = ()

    def under(self, row: Mapping[str, Any]) -> Machine:
        """The machine of one row: that of its file where the run was imported from several."""
        file = row.get("file")
        return self.files[file] if isinstance(file, int) and 0 <= file < len(self.files) else self

    @property
    def nics_GBs(self) -> float:
        """What the NICs of a host carry together in one direction, GB/s; 0 where unknown."""
        return sum(self.ports_gbps) / 8


def machine_of(run: Run) -> Machine:
    """The machine of a run, from its environment or from what the imported files tell."""
    whole = _described(_mapping(run.meta.get("environment")))
    files = _entries(_mapping(run.meta.get("imported")).get("files"))
    if not files:
        return whole
    return _with_files(whole, files)


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
        ports_gbps=_ports(hosts),
        domains=_domains(hosts),
        nvls_off=any(
            str(values.get(name, "")).upper() in words
            for values in variables
            for name, words in _NVLS_OFF.items()
        ),
    )


def _with_files(whole: Machine, files: Sequence[Mapping[str, Any]]) -> Machine:
    """An imported run: each file tells of its own machine, and what it does not tell is not known.

    Only a single file may stand for the whole run's environment, which is made of all of them.
    """
    machines = []
    for file in files:
        gpu, part, why = _part([str(file["gpu"])] if file.get("gpu") else [])
        hosts = file.get("hosts")
        count = hosts if isinstance(hosts, int) else len(hosts) if isinstance(hosts, list) else None
        nranks = file.get("nranks")
        per_host = -(-nranks // count) if isinstance(nranks, int) and count else None
        machines.append(Machine(gpu, part, why, count or None, per_host))
    if len(machines) == 1:
        (only,) = machines
        return Machine(
            gpu=only.gpu or whole.gpu,
            part=only.part if only.gpu else whole.part,
            why_no_part=only.why_no_part if only.gpu else whole.why_no_part,
            hosts=only.hosts or whole.hosts,
            ranks_per_host=only.ranks_per_host or whole.ranks_per_host,
            ports_gbps=whole.ports_gbps,
            nvls_off=whole.nvls_off,
        )
    return Machine(whole.gpu, whole.part, whole.why_no_part, files=tuple(machines))


def _part(names: Sequence[str]) -> tuple[str | None, Part | None, str]:
    """Name, part, and why there is no part."""
    if not names:
        return None, None, "the GPU is unknown"
    if len(names) > 1:
        return None, None, f"several kinds of GPU: {', '.join(names)}"
    (name,) = names
    part = find_part(name)
    return name, part, "" if part else f"no entry in the table of parts is called {name}"


def _ports(hosts: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Rates of the ports that carry a collective, of the host where they are slowest together.

    RDMA ports where there are any. Hosts have slower ports for storage and management beside them: only the
    fastest are counted.
    """
    found = []
    for host in hosts:
        nics = _entries(_mapping(host.get("topology")).get("nics"))
        rates = [_rate(nic) for nic in [nic for nic in nics if nic.get("rdma")] or nics]
        fastest = max(rates, default=0.0)
        found.append(tuple(rate for rate in rates if rate == fastest and rate > 0))
    return min(found, key=sum, default=())


def _rate(nic: Mapping[str, Any]) -> float:
    """Gb/s of a port that is up, 0 of any other."""
    rate = nic.get("rate_Gbs")
    state = str(nic.get("state") or "up").lower()
    return float(rate) if isinstance(rate, int | float) and state in ("active", "up") else 0.0


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
