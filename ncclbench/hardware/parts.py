"""parts.toml as Python has it: links between GPUs, parts by their drivers' names, stated bandwidths."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ncclbench.tables.collectives import COLLECTIVES

_FILE = Path(__file__).with_name("parts.toml")

# What stands before a part's own name.
_VENDORS = re.compile(r"^((NVIDIA|Tesla|AMD|Instinct)\s+)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins the GPUs of one host. GB/s (1e9 bytes) in one direction, per GPU.

    Attributes:
        name: with its generation: "NVLink 4", "PCIe 5.0 x16".
        kind: "NVLink", "Infinity Fabric" or "PCIe".
        peak_GBs: of all links of a GPU together.
        links: how many, where that is known; ``link_GBs`` is the peak of one.
        mesh: a GPU has one link to each other GPU, so that fewer GPUs have fewer links.
        domain: GPUs that such links can join beyond one host; 0 where they end there.
        bridge: it joins neighbours only, and only where a bridge is plugged in.
        in_network: what reduces within the switches (NVLS); None where nothing does.
        switchless: the GPUs of one host have no switch between them where none was recorded.
        fewest: from so many GPUs of a host on all links are in use on every board, with switches or without.
        source, date: where the figures are from, and when that was looked up.
        secondary: the source is neither the vendor nor a maintainer.
        note: what else a reader should know.
    """

    name: str
    kind: str
    peak_GBs: float
    links: int | None = None
    link_GBs: float | None = None
    mesh: bool = False
    domain: int = 0
    bridge: bool = False
    in_network: str | None = None
    switchless: bool = False
    fewest: int = 2
    source: str
    date: str
    secondary: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A kind of GPU.

    Attributes:
        id: its name in the table's ``expected`` entries.
        name: as people write it.
        names: patterns of the whole name as drivers give it, vendors left out.
        link: what joins the GPUs of one host; None where no figure is known.
        memory_GBs: peak of its memory, GB/s; None where the source does not tell.
        source, date, secondary, note: as for ``Link``.
    """

    id: str
    name: str
    names: tuple[str, ...]
    link: Link | None
    memory_GBs: float | None = None
    source: str
    date: str
    secondary: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A bus bandwidth that others state.

    Attributes:
        part: id of the part.
        ops: names in COLLECTIVES.
        nranks, hosts: of the run it is of, one rank per GPU.
        busbw_GBs: GB/s.
        sizes: bytes at which it was reached; empty where it holds ``from_bytes`` on.
        nvls: with in-network reduction or without; None where the source does not tell.
        by: who states it; ``on``: the machine, "" where it is just the part.
        kind: "stated" (should be reached) or "published" (a run they show has reached it).
        source, date, note: as for ``Link``.
    """

    part: str
    ops: tuple[str, ...]
    nranks: int
    hosts: int
    busbw_GBs: float
    by: str
    kind: str
    source: str
    date: str
    sizes: tuple[int, ...] = ()
    from_bytes: int | None = None
    nvls: bool | None = None
    on: str = ""
    note: str = ""

    def holds_at(self, nbytes: int) -> bool:
        """Whether it says something of this size."""
        return nbytes in self.sizes or (self.from_bytes is not None and nbytes >= self.from_bytes)

    @property
    def text(self) -> str:
        """Who states how much: "480 GB/s stated by NCCL maintainers"."""
        where = f" ({self.on})" if self.on else ""
        return f"{self.busbw_GBs:.4g} GB/s {self.kind} by {self.by}{where}"


@dataclass(frozen=True, slots=True)
class Table:
    """Everything in parts.toml.

    Attributes:
        links: by their key in the file.
        parts: in the order of the file.
        expected: likewise.
        nic_names: what a port of an InfiniBand NIC is called, by Gb/s.
    """

    links: Mapping[str, Link]
    parts: tuple[Part, ...]
    expected: tuple[Expected, ...]
    nic_names: Mapping[int, str]


@cache
def table() -> Table:
    """parts.toml, read once."""
    return read_table(_FILE)


def read_table(file: Path) -> Table:
    """A file of the form of parts.toml.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or unknown, or names what is not there.
    """
    content: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    links = {key: Link(**entry) for key, entry in content["link"].items()}
    parts = []
    for entry in content["part"]:
        named = entry.pop("link", None)
        link = None if named is None else links[named]
        parts.append(Part(**entry | {"link": link, "names": tuple(entry["names"])}))
    expected = [
        Expected(**entry | {"ops": tuple(entry["ops"]), "sizes": tuple(entry.get("sizes", ()))})
        for entry in content["expected"]
    ]
    ids = {part.id for part in parts}
    for statement in expected:
        if statement.part not in ids or not set(statement.ops) <= set(COLLECTIVES):
            raise ValueError(f"{file}: an expected entry names {statement.part} and {statement.ops}")
    nic_names = {int(entry["rate_gbps"]): name for name, entry in content["nic"].items()}
    return Table(links, tuple(parts), tuple(expected), nic_names)


def find_part(name: str) -> Part | None:
    """The part that a driver calls ``name``; None rather than one whose name is only like it."""
    own = _VENDORS.sub("", " ".join(name.split()))
    for part in table().parts:
        if any(re.fullmatch(pattern, own, re.IGNORECASE) for pattern in part.names):
            return part
    return None
