"""Which peak bounds a row, what share of it the row reaches, and what others state for such a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ncclbench.hardware.machine import Machine
from ncclbench.hardware.parts import Expected, Link, Part, table
from ncclbench.tables.collectives import COLLECTIVES

Row = Mapping[str, Any]

# In these a rank has other data for every other, so that each GPU fills its own share of the NICs. In the
# others, but the rings below, data can go round: each byte crosses the edge of a host once, over all NICs.
_PERSONAL = ("gather", "scatter", "all_to_all", "all_to_allv", "all_to_all_list")
# Rings of neighbours, with how many neighbours a rank sends to.
_RINGS = {"send_recv": 1, "batched_p2p": 2}


@dataclass(frozen=True, slots=True)
class Reference:
    """What a row's bus bandwidth is compared with.

    Attributes:
        peak_GBs: GB/s (1e9 bytes) in one direction; None where nothing is known, and ``why_none`` says why.
        kind: "NVLink", "Infinity Fabric", "PCIe" or "NIC".
        link: the same with its generation, or the ports.
        counted: which ports, and why these; "" for links between GPUs.
        source: where the peak is from; ``date``: when that was looked up, "" where the run itself tells.
        secondary: the source is neither the vendor nor a maintainer.
        in_network: what may reduce within the network, so that more than the peak is possible; else None.
        ring_only: a ring has this peak, and exchanging within hosts first can do better.
        expected: what others state for such a row; None where nobody does.
        why_none: why there is no peak.
    """

    peak_GBs: float | None = None
    kind: str = ""
    link: str = ""
    counted: str = ""
    source: str = ""
    date: str = ""
    secondary: bool = False
    in_network: str | None = None
    ring_only: bool = False
    expected: Expected | None = None
    why_none: str = ""

    @property
    def peak_text(self) -> str:
        """The peak in words: "NVLink peak (450 GB/s, NVLink 4)"."""
        if self.peak_GBs is None:
            return ""
        which = f": {self.counted}" if self.counted else ""
        return f"{self.kind} peak ({self.peak_GBs:.4g} GB/s, {self.link}{which})"


def reference(row: Row, machine: Machine) -> Reference:
    """The peak that bounds a row, and what others state for it.

    On one host that is the link between its GPUs, on several the NICs of a host or what of the link is
    slower. Docs: docs/hardware.md has the rules with their reasons.

    Args:
        row: as ``stats.rows`` makes it.
        machine: of the row's run.
    """
    own = machine.under(row)
    why = _no_peak(row, own)
    if why:
        return Reference(why_none=why)
    expected = _expected(row, own)
    part = own.part
    if own.hosts == 1 and part is not None:
        return _within_links(row, own, part, expected)
    return _between_hosts(row, own, expected)


def share(row: Row, found: Reference) -> float | None:
    """busbw as a fraction of the peak; above 1 where it is above."""
    if found.peak_GBs is None or row["busbw_GBs"] is None:
        return None
    return float(row["busbw_GBs"]) / found.peak_GBs


def share_text(row: Row, machine: Machine) -> str | None:
    """The share in words, or why there is none; None for a row without a bandwidth.

    "86 % of the NVLink peak (450 GB/s, NVLink 4)", "no reference: NIC rate unknown".
    """
    if row["busbw_GBs"] is None:
        return None
    found = reference(row, machine)
    fraction = share(row, found)
    if fraction is None:
        return found.why_none if row["nranks"] == 1 else f"no reference: {found.why_none}"
    text = f"{percent(fraction)} of the {found.peak_text}"
    return f"{text}: {_why_above(row, found)}" if fraction > 1 else text


def percent(fraction: float) -> str:
    """Whole percent, with a digit more below ten."""
    value = 100 * fraction
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def _why_above(row: Row, found: Reference) -> str:
    """What can be the reason where more than the peak was measured."""
    reasons = []
    if found.in_network and _reduces(row):
        reasons.append(f"in-network reduction likely ({found.in_network})")
    if found.ring_only:
        reasons.append("a ring's limit, exchanging within hosts first leaves less to the network")
    if reasons:
        return "; ".join(reasons)
    why = "" if _reduces(row) else f", and {row['op']} has nothing to reduce on the way"
    return f"more than its wires carry{why}: check sizes, ranks, and that this link was used"


def _reduces(row: Row) -> bool:
    return COLLECTIVES[row["op"]].reduces


def _no_peak(row: Row, machine: Machine) -> str:
    """Why nothing bounds the row, whatever the hardware is; "" where something may."""
    if row["nranks"] == 1:
        return "1 rank: bus bandwidth is 0 by definition"
    if row["clock"] == "total":
        return "measured on the CPU"
    if row["shared_gpu"]:
        return "ranks share a GPU"
    if row["nranks"] is None:
        return "the number of ranks is unknown"
    if row["op"] not in COLLECTIVES:
        return f"no rule for {row['op'] or 'an unknown operation'}"
    if row["topology"] not in (None, "world"):
        return "groups of a part of the ranks"
    if machine.hosts is None:
        return "the number of hosts is unknown"
    if machine.hosts == 1 and machine.part is None:
        return machine.why_no_part
    return ""


def _within_links(row: Row, machine: Machine, part: Part, expected: Expected | None) -> Reference:
    link = part.link
    if link is None:
        why = f"no figure for the links of {part.name}" + (f" ({part.note})" if part.note else "")
        return Reference(expected=expected, why_none=why)
    if link.bridge:
        why = f"{part.name} cards are joined by bridges or by PCIe, and which is unknown"
        return Reference(expected=expected, why_none=why)
    peak = _link_peak(row, machine, part, link)
    if isinstance(peak, str):
        return Reference(expected=expected, why_none=peak)
    return Reference(
        peak_GBs=peak,
        kind=link.kind,
        link=link.name,
        source=link.source,
        date=link.date,
        secondary=link.secondary,
        in_network=None if machine.nvls_off or not _has_switch(machine, link) else link.in_network,
        expected=expected,
    )


def _link_peak(row: Row, machine: Machine, part: Part, link: Link) -> float | str:
    """GB/s of the links that the ranks of one host have between them; why nobody knows, where that is so."""
    ranks, found = int(row["nranks"]), machine.gpu_links
    if machine.domains == 1:
        return link.peak_GBs
    if machine.hosts != 1 and machine.ranks_per_host:
        ranks = min(ranks, machine.ranks_per_host)
    if link.mesh and link.link_GBs and link.links:
        return link.link_GBs * _used(row, ranks, 1, link.links)
    if link.kind != "NVLink" or (found and found.switched):
        return link.peak_GBs
    if found is None:
        if ranks >= link.fewest:
            return link.peak_GBs
        return f"some boards of {part.name} give {ranks} GPUs fewer links, and this one's were not recorded"
    if found.each == 0:
        return f"the GPUs were recorded without NVLink between them, which {part.name} has"
    if found.each:
        all_of_them = found.each * (found.gpus - 1)
        return (link.link_GBs or link.peak_GBs / all_of_them) * _used(row, ranks, found.each, all_of_them)
    if ranks >= found.gpus:
        return link.peak_GBs
    return f"the GPUs are linked unevenly, and which links {ranks} of {found.gpus} have is unknown"


def _used(row: Row, ranks: int, each: int, most: int) -> int:
    """Links of a GPU to the other ranks; in a ring only those to its neighbours."""
    return min(each * min(ranks - 1, _RINGS.get(row["op"], ranks)), most)


def _has_switch(machine: Machine, link: Link) -> bool:
    """Whether something between the GPUs can reduce; taken to be so where boards mostly have it."""
    if machine.domains == 1:
        return True
    return machine.gpu_links.switched if machine.gpu_links else not link.switchless


def _between_hosts(row: Row, machine: Machine, expected: Expected | None) -> Reference:
    link = machine.part.link if machine.part is not None else None
    if machine.part and link and link.domain and machine.domains != machine.hosts:
        if machine.domains == 1:
            return _within_links(row, machine, machine.part, expected)
        if machine.domains is None:
            why = f"{link.kind} may join the hosts (up to {link.domain} GPUs), and whether it does is unknown"
        else:
            why = f"the hosts make {machine.domains} {link.kind} domains, and what joins these is unknown"
        return Reference(expected=expected, why_none=why)
    ports = machine.ports
    if not ports.rates_gbps:
        return Reference(expected=expected, why_none="NIC rate unknown")
    op, nranks, on_host = str(row["op"]), int(row["nranks"]), machine.ranks_per_host
    if not on_host or on_host >= nranks:
        return Reference(expected=expected, why_none="the ranks on each host are unknown")
    per_gpu = ports.GBs / on_host
    ring_only = False
    if op in _RINGS:
        # At the edge of a host one GPU sends to the next: over its own share of the NICs, or one port.
        peak = max(per_gpu, max(ports.rates_gbps) / 8)
    elif op in _PERSONAL:
        # Of the n - 1 parts of a rank, n - g leave its host.
        peak = per_gpu * (nranks - 1) / (nranks - on_host)
    else:
        peak, ring_only = ports.GBs, on_host > 1
        if machine.part and link and on_host > 1 and not link.bridge and link.peak_GBs < peak:
            return _within_links(row, machine, machine.part, expected)
    return Reference(
        peak_GBs=peak,
        kind="NIC",
        link=ports.text,
        counted=ports.counted,
        source="the rates that the hosts' ports report",
        in_network=None if ports.link_layer == "Ethernet" else "SHARP",
        ring_only=ring_only,
        expected=expected,
    )


def _expected(row: Row, machine: Machine) -> Expected | None:
    """What is stated for such a row; what should be reached goes before what somebody reached."""
    if machine.part is None or row["nbytes"] is None:
        return None
    fitting = [
        entry
        for entry in table().expected
        if entry.part == machine.part.id
        and row["op"] in entry.ops
        and (entry.nranks, entry.hosts) == (row["nranks"], machine.hosts)
        and entry.holds_at(row["nbytes"])
        and not (entry.nvls and machine.nvls_off)
    ]
    # With NVLS where it can be: that is what a library does that is left alone.
    return min(fitting, key=lambda entry: (entry.kind != "stated", not entry.nvls), default=None)
