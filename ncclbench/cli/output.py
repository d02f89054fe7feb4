"""What commands put on standard output for programs: one JSON document, on success and on failure."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncclbench.terminal.streams import write

JSON_SCHEMA = 1


def document(
    command: str | None,
    *,
    run: Path | str | None = None,
    ok: bool,
    message: str,
    environment: Mapping[str, Any] | None = None,
    rest: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The object that every ``--json`` prints: the keys all commands share, then the command's own."""
    return {
        "schema": JSON_SCHEMA,
        "command": command,
        "run": run,
        "ok": ok,
        "message": message,
        "environment": environment,
        **(rest or {}),
    }


def emit_json(content: Mapping[str, Any]) -> None:
    """Print one document on standard output. NumPy values become numbers and lists, NaN and inf null.

    Raises:
        MeasurementError: standard output takes no more.
    """
    text = json.dumps(plain(content), allow_nan=False, separators=(",", ":"))
    write(text + "\n", sys.stdout)


def plain(value: Any) -> Any:
    """``value`` in types that JSON has."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, told without importing it
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")
