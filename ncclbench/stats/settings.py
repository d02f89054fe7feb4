"""Settings of arms in words: what was asked for, and what the libraries said of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Said = Mapping[str, Any]


def asked_words(reading: Said) -> str:
    """``NCCL_ALGO=Ring``, ``symm``."""
    return "=".join(filter(None, (str(reading["name"]), str(reading["asked"]))))


def found_words(reading: Said) -> str:
    """Whether it is in force, and how that is known."""
    if reading["in_force"] is None:
        return f"not read back: {reading['how']}"
    if not reading["in_force"]:
        return f"NOT in force: {reading['how']} says {reading['found']}"
    same = str(reading["found"]).lower() == str(reading["asked"]).lower()
    return f"in force, by {reading['how']}" + ("" if same else f": {reading['found']}")


def arm_words(arm: str, said: Said) -> str:
    """All of an arm in one line."""
    if said.get("reason"):
        return f"{arm}: cannot be had: {said['reason']}"
    parts = [f"{asked_words(reading)} {found_words(reading)}" for reading in said.get("settings") or ()]
    if said.get("algorithms"):
        parts.append(f"NCCL chose {said['algorithms']}")
    return f"{arm}: {'; '.join(parts)}"
