"""A plan as thousands of ranks are told it: groups take bytes by how irregular they are, not by how many."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from ncclbench.plan.model import Plan
from ncclbench.tables.topologies import Groups


def packed_plan(plan: Plan) -> dict[str, Any]:
    """Plain data for the store."""
    groups = {name: _pack_groups(cut) for name, cut in plan.groups.items()}
    return {**plan.to_json(), "groups": groups}


def unpacked_plan(fields: dict[str, Any]) -> Plan:
    """Inverse of ``packed_plan``."""
    groups = {name: _unpack_groups(*packed) for name, packed in fields["groups"].items()}
    return Plan.from_json({**fields, "groups": groups})


def _pack_groups(groups: Groups) -> list[str]:
    """Sizes of the groups, then their ranks one after the other."""
    return [_pack([len(group) for group in groups]), _pack([rank for group in groups for rank in group])]


def _unpack_groups(sizes: str, ranks: str) -> Groups:
    flat = _unpack(ranks)
    ends = accumulate(_unpack(sizes), initial=0)
    return tuple(tuple(flat[first:end]) for first, end in pairwise(ends))


def _pack(numbers: Sequence[int]) -> str:
    """Differences of differences, compressed: of what goes up by steps, however nested, little is left."""
    steps = _differences(_differences(numbers))
    return base64.b85encode(zlib.compress(struct.pack(f"<{len(steps)}q", *steps), 9)).decode()


def _unpack(text: str) -> list[int]:
    content = zlib.decompress(base64.b85decode(text))
    steps = struct.unpack(f"<{len(content) // 8}q", content)
    return list(accumulate(accumulate(steps)))


def _differences(numbers: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *numbers])]
