"""How much memory a case needs on a rank's device.

A rank works on one pool of slots: each holds the buffers of one operation, and successive operations
take successive slots, so that none finds its data in the cache the one before it filled.
"""

from __future__ import annotations

from collections.abc import Iterable

from ncclbench.plan.model import Case, Plan
from ncclbench.tables.backends import Backend
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
    return layout_slot_bytes(_layout(case), DTYPES[case.dtype].itemsize, case.in_place)


def _layout(case: Case) -> Layout:
    layout = COLLECTIVES[case.op].sizes(case.nbytes // DTYPES[case.dtype].itemsize, case.nranks, 0)
    if isinstance(layout, str):
        raise ValueError(f"{case.key} has no layout: {layout}")
    return layout


def slot_count(slot: int, rotation_bytes: int) -> int:
    """Slots of ``slot`` bytes that reach ``rotation_bytes``: at least two."""
    return LEAST_SLOTS if slot == 0 else max(LEAST_SLOTS, -(-rotation_bytes // slot))


def copied_bytes(op: str, layout: Layout, itemsize: int, backends: Iterable[Backend]) -> int:
    """What the one of the backends that copies most holds beside the buffers while the operation runs."""
    copies = max((backend.copies.get(op, 0) for backend in backends), default=0)
    return copies * _aligned(max(layout.send, layout.recv) * itemsize)


def case_bytes(case: Case, rotation_bytes: int, backends: Iterable[Backend] = ()) -> int:
    """Device memory a rank needs for the case: its slots, what they are filled from, and backends' copies."""
    itemsize = DTYPES[case.dtype].itemsize
    slot = slot_bytes(case)
    copied = copied_bytes(case.op, _layout(case), itemsize, backends)
    return slot * slot_count(slot, rotation_bytes) + PATTERN_BYTES + copied


def pool_bytes(plan: Plan) -> int:
    """Of the buffers that all cases of a plan share: no copy of a backend's lies there."""
    needed = (case_bytes(case, plan.rotation_bytes) for case in plan.planned)
    return max(1, max(needed, default=0) - PATTERN_BYTES)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
