"""How much memory a case needs on a rank's device, and whether the machine has it.

A rank works on one pool of slots: each holds the buffers of one operation, and successive operations
take successive slots, so that none finds its data in the cache the one before it filled.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ncclbench.errors import RequestError
from ncclbench.plan.model import Case, Device
from ncclbench.tables.collectives import COLLECTIVES, Layout
from ncclbench.tables.dtypes import DTYPES
from ncclbench.units import parse_bytes

# Buffers start where the CUDA caching allocator would put them.
ALIGNMENT = 512
LEAST_SLOTS = 2
# Bound of the random data that inputs are filled from and results compared with.
PATTERN_BYTES = 4 << 20

DEFAULT_CACHE_BYTES = 32 << 20
# Above the L2 cache of every NVIDIA GPU up to now (H200 60 MB, B200 126 MB), which cannot be asked for
# without starting CUDA.
GPU_CACHE_BYTES = 160 << 20
# No GPU has as much; what a GPU really has is known once its worker is up.
ABSURD_GPU_BYTES = 1 << 40

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def layout_slot_bytes(layout: Layout, itemsize: int, one_buffer: bool) -> int:
    """Bytes from one slot to the next, for a layout of any rank: the totals are the same on all.

    ``one_buffer``: send and receive buffer are one, so the larger of the two holds both.
    """
    if one_buffer:
        return _aligned(max(layout.send, layout.recv) * itemsize)
    return _aligned(layout.send * itemsize) + _aligned(layout.recv * itemsize)


def slot_bytes(case: Case) -> int:
    """Bytes from one slot of the case to the next; 0 for an operation without data."""
    itemsize = DTYPES[case.dtype].itemsize
    layout = COLLECTIVES[case.op].layout(case.nbytes // itemsize, 0, case.nranks, 0)
    if isinstance(layout, str):
        raise ValueError(f"{case.key} has no layout: {layout}")
    return layout_slot_bytes(layout, itemsize, case.in_place)


def slot_count(slot: int, rotation_bytes: int) -> int:
    """Slots of ``slot`` bytes that reach ``rotation_bytes``: at least two."""
    return LEAST_SLOTS if slot == 0 else max(LEAST_SLOTS, -(-rotation_bytes // slot))


def case_bytes(case: Case, rotation_bytes: int) -> int:
    """Device memory a rank needs for the case: its slots and the data they are filled from."""
    slot = slot_bytes(case)
    return slot * slot_count(slot, rotation_bytes) + PATTERN_BYTES


def last_level_cache_bytes(caches: Path = _CACHES) -> int:
    """Size of the CPU's largest cache; 32 MiB where the system does not tell."""
    sizes = []
    for path in caches.glob("index*/size"):
        try:
            sizes.append(parse_bytes(path.read_text()))
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


def rotation_bytes(device: Device, local_ranks: int) -> int:
    """What a rank's slots together should exceed, so that the host's ranks go past the last cache.

    On the CPU the ranks of a host share the cache, and no rank takes more than 1/16 of its memory for it.
    """
    if device == "cuda":
        return GPU_CACHE_BYTES
    wanted = int(1.1 * last_level_cache_bytes()) // local_ranks
    available = available_bytes()
    return wanted if available is None else min(wanted, available // local_ranks // 16)


def check_memory(device: Device, needed_per_rank: int, local_ranks: int) -> None:
    """Refuse what cannot fit, before any process starts.

    Raises:
        RequestError: the host's ranks together need more memory than it has, or a GPU more than any has.
    """
    mend = "lower -e/--max-bytes"
    if device == "cuda":
        if needed_per_rank > ABSURD_GPU_BYTES:
            raise RequestError(f"a rank would need {rounded_bytes(needed_per_rank)} of GPU memory: {mend}")
        return
    available = available_bytes()
    if available is not None and needed_per_rank * local_ranks > available:
        raise RequestError(
            f"{local_ranks} ranks need {rounded_bytes(needed_per_rank)} of memory each, this host has "
            f"{rounded_bytes(available)} available: {mend}, or --nproc-per-node"
        )


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def rounded_bytes(nbytes: int) -> str:
    """Bytes for people: 1.5 GiB where an exact figure tells nothing."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes:,} bytes"
