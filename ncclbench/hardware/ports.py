"""Which ports of the NICs carry a collective between hosts, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.hardware.parts import table

# More ports than these are named by the first and the last.
_MOST_NAMED = 4

Nic = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the host where they carry least.

    Attributes:
        rates_gbps: Gb/s of each; empty where unknown.
        names: as the system has them: "mlx5_0/1", "eth0".
        link_layer: "InfiniBand" or "Ethernet", where all of them are; "" else, and where unknown.
        chosen: why these, for people to check.
    """

    rates_gbps: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    link_layer: str = ""
    chosen: str = ""

    @property
    def GBs(self) -> float:
        """What they carry together in one direction, GB/s; 0 where unknown."""
        return sum(self.rates_gbps) / 8

    @property
    def text(self) -> str:
        """Number, rate and kind: "8 x 400 Gb/s InfiniBand (NDR) a host"; names only InfiniBand has."""
        rates = dict.fromkeys(self.rates_gbps)
        known = table().nic_names if self.link_layer == "InfiniBand" else {}
        kinds = []
        for rate in rates:
            name = known.get(round(rate))
            words = [
                f"{self.rates_gbps.count(rate)} x {rate:g} Gb/s",
                self.link_layer,
                f"({name})" if name else "",
            ]
            kinds.append(" ".join(word for word in words if word))
        return f"{' and '.join(kinds)} a host"

    @property
    def counted(self) -> str:
        """Which: "mlx5_0/1 to mlx5_7/1, near the GPUs"."""
        if len(self.names) > _MOST_NAMED:
            return f"{self.names[0]} to {self.names[-1]}, {self.chosen}"
        return f"{', '.join(self.names)}, {self.chosen}"


def ports_of(hosts: Sequence[Mapping[str, Any]], variables: Sequence[Sequence[Mapping[str, Any]]]) -> Ports:
    """The ports that carry a collective, of the host where they carry least together.

    Ports that NCCL_IB_HCA names are all counted; without it the fastest of those near the GPUs, where that is
    known, else the fastest of all: hosts have others for storage and management beside them. RDMA ports go
    before sockets, but for NCCL_IB_DISABLE=1.

    Args:
        hosts: of an environment.
        variables: of every host those of its ranks.
    """
    found = [_of_host(_topology(host), own) for host, own in zip(hosts, variables, strict=True)]
    return min(found, key=lambda ports: ports.GBs, default=Ports())


def _of_host(topology: Mapping[str, Any], variables: Sequence[Mapping[str, Any]]) -> Ports:
    nics = [nic for nic in _entries(topology.get("nics")) if _rate(nic)]
    rdma = [nic for nic in nics if nic.get("rdma")]
    sockets_only = any(
        str(values.get("NCCL_IB_DISABLE", "0")).strip() not in ("0", "") for values in variables
    )
    name, usable = "NCCL_IB_HCA", rdma
    if sockets_only or not rdma:
        name, usable = "NCCL_SOCKET_IFNAME", [nic for nic in nics if not nic.get("rdma")]
    asked = dict.fromkeys(str(values[name]).strip() for values in variables if values.get(name))
    if asked:
        # Each rank may have its own.
        named = [nic for nic in usable if any(_is_named(str(nic.get("name")), text) for text in asked)]
        return _ports(named, f"by {name}")
    near = {str(port) for gpu in _entries(topology.get("gpus")) for port in gpu.get("near") or ()}
    close = [nic for nic in usable if nic.get("name") in near]
    fastest = max(map(_rate, close or usable), default=0.0)
    chosen = [nic for nic in close or usable if _rate(nic) == fastest]
    return _ports(chosen, "near the GPUs" if close else "the fastest of the host")


def _ports(nics: Sequence[Nic], chosen: str) -> Ports:
    layers = {str(nic.get("link_layer") or "") for nic in nics}
    layer = layers.pop() if len(layers) == 1 else ""
    return Ports(
        rates_gbps=tuple(map(_rate, nics)),
        names=tuple(str(nic.get("name")) for nic in nics),
        link_layer=layer if layer in ("InfiniBand", "Ethernet") else "",
        chosen=chosen,
    )


def _is_named(port: str, asked: str) -> bool:
    """Whether a list of NCCL_IB_HCA means a port: prefixes; behind "=" whole names; behind "^" all others.

    Both marks may stand before the list, the "^" first. A name may end with a port: "mlx5_0:1".
    """
    excluded, exact = asked.startswith("^"), asked.removeprefix("^").startswith("=")
    device, _, number = port.partition("/")
    found = False
    for entry in asked.removeprefix("^").removeprefix("=").split(","):
        name, _, wanted = entry.strip().partition(":")
        fits = device == name if exact else device.startswith(name)
        found = found or (bool(name) and fits and wanted in ("", number))
    return found is not excluded


def _rate(nic: Nic) -> float:
    """Gb/s of a port that is up, 0 of any other."""
    rate = nic.get("rate_Gbs")
    state = str(nic.get("state") or "up").lower()
    return float(rate) if isinstance(rate, int | float) and state in ("active", "up") else 0.0


def _topology(host: Mapping[str, Any]) -> Mapping[str, Any]:
    found = host.get("topology")
    return found if isinstance(found, Mapping) else {}


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
