"""run.json from a run's begin to its end: what was asked, each attempt, and how it ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ncclbench import __version__
from ncclbench.errors import Interrupted, MeasurementError, NcclbenchError
from ncclbench.plan.model import Plan
from ncclbench.store.folder import RunFolder
from ncclbench.store.model import RUN_SCHEMA


@dataclass(frozen=True, slots=True)
class Description:
    """What is written into a new run besides its plan.

    Attributes:
        command: the command line as typed.
        label: as given, or None.
        created: when.
    """

    command: Sequence[str]
    label: str | None
    created: datetime


def new_meta(kind: str, plan: Plan, description: Description, **more: Any) -> dict[str, Any]:
    """run.json of a run that has not begun.

    Args:
        kind: as in docs/results-format.md.
        more: what only this kind has, plain data.
    """
    return {
        "schema": RUN_SCHEMA,
        "kind": kind,
        "ncclbench": __version__,
        "label": description.label,
        "created": description.created.isoformat(timespec="milliseconds"),
        "command": list(description.command),
        "plan": plan.to_json(),
        **more,
        "status": "running",
        "message": None,
        "attempts": [],
    }


def begin_attempt(folder: RunFolder, meta: dict[str, Any], launcher: str | None) -> None:
    """Write that another attempt runs."""
    meta["attempts"].append({"started": _now(), "ended": None, "launcher": launcher, "message": None})
    meta["status"] = "running"
    folder.write_meta(meta)


def end_attempt(folder: RunFolder, meta: dict[str, Any], ended_by: NcclbenchError | None) -> None:
    """Write how it ended; of a run that has failed a full disk is no further error.

    Args:
        ended_by: None where all was measured.

    Raises:
        MeasurementError: all was measured, and that cannot be written.
    """
    status = "complete" if ended_by is None else "failed"
    if isinstance(ended_by, Interrupted):
        status = "interrupted"
    message = None if ended_by is None else str(ended_by)
    meta["status"], meta["message"] = status, message
    meta["attempts"][-1] |= {"ended": _now(), "message": message}
    with contextlib.nullcontext() if ended_by is None else contextlib.suppress(MeasurementError):
        folder.write_meta(meta)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
