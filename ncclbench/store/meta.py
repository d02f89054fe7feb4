"""The shape of run.json, so that a file of any other shape is refused with a line that says where."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from ncclbench.errors import RequestError, brief
from ncclbench.names import lookup
from ncclbench.plan.model import PLAN_SCHEMA, Case, Plan
from ncclbench.store.files import plain_file
from ncclbench.store.model import RUN_SCHEMA
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.statistics import STATISTICS
from ncclbench.tables.topologies import WORLD
from ncclbench.units import format_memory

_Index = Annotated[int, msgspec.Meta(ge=0)]
# What no dump exceeds, so that products of two are finite.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]

# Half a million cases, or the environment of some ten thousand ranks.
_MOST_BYTES = 256 << 20
# Above every size and count that a plan can hold, and small enough to divide.
_LARGEST = 1 << 62

# Above every cluster, and few enough to hold a place for each where a search does not say where they are.
_MOST_RANKS = 1 << 20

# How many ranks a line names that says what is wrong with them.
_MOST_NAMED = 3


class RankPlace(TypedDict):
    """Where a rank ran; ``host`` is an index into the hosts."""

    rank: _Index
    host: _Index
    local_rank: _Index


class Environment(TypedDict):
    """What the run ran on."""

    hosts: list[dict[str, Any]]
    ranks: list[RankPlace]
    common: NotRequired[dict[str, Any]]
    differences: NotRequired[list[dict[str, Any]]]


class SettingRead(TypedDict):
    """One setting: as asked for, as found, and how that is known.

    ``found`` and ``in_force`` are None where nothing tells; else the latter is whether they agree.
    """

    name: str
    asked: str
    found: str | None
    in_force: bool | None
    how: str


class ArmMeta(TypedDict):
    """What an arm really was."""

    implementation: NotRequired[str | None]
    device: NotRequired[str | None]
    status: NotRequired[str]
    reason: NotRequired[str | None]
    settings: NotRequired[list[SettingRead]]
    algorithms: NotRequired[str | None]


class Finding(TypedDict):
    """One line of the preflight."""

    severity: str
    ranks: list[_Index]
    what: str
    mend: NotRequired[str | None]


class FenceMeta(TypedDict):
    """How well the fence aligned the ranks."""

    kind: NotRequired[str]
    median_us: float
    p95_us: float
    clock_error_us: NotRequired[float | None]


class HealthMeta(TypedDict):
    """What GPUs and NICs said in an attempt."""

    attempt: _Index
    problems: list[str]


class Imported(TypedDict):
    """What an imported run was read from."""

    files: list[dict[str, Any]]


class DumpFile(TypedDict):
    """One of the files that cases came from."""

    file: str
    sha256: str


class RecordedCall(TypedDict):
    """A call of a job, as its flight recorders have it."""

    topology: str
    op: str
    dtype: str
    nbytes: _Count
    calls: _Count
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]


class CasesFrom(TypedDict):
    """The dumps that cases came from, and what was taken of them."""

    files: list[DumpFile]
    nfiles: _Count
    sha256: str
    nranks: _Count
    calls: list[RecordedCall]
    left: list[str]


class RunMeta(TypedDict):
    """run.json, keys as in docs/results-format.md; ``plan`` is checked by ``read_plan``."""

    schema: int
    kind: NotRequired[
        Literal["sweep", "import", "matrix", "suspects", "drill", "overlap", "p2p", "transport", "groups"]
    ]
    ncclbench: NotRequired[str]
    label: NotRequired[str | None]
    created: NotRequired[str]
    command: NotRequired[str | list[str]]
    plan_file: NotRequired[str]
    cases_from: NotRequired[CasesFrom]
    plan: dict[str, Any]
    asked: NotRequired[dict[str, bool | int | float | str | list[str] | None]]
    imported: NotRequired[Imported]
    environment: NotRequired[Environment]
    arms: NotRequired[dict[str, ArmMeta]]
    preflight: NotRequired[list[Finding]]
    attempts: NotRequired[list[dict[str, Any]]]
    fence: NotRequired[FenceMeta | None]
    health: NotRequired[list[HealthMeta]]
    calibration: NotRequired[dict[str, Any] | None]
    status: NotRequired[str]
    message: NotRequired[str | None]


def read_json(path: Path, what: str) -> Any:
    """The JSON in a file that was written by ncclbench, all numbers finite and all texts whole.

    Args:
        what: the file should be, "the file of a run".

    Raises:
        RequestError: it cannot be read, or holds anything else.
    """
    try:
        with plain_file(path) as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                raise ValueError(f"it has more than {format_memory(_MOST_BYTES)}")
            content = file.read()
        found = json.loads(content, parse_constant=_finite, parse_float=_finite)
        if b"\\u" in content:  # what is escaped may be half a character, which no output can hold
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeEncodeError:
        raise RequestError(
            f"{path} is damaged: a text in it holds half a character (a lone surrogate, \\ud800 to \\udfff): "
            "remove it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON, so not {what}: {brief(error)}") from None


def read_meta(path: Path) -> dict[str, Any]:
    """run.json as it stands, its shape checked.

    Raises:
        RequestError: it cannot be read, is no run.json, or one of a newer ncclbench.
    """
    meta = read_json(path, "the file of a run")
    check_schema(meta, RUN_SCHEMA, path, "the file of a run")
    try:
        msgspec.convert(meta, RunMeta)
        _check_places(meta.get("environment"))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not a run this ncclbench can read: {brief(error)}") from None
    checked: dict[str, Any] = meta
    return checked


def read_plan(meta: dict[str, Any], path: Path) -> Plan:
    """The plan in run.json, every field's type checked, every name known; of a search a place for each rank.

    Raises:
        RequestError: not a plan; the line names ``path`` and what is wrong in it.
    """
    check_schema(meta["plan"], PLAN_SCHEMA, path, "the file of a run")
    try:
        plan = Plan.from_json(meta["plan"])
        # Through plain data and back: what a dataclass takes unchecked, this checks.
        msgspec.convert(asdict(plan), Plan)
        _check_plan(plan)
        _check_ranks(meta, plan.nranks)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    except KeyError as error:
        raise RequestError(f"{path}: the plan has no {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RequestError(f"{path}: the plan in it cannot be read: {brief(error)}") from None
    return plan


def check_schema(fields: Any, newest: int, path: Path, what: str) -> None:
    """Refuse what has no schema number, or one of a newer ncclbench.

    Raises:
        RequestError: so it is; ``what`` the file should be stands in the line.
    """
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RequestError(f"{path} is not {what}: it holds no schema number")
    if schema > newest:
        raise RequestError(
            f"{path} was written by a newer ncclbench (schema {schema}, this one reads up to {newest}): "
            "upgrade ncclbench"
        )


def _check_plan(plan: Plan) -> None:
    if not 1 <= plan.nranks <= _LARGEST:
        raise ValueError(f"nranks is {plan.nranks}")
    for name in ("margin_ratio", "margin_us"):
        if not 0 <= getattr(plan, name) <= 1e9:
            raise ValueError(f"{name} is {getattr(plan, name)}")
    if plan.precision is not None and not 0 < plan.precision <= 1e9:
        raise ValueError(f"precision is {plan.precision}")
    if plan.statistic is not None:
        lookup(STATISTICS, "statistic", plan.statistic)
    ids = [arm.id for arm in plan.arms]
    if len(set(ids)) < len(ids) or plan.base_arm not in ids:
        raise ValueError(f"its arms are {ids} and the base is {plan.base_arm!r}")
    for entry in plan.cases:
        _check_case(entry.case)
    if WORLD.name in plan.groups:
        raise ValueError(f"it has groups of {WORLD.name}, which is all ranks")
    for topology, size in dict.fromkeys((case.topology, case.nranks) for case in plan.planned):
        _check_groups(plan, topology, size)


def _check_case(case: Case) -> None:
    lookup(COLLECTIVES, "operation", case.op)
    lookup(MODES, "mode", case.mode)
    lookup(DTYPES, "dtype", case.dtype)
    if case.redop is not None:
        lookup(REDOPS, "reduction operator", case.redop)
    if not (1 <= case.nranks <= _LARGEST and 0 <= case.nbytes <= _LARGEST and 0 <= case.count <= _LARGEST):
        raise ValueError(f"a case of {case.nbytes} bytes, {case.count} elements on {case.nranks} ranks")


def _check_groups(plan: Plan, topology: str, size: int) -> None:
    if topology == WORLD.name:
        return
    groups = plan.groups[topology]
    ranks = [rank for group in groups for rank in group]
    if not ranks or len(set(ranks)) < len(ranks) or not all(0 <= rank < plan.nranks for rank in ranks):
        raise ValueError(f"the groups of {topology} are not of the {plan.nranks} ranks")
    if any(len(group) != size for group in groups):
        raise ValueError(f"the groups of {topology} have not {size} ranks each")


def _check_places(environment: dict[str, Any] | None) -> None:
    if environment is None:
        return
    nhosts = len(environment["hosts"])
    for place in environment["ranks"]:
        if place["host"] >= nhosts:
            raise ValueError(f"rank {place['rank']} is on host {place['host']} of {nhosts}")


def _check_ranks(meta: dict[str, Any], nranks: int) -> None:
    """That each rank of a search has one place, on which its answer rests; other runs are read without."""
    if meta.get("kind") not in ("matrix", "suspects"):
        return
    if nranks > _MOST_RANKS:
        raise ValueError(f"nranks is {nranks}, of a search at most {_MOST_RANKS}")
    environment = meta.get("environment")
    if environment is None:
        return
    told = Counter(place["rank"] for place in environment["ranks"])
    twice = [rank for rank, times in told.items() if times > 1]
    if twice:
        raise RequestError(f"environment.ranks tells of rank {_few(twice)} more than once")
    beyond = [rank for rank in told if rank >= nranks]
    if beyond:
        raise RequestError(f"environment.ranks tells of rank {_few(beyond)}, but plan.nranks is {nranks}")
    if len(told) < nranks:
        missing = (rank for rank in range(nranks) if rank not in told)
        raise RequestError(
            f"plan.nranks is {nranks}, but environment.ranks tells of {len(told)}, "
            f"not of rank {_few(list(itertools.islice(missing, _MOST_NAMED + 1)))}"
        )


def _few(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return f"{named} and others" if len(ranks) > _MOST_NAMED else named


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value
