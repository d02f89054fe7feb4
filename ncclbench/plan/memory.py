"""How much memory a case needs on a rank's device.

A rank works on one pool of slots: each holds the buffers of one operation, and successive operations
take successive slots, so that none finds its data in the cache the one before it filled.
"""

from __future__ import annotations

from ncclbench.plan.model import Case
from ncclbench.tables.collectives import COLLECTIVES, Layout
from ncclbench.tables.dtypes import DTYPES

# Buffers start where the CUDA caching allocator would put them.
ALIGNMENT = 512
LEAST_SLOTS = 2
# Bound of the random data that inputs are filled from and results compared with.
PATTERN_BYTES = 4 << 20


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
    layout = COLLECTIVES[case.op].sizes(case.nbytes // itemsize, case.nranks, 0)
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


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
