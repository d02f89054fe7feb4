"""A plan as a file: what ``ncclbench plan --out`` writes and ``ncclbench sweep --plan`` runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from ncclbench import __version__
from ncclbench.errors import RequestError, brief
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Plan
from ncclbench.plan.runnable import check_runnable
from ncclbench.store.folder import replace_file
from ncclbench.store.meta import CasesFrom, check_schema, read_json, read_plan
from ncclbench.units import format_memory

PLAN_FILE_SCHEMA = 1

# A case takes about 300 bytes: of half a million cases nobody waits for the last.
_MOST_BYTES = 256 << 20


class PlanFileFields(TypedDict):
    """The file's keys; ``plan`` is checked by ``read_plan`` and ``check_runnable``."""

    schema: int
    kind: Literal["plan"]
    ncclbench: NotRequired[str]
    created: NotRequired[str]
    command: NotRequired[list[str]]
    machine: NotRequired[dict[str, str | int | None]]
    local_ranks: Annotated[int, msgspec.Meta(ge=1)]
    plan: dict[str, Any]
    cases_from: NotRequired[CasesFrom | None]


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan that was read.

    Attributes:
        name: of the file, without its folder.
        plan: as it stands there.
        local_ranks: ranks on the fullest host that it was made for.
        cases_from: the dumps that its cases came from, as in run.json; None where they came from options.
    """

    name: str
    plan: Plan
    local_ranks: int
    cases_from: dict[str, Any] | None = None


def write_plan(
    path: Path,
    plan: Plan,
    machine: Machine,
    local_ranks: int,
    command: Sequence[str],
    cases_from: Mapping[str, Any] | None = None,
) -> None:
    """Write the file anew.

    Args:
        cases_from: the dumps that its cases came from, as in run.json.

    Raises:
        MeasurementError: the system refuses the write.
    """
    fields = {
        "schema": PLAN_FILE_SCHEMA,
        "kind": "plan",
        "ncclbench": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "machine": machine.to_json(),
        "local_ranks": local_ranks,
        "plan": plan.to_json(),
        **({} if cases_from is None else {"cases_from": dict(cases_from)}),
    }
    replace_file(path, json.dumps(fields, separators=(",", ":")).encode() + b"\n")


def load_plan(path: Path) -> PlanFile:
    """The plan in a file, such that it can be run as it stands.

    Raises:
        RequestError: no plan of ncclbench, of a newer one, or one that it would never have made.
    """
    if not os.path.isfile(path):  # unlike Path's, it never raises
        what = "is no file" if os.path.exists(path) else "is not there"
        raise RequestError(f"{path} {what}: name what ncclbench plan --out wrote")
    if path.stat().st_size > _MOST_BYTES:
        raise RequestError(f"{path} has more than {format_memory(_MOST_BYTES)}: that is no plan")
    fields = read_json(path, "a plan")
    if isinstance(fields, dict) and fields.get("kind") != "plan":
        raise RequestError(f"{path} is no plan: name what ncclbench plan --out wrote")
    check_schema(fields, PLAN_FILE_SCHEMA, path, "a plan")
    try:
        msgspec.convert(fields, PlanFileFields)
    except (ValueError, RecursionError) as error:
        said = brief(error)
        raise RequestError(f"{path} is no plan this ncclbench can read: {said}") from None
    plan = read_plan(fields, path)
    try:
        check_runnable(plan)
    except (RequestError, ArithmeticError) as error:
        raise RequestError(f"{path} is damaged: {error}") from None
    return PlanFile(path.name, plan, min(fields["local_ranks"], plan.nranks), fields.get("cases_from"))
