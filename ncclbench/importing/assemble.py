"""Readings of files put together into one run: arms, repeats, environment, and the run folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ncclbench import __version__
from ncclbench.environment.collect import merge
from ncclbench.importing.model import Described, DeviceLine, Problem, Reading, Section
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import RUN_SCHEMA
from ncclbench.store.printed import Printed

# Told of a file, run.json and ``--json``; the rest is counted.
PROBLEMS_TOLD = 100
_HOSTS_TOLD = 64

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A file of which nothing can be read, and why, on one line."""

    file: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """Files as one run.

    Attributes:
        files: what is told of each, in the order of the command line, for run.json and ``--json``.
        rows: of all files, with arm, file and repeat filled in.
        arms: the tools, ``nccl-tests#2`` where a curve was measured a second time, or on another machine.
        environment: as ``environment.collect.merge`` makes it of device lines; None where they tell nothing
            or the files are of different machines.
    """

    files: list[Described]
    rows: list[Printed]
    arms: tuple[Arm, ...]
    environment: Described | None

    @property
    def nranks(self) -> int:
        """The most ranks that any row tells of, at least 1."""
        return max((row.nranks or 1 for row in self.rows), default=1)


def assemble(readings: Sequence[Reading | Unread]) -> Assembled:
    """One run of what was found in files."""
    arms: list[_Arm] = []
    rows: list[Printed] = []
    files: list[Described] = []
    for index, reading in enumerate(readings):
        if isinstance(reading, Unread):
            problem = Problem(None, reading.reason)
            files.append({**_file(Reading(reading.file, "", problems=[problem]), ()), "format": None})
            continue
        taken: list[Printed] = []
        for place, section in enumerate(reading.sections):
            if section.rows:
                taken += _placed(section.rows, _arm(section, arms), index, place)
        rows += taken
        files.append(_file(reading, taken))
    environment = _environment([reading for reading in readings if isinstance(reading, Reading)])
    return Assembled(files, rows, tuple(Arm(arm.id, arm.tool) for arm in arms), environment)


def write_run(
    folder: RunFolder,
    assembled: Assembled,
    *,
    command: Sequence[str],
    label: str | None,
    created: datetime,
) -> None:
    """Fill a new run folder.

    Args:
        command: the command line as typed.

    Raises:
        MeasurementError: the system refuses.
    """
    meta = {
        "schema": RUN_SCHEMA,
        "kind": "import",
        "ncclbench": __version__,
        "label": label,
        "created": created.isoformat(timespec="seconds"),
        "command": list(command),
        "plan": unplanned(assembled.arms, assembled.nranks).to_json(),
        "imported": {"files": assembled.files},
        "attempts": [],
        "status": "running",
        "message": None,
    }
    if assembled.environment is not None:
        meta["environment"] = assembled.environment
    folder.write_meta(meta)
    with folder.samples() as samples:
        samples.append(b"".join(encode_line(row) for row in assembled.rows))
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    meta["attempts"] = [
        {"started": meta["created"], "ended": ended, "launcher": "import", "message": None},
    ]
    folder.write_meta({**meta, "status": "complete"})


@dataclass(slots=True)
class _Arm:
    """An arm while sections join it: what it holds, and on which machine, as far as that is told."""

    id: str
    tool: str
    curves: set[Key]
    gpu: str | None
    hosts: frozenset[str] | None

    def may_hold(self, section: Section) -> bool:
        """Whether a section can be of the same arm: no curve of it twice, and nothing of another machine."""
        return (
            self.tool == section.tool
            and (self.gpu is None or section.gpu in (None, self.gpu))
            and (self.hosts is None or _all_hosts(section) in (None, self.hosts))
            and self.curves.isdisjoint(map(_curve, section.rows))
        )


def _curve(row: Printed) -> Key:
    """What rows that differ in size alone share."""
    return (row.op, row.dtype, row.redop, row.root, row.in_place, row.mode, row.nranks, row.over_ranks)


def _all_hosts(section: Section) -> frozenset[str] | None:
    return frozenset(section.hosts) if section.nhosts else None


def _arm(section: Section, arms: list[_Arm]) -> str:
    """The first arm that may hold the section, or a new one; notes what it holds now."""
    arm = next((arm for arm in arms if arm.may_hold(section)), None)
    if arm is None:
        number = sum(1 for arm in arms if arm.tool == section.tool) + 1
        name = section.tool if number == 1 else f"{section.tool}#{number}"
        arm = _Arm(name, section.tool, set(), None, None)
        arms.append(arm)
    arm.curves.update(map(_curve, section.rows))
    arm.gpu = arm.gpu or section.gpu
    arm.hosts = arm.hosts or _all_hosts(section)
    return arm.id


def _placed(rows: Iterable[Printed], arm: str, file: int, section: int) -> list[Printed]:
    seen: Counter[Key] = Counter()
    placed = []
    for row in rows:
        key = (*_curve(row), row.nbytes)
        placed.append(msgspec.structs.replace(row, arm=arm, file=file, section=section, repeat=seen[key]))
        seen[key] += 1
    return placed


def _file(reading: Reading, rows: Sequence[Printed]) -> Described:
    sections = reading.sections
    averages = [section for section in sections if section.average_GBs is not None]
    failures = [section.failure for section in sections if section.failure]
    problems = reading.problems[:PROBLEMS_TOLD]
    if len(reading.problems) > PROBLEMS_TOLD:
        problems.append(Problem(None, f"and {len(reading.problems) - PROBLEMS_TOLD} more problems"))
    return {
        "file": str(reading.file),
        "format": reading.format,
        "rows_taken": reading.rows_taken,
        "rows_rejected": reading.rows_rejected,
        "problems": [{"line": problem.line, "reason": problem.reason} for problem in problems],
        **_common(rows),
        "rows": len(rows),
        "average_busbw_GBs": averages[0].average_GBs if len(averages) == 1 else None,
        "average_fits": _all([section.average_fits for section in averages]),
        "gpu": _one({section.gpu for section in sections if section.rows}),
        "hosts": list(dict.fromkeys(name for section in sections for name in section.hosts))[:_HOSTS_TOLD],
        "nhosts": _one({section.nhosts for section in sections if section.rows}),
        "version": _only({section.version for section in sections}),
        "library": _only({section.nccl for section in sections}),
        "sections": [_described(section) for section in sections],
        "missing": list(dict.fromkeys(what for section in sections for what in section.missing)),
        "failure": failures[0] if failures else None,
    }


def _common(rows: Sequence[Printed]) -> Described:
    """What all rows of a file share, None where they differ or there are none."""
    return {
        "op": _one({row.op for row in rows}),
        "op_from": _one({row.op_from for row in rows}),
        "nranks": _one({row.nranks for row in rows}),
        "nranks_from": _one({row.nranks_from for row in rows}),
    }


def _described(section: Section) -> Described:
    return {
        "tool": section.tool,
        "line": section.line,
        "version": section.version,
        "library": section.nccl,
        "driver": section.driver,
        "runtime": section.runtime,
        "rows_taken": section.row_lines,
        **_common(section.rows),
        "average_busbw_GBs": section.average_GBs,
        "average_fits": section.average_fits,
        "out_of_bounds": section.out_of_bounds,
        "devices": len(section.devices),
        "gpu": section.gpu,
        "hosts": section.hosts[:_HOSTS_TOLD],
        "nhosts": section.nhosts,
        "ranks_per_host": section.ranks_per_host,
        "settings": section.settings,
        "environment": section.environment,
        "missing": section.missing,
        "failure": section.failure,
    }


def _environment(readings: Sequence[Reading]) -> Described | None:
    """Of the devices that the text lists, where every section with rows lists the same, and all of them."""
    listing = [section for reading in readings for section in reading.sections if section.rows]
    if not listing or any(section.devices != listing[0].devices for section in listing[1:]):
        return None
    if listing[0].nhosts is None:
        return None
    devices = sorted(listing[0].devices, key=lambda line: line.rank)
    if len({line.rank for line in devices}) < len(devices):
        return None  # two groups, or a list that was garbled
    shared = {
        "nccl": _only({section.nccl for section in listing}),
        "variables": _shared_variables(listing),
    }
    descriptions = []
    by_host = sorted(devices, key=lambda line: line.host or "")
    local = {
        line.rank: number
        for _, lines in groupby(by_host, key=lambda line: line.host or "")
        for number, line in enumerate(sorted(lines, key=lambda line: line.rank))
    }
    driver = _only({section.driver for section in listing})
    for line in devices:
        rank = {"rank": line.rank, "local_rank": local[line.rank], "device": _device(line)}
        gpu = {"name": line.name, "driver": driver, "pci_bus_id": line.pci_bus_id}
        descriptions.append(
            {
                "host": {"name": line.host or "unknown", "boot_id": None},
                "rank": {**rank, **shared, "gpu": {key: value for key, value in gpu.items() if value}},
            }
        )
    return merge(descriptions)


def _device(line: DeviceLine) -> str:
    return "cuda" if line.device is None else f"cuda:{line.device}"


def _shared_variables(sections: Sequence[Section]) -> dict[str, str]:
    """What all sections were run with alike."""
    first, *others = [section.environment for section in sections]
    return {
        name: value
        for name, value in first.items()
        if all(name in each and each[name] == value for each in others)
    }


def _one(values: set[Any]) -> Any:
    """The value, where there is one only."""
    return next(iter(values)) if len(values) == 1 else None


def _only(values: set[Any]) -> Any:
    """The one value that is known, whatever is not."""
    return _one(values - {None})


def _all(answers: Sequence[bool | None]) -> bool | None:
    """Whether all is so; None where that is not known of one and none denies it, or there is none."""
    if False in answers:
        return False
    return True if answers and None not in answers else None
