"""The machine that a plan is for, as data: this one, or any other from a file."""

from __future__ import annotations

import json
import os
import re
import socket
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ncclbench.errors import RequestError, brief
from ncclbench.names import nearest
from ncclbench.plan.model import Device
from ncclbench.units import MAX_BYTES, format_memory, parse_bytes

DEFAULT_CACHE_BYTES = 32 << 20
# Above the L2 cache of every NVIDIA GPU up to now (H200 60 MB, B200 126 MB), which cannot be asked for
# without starting CUDA.
GPU_CACHE_BYTES = 160 << 20
# No GPU has as much; what a GPU really has is known once its worker is up.
ABSURD_GPU_BYTES = 1 << 40

MOST_RANKS_PER_HOST = 4096
_MOST_NAME = 120
# The environment of a run of some ten thousand ranks.
_MOST_FILE_BYTES = 256 << 20

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

# Keys of a machine's file that are sizes, with the attributes that they fill.
_SIZES = {
    "memory": "memory_bytes",
    "gpu_memory": "gpu_memory_bytes",
    "last_level_cache": "last_level_cache_bytes",
    "gpu_cache": "gpu_cache_bytes",
}
_KEYS = ("name", "device", "ranks_per_host", *_SIZES)


@dataclass(frozen=True, slots=True)
class Machine:
    """One host of those that a job runs on; all are taken to be like it.

    Attributes:
        name: for people.
        device: "cuda" where each rank has a GPU.
        ranks_per_host: as many as a full host takes.
        memory_bytes: of the host, for all of its ranks; None where unknown.
        gpu_memory_bytes: of one GPU; None where unknown.
        last_level_cache_bytes: of the host's CPU.
        gpu_cache_bytes: the L2 of one GPU.
    """

    name: str
    device: Device
    ranks_per_host: int
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    last_level_cache_bytes: int = DEFAULT_CACHE_BYTES
    gpu_cache_bytes: int = GPU_CACHE_BYTES

    @classmethod
    def here(cls, device: Device, ranks_per_host: int) -> Machine:
        """This machine, as its files tell; GPUs are not asked."""
        return cls(
            name=socket.gethostname(),
            device=device,
            ranks_per_host=ranks_per_host,
            memory_bytes=available_bytes(),
            last_level_cache_bytes=last_level_cache_bytes(),
        )

    @classmethod
    def read(cls, path: Path) -> Machine:
        """The machine in a TOML file that somebody wrote, or that a run or ``ncclbench env --json`` ran on.

        Args:
            path: the file, or the folder of a run.

        Raises:
            RequestError: neither; the line names the file and what is wrong in it.
        """
        path = path / "run.json" if os.path.isdir(path) else path
        content = _content(path)
        try:
            if content.lstrip().startswith("{"):
                return _measured(json.loads(content))
            return _written(tomllib.loads(content))
        except RequestError as error:
            raise RequestError(f"{path}: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise RequestError(f"{path} is no TOML: {brief(error)}") from None
        except RecursionError:
            raise RequestError(f"{path} is nested too deeply to be a machine's file") from None
        except ValueError as error:
            raise RequestError(f"{path} is no JSON: {brief(error)}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys as the attributes."""
        return {name: getattr(self, name) for name in self.__slots__}

    def rotation_bytes(self, device: Device, local_ranks: int) -> int:
        """What a rank's slots together should exceed, so that the host's ranks go past the last cache.

        On the CPU the ranks of a host share the cache, and no rank takes more than 1/16 of its memory for it.
        """
        if device == "cuda":
            return self.gpu_cache_bytes
        wanted = int(1.1 * self.last_level_cache_bytes) // local_ranks
        return wanted if self.memory_bytes is None else min(wanted, self.memory_bytes // local_ranks // 16)

    def most_bytes(self, device: Device, local_ranks: int) -> int | None:
        """Memory that each of a host's ranks can have on the device; None where unknown."""
        if device == "cuda":
            return ABSURD_GPU_BYTES if self.gpu_memory_bytes is None else self.gpu_memory_bytes
        return None if self.memory_bytes is None else self.memory_bytes // local_ranks

    def shortage(self, device: Device, local_ranks: int) -> str:
        """In words what there is too little of, the same for everything that does not fit."""
        most = self.most_bytes(device, local_ranks)
        has = "an unknown amount" if most is None else rounded_bytes(most)
        if device == "cuda":
            return f"does not fit into the {has} of a GPU"
        if local_ranks == 1:
            return f"does not fit into the host's {has} of memory"
        return f"does not fit into the {has} of memory that each of {local_ranks} ranks on a host has"

    def check_fits(self, device: Device, needed_per_rank: int, local_ranks: int) -> None:
        """Refuse what cannot fit, before any process starts.

        Raises:
            RequestError: the host's ranks together need more memory than it has, or a GPU more than it has.
        """
        most = self.most_bytes(device, local_ranks)
        if most is not None and needed_per_rank > most:
            mend = "lower -e/--max-bytes" + ("" if device == "cuda" else ", or --nproc-per-node")
            raise RequestError(
                f"{rounded_bytes(needed_per_rank)} per rank {self.shortage(device, local_ranks)}: {mend}"
            )


def last_level_cache_bytes(caches: Path = _CACHES) -> int:
    """Size of the CPU's largest cache; 32 MiB where the system does not tell."""
    sizes = []
    for path in caches.glob("index*/size"):
        try:
            sizes.append(parse_bytes(path.read_text(errors="replace")))
        except (OSError, RequestError):
            continue
    return max(sizes, default=DEFAULT_CACHE_BYTES)


def available_bytes(meminfo: Path = _MEMINFO, cgroup_limit: Path = _CGROUP_LIMIT) -> int | None:
    """Memory that new processes can have on this host, or its container's limit; None where unknown."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):  # no cgroup, or "max"
        found.append(int(cgroup_limit.read_text()))
    return min(found, default=None)


def rounded_bytes(nbytes: int) -> str:
    """Bytes for people: 1.5 GiB where an exact figure tells nothing."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes:,} bytes"


def _content(path: Path) -> str:
    try:
        if not os.path.isfile(path):  # unlike Path's, it never raises
            what = "is no file" if os.path.exists(path) else "is not there"
            raise RequestError(f"{path} {what}: name a TOML file, a run, or what ncclbench env --json wrote")
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise RequestError(
                f"{path} has more than {format_memory(_MOST_FILE_BYTES)}: that is no machine's file"
            )
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        what = str(error.strerror) if isinstance(error, OSError) else "it is no text"
        raise RequestError(f"cannot read {path}: {what}") from None


def _written(fields: Mapping[str, Any]) -> Machine:
    """From the keys of a file as people write it."""
    for key in fields:
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(_KEYS)}"
            raise RequestError(f"no machine has a {_short(key)!r}: {hint}")
    device = _device_named(fields.get("device"))
    ranks = fields.get("ranks_per_host")
    if not isinstance(ranks, int) or isinstance(ranks, bool):
        raise RequestError("ranks_per_host is missing or no whole number: write it like ranks_per_host = 8")
    sizes = {name: _size(key, fields[key]) for key, name in _SIZES.items() if key in fields}
    return Machine(_name(fields.get("name")), device, _ranks_per_host(ranks), **sizes)


def _device_named(device: Any) -> Literal["cpu", "cuda"]:
    if device == "cpu":
        return "cpu"
    if device == "cuda":
        return "cuda"
    raise RequestError('device is missing or neither "cpu" nor "cuda": write it like device = "cuda"')


def _ranks_per_host(ranks: int) -> int:
    if not 1 <= ranks <= MOST_RANKS_PER_HOST:
        raise RequestError(f"ranks_per_host is {ranks}: take 1 to {MOST_RANKS_PER_HOST}")
    return ranks


def _size(key: str, value: Any) -> int:
    if isinstance(value, str):
        return parse_bytes(value, key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MAX_BYTES:
        raise RequestError(f'{key} is no size: write bytes, or text like "512G"')
    return value


def _name(name: Any) -> str:
    if name is None:
        return "a machine without a name"
    if not isinstance(name, str) or not name.isprintable() or len(name) > _MOST_NAME:
        raise RequestError(f"name is no text of a line up to {_MOST_NAME} characters")
    return name


def _measured(document: Any) -> Machine:
    """From where a run, or ``ncclbench env``, found itself: the least memory and the largest cache of all."""
    environment = document.get("environment") if isinstance(document, dict) else None
    if not isinstance(environment, dict):
        raise RequestError("it does not tell where it ran: take a run, or what ncclbench env --json wrote")
    hosts, ranks = _listed(environment, "hosts"), _listed(environment, "ranks")
    common = environment.get("common")
    ranks = [{**(common if isinstance(common, dict) else {}), **rank} for rank in ranks]
    on_gpu = any(str(rank.get("device", "cpu")).startswith("cuda") for rank in ranks)
    # What others had left counts before what is built in.
    free = _numbers([rank.get("now") for rank in ranks], "available_bytes")
    memory = free or _numbers(hosts, "memory_bytes")
    gpus = _numbers([_joined(common, rank, "gpu") for rank in ranks], "memory_total_bytes")
    caches = _numbers(hosts, "last_level_cache_bytes")
    full = max(Counter(str(rank.get("host")) for rank in ranks).values())
    name = hosts[0].get("name")
    return Machine(
        name=_name(name if isinstance(name, str) else None),
        device="cuda" if on_gpu else "cpu",
        ranks_per_host=_ranks_per_host(full),
        memory_bytes=min(memory, default=None),
        gpu_memory_bytes=min(gpus, default=None),
        last_level_cache_bytes=max(caches, default=DEFAULT_CACHE_BYTES),
    )


def _listed(environment: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = environment.get(key)
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise RequestError(f"its environment has no {key}: take a run, or what ncclbench env --json wrote")
    return entries


def _joined(common: Any, rank: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A nested description of a rank, with what all ranks have alike."""
    alike = common.get(key) if isinstance(common, dict) else None
    own = rank.get(key)
    return {**(alike if isinstance(alike, dict) else {}), **(own if isinstance(own, dict) else {})}


def _numbers(entries: Sequence[Any], key: str) -> list[int]:
    """Sizes that the entries tell of; others are left out."""
    found = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    return [
        value
        for value in found
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_BYTES
    ]


def _short(key: str) -> str:
    return re.sub(r"[^ -~]", "?", key)[:40]
