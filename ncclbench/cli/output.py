"""What commands put on standard output for programs: one JSON document, on success and on failure."""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ncclbench.environ import variable
from ncclbench.errors import EXIT_FAILED, MeasurementError, NcclbenchError, refused_by_system
from ncclbench.terminal.streams import one_line, show, write

JSON_SCHEMA = 1

# Keys that a command's document has on failure, too: empty lists.
_ALWAYS = {"import": ("rows", "files")}


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


def show_failure(
    command: str | None, code: int, message: str, as_json: bool, speaks: bool, run: Path | None = None
) -> None:
    """The one line of a command that could not do its work, and its document.

    Args:
        run: the folder of the run that is kept.
        as_json: a document is wanted on standard output.
        speaks: this process speaks for its job. One that does not is heard only of a failed measurement:
            what has failed may be the one that speaks.
    """
    message = one_line(message)
    if speaks or code == EXIT_FAILED:
        show(f"ncclbench: error: {message}\n", sys.stderr)
    if speaks and as_json:
        with suppress(NcclbenchError):  # nowhere left to say it; the exit code still does
            rest: dict[str, Any] = {key: [] for key in _ALWAYS.get(str(command), ())}
            emit_json(document(command, run=run, ok=False, message=message, rest=rest))


def as_failure(error: Exception) -> NcclbenchError:
    """Any error as one that ends a command: ours, what the system refuses, else a fault of this program."""
    if isinstance(error, NcclbenchError):
        return error
    if variable("NCCLBENCH_DEBUG"):
        traceback.print_exception(error)
    return refused_by_system(error) or MeasurementError(
        f"{type(error).__name__}: {error} (a fault in ncclbench; NCCLBENCH_DEBUG=1 shows where)"
    )


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
