"""From flight recorder dumps to what a sweep measures: the calls of a job, most bytes first."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncclbench.errors import RequestError
from ncclbench.flight.calls import Call, NoCase
from ncclbench.flight.cuts import PREFIX, Team, teams_of
from ncclbench.flight.dumps import read
from ncclbench.flight.files import find_files, read_file
from ncclbench.flight.join import join
from ncclbench.names import unknown
from ncclbench.plan.build import Selection
from ncclbench.tables.topologies import Cut
from ncclbench.units import count_text, format_bytes, rank_ranges

# More distinct calls than that nobody reads, and a mixture of experts has thousands.
MOST_CALLS = 64
_MOST_FILES_NAMED = 16
_REASONS_TOLD = 3
_OTHERS_TOLD = 12


@dataclass(frozen=True, slots=True)
class Job:
    """What dumps tell of a job's communication.

    Attributes:
        teams: its groups with their calls, those that move most bytes first.
        nranks: its world size, as far as known.
        files: name and SHA-256 of each file, in order.
        nrefused: files, or parts of them, that were not read; ``first_refused``: the first, and why.
        missing: ranks of which there is no dump, as far as known.
    """

    teams: tuple[Team, ...]
    nranks: int
    files: tuple[tuple[str, str], ...]
    nrefused: int
    first_refused: str | None
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """Calls that become cases, and what does not.

    Attributes:
        selections: for a plan, by topology, collective and element type, those that move most bytes first.
        calls: what was taken: topology and call, how often it was made.
        left: what was not, in a sentence each.
        meta: for run.json (``cases_from``).
    """

    selections: tuple[Selection, ...]
    calls: Mapping[tuple[str, Call], int]
    left: tuple[str, ...]
    meta: dict[str, Any]


def read_job(paths: Sequence[Path]) -> Job:
    """What is in files and folders of dumps, nothing of which is run.

    Raises:
        RequestError: there is no dump in any of them.
    """
    evidence = read(paths)
    joined = join(evidence)
    nranks = evidence.nranks or 1
    files = []
    unused = {one.source for one in evidence.refused}
    for path, is_named in find_files(paths)[0]:
        if str(path) in unused:
            continue
        try:
            content, _ = read_file(path, is_named)
        except ValueError:
            continue  # it stands among the refused
        files.append((path.name, hashlib.sha256(content).hexdigest()))
    first = evidence.refused[0] if evidence.refused else None
    return Job(
        tuple(teams_of(joined, nranks)),
        nranks,
        tuple(files),
        len(evidence.refused),
        f"{Path(first.source).name} {first.reason}" if first else None,
        joined.missing,
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """Which calls are wanted; None takes all.

    Attributes:
        ops, dtypes: table names; ``min_bytes``, ``max_bytes``: of a call.
        topologies: where calls are measured, in place of the job's own groups; ``dump:NAME`` takes those
            of one team on its own groups.
    """

    ops: Collection[str] | None = None
    dtypes: Collection[str] | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    topologies: Sequence[Cut] | None = None

    def takes(self, call: Call) -> bool:
        """Whether a call is wanted; a barrier has neither type nor size."""
        if self.ops is not None and call.op not in self.ops:
            return False
        if not call.nbytes:
            return self.dtypes is None and self.min_bytes is None
        return (
            (self.dtypes is None or call.dtype in self.dtypes)
            and (self.min_bytes is None or call.nbytes >= self.min_bytes)
            and (self.max_bytes is None or call.nbytes <= self.max_bytes)
        )


def take(job: Job, wanted: Filter, form: Selection, nranks: int) -> Taken:
    """The cases of a job.

    Args:
        wanted: which of its calls.
        form: how they are measured: its operators, roots, modes and forms.
        nranks: world size here.

    Raises:
        RequestError: there is none.
    """
    if not any(team.calls for team in job.teams):
        raise RequestError(_no_calls(job))
    left: list[str] = []
    found = _placed(job, wanted, nranks, left)
    unwanted = sum(count for (_, call), count in found.items() if not wanted.takes(call))
    kept = {key: count for key, count in found.items() if wanted.takes(key[1])}
    if not kept:
        have = sorted({f"{call.op} {call.dtype}" if call.nbytes else call.op for _, call in found})
        raise RequestError(
            f"--cases-from: no call of the dumps is one of those asked for: they have {', '.join(have)}"
        )
    if unwanted:
        left.append(f"{count_text(unwanted, 'call')} that the other options leave out")
    ordered = sorted(kept, key=lambda key: (-_moved(key, kept), -kept[key], key[0].name, key[1]))
    rest = ordered[MOST_CALLS:]
    if rest:
        everything = sum(_moved(key, kept) for key in ordered) or 1
        share = sum(_moved(key, kept) for key in rest) / everything
        left.append(
            f"{len(rest)} of {len(ordered)} different calls, which move {share:.1%} of the bytes: "
            f"the {MOST_CALLS} largest are measured; choose with --ops, -d, -b, -e or --topologies"
        )
    chosen = ordered[:MOST_CALLS]
    others = sum((team.others for team in job.teams), Counter[NoCase]())
    told = others.most_common(_OTHERS_TOLD)
    left += [f"{count_text(count, 'call')} of {case.what}: {case.reason}" for case, count in told]
    if len(others) > len(told):
        count = sum(others.values()) - sum(count for _, count in told)
        left.append(f"{count_text(count, 'call')} of {len(others) - len(told)} more kinds that are no cases")
    if job.missing:
        left.append(
            f"what {rank_ranges(job.missing)} called, of whom there is no dump: the size of the job and its "
            "groups are as far as the others tell"
        )
    if job.first_refused is not None:
        more = f", and {job.nrefused - 1} more" if job.nrefused > 1 else ""
        left.append(f"a file that was not read: {job.first_refused}{more}")
    taken = {(cut.name, call): kept[cut, call] for cut, call in chosen}
    moved = sum(_moved(key, found) for key in found)
    return Taken(_selections(chosen, form), taken, tuple(left), _meta(job, taken, moved, left))


_Key = tuple[Cut, Call]


def _moved(key: _Key, counts: Mapping[_Key, int]) -> int:
    """Bytes per rank, of all calls of that kind."""
    return key[1].nbytes * counts[key]


def _placed(job: Job, wanted: Filter, nranks: int, left: list[str]) -> dict[_Key, int]:
    """The calls by where they are measured."""
    found: Counter[_Key] = Counter()
    by_name = {f"{PREFIX}{team.name}": team for team in job.teams}
    if wanted.topologies is None:
        for team in job.teams:
            cut = team.cut(nranks, job.nranks)
            _add(found, cut, team)
            outside = team.outside(nranks)
            if 0 < outside < len(team.groups):
                left.append(
                    f"{outside} of {len(team.groups)} groups of {team.name}, whose ranks are not among the "
                    f"{nranks} here"
                )
        return found
    for cut in wanted.topologies:
        if not cut.name.startswith(PREFIX):
            for team in job.teams:
                _add(found, cut, team)
        elif cut.name in by_name:
            _add(found, by_name[cut.name].cut(nranks, job.nranks), by_name[cut.name])
        else:
            raise unknown("group of the dumps", cut.name, by_name)
    return found


def _add(found: Counter[_Key], cut: Cut, team: Team) -> None:
    for call, count in team.calls.items():
        found[cut, call] += count


def _selections(chosen: Sequence[_Key], form: Selection) -> tuple[Selection, ...]:
    """One for each topology, collective and element type, in the order of the first of its calls."""
    sizes: dict[tuple[Cut, str, str], list[int]] = {}
    for cut, call in chosen:
        sizes.setdefault((cut, call.op, call.dtype), []).append(max(1, call.nbytes))
    return tuple(
        replace(form, ops=(op,), dtypes=(dtype,), topologies=(cut,), sizes=tuple(sorted(found)))
        for (cut, op, dtype), found in sizes.items()
    )


def _meta(job: Job, taken: Mapping[tuple[str, Call], int], moved: int, left: Sequence[str]) -> dict[str, Any]:
    """As run.json has it.

    Args:
        moved: bytes per rank, of all calls of which cases could be made.
    """
    # As sha256sum of all files, of which sha256sum.
    lines = "".join(f"{digest}  {name}\n" for name, digest in job.files)
    return {
        "files": [{"file": name, "sha256": digest} for name, digest in job.files[:_MOST_FILES_NAMED]],
        "nfiles": len(job.files),
        "sha256": hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest(),
        "nranks": job.nranks,
        "calls": [
            {
                "topology": topology,
                "op": call.op,
                "dtype": call.dtype,
                "nbytes": call.nbytes,
                "calls": count,
                "share": call.nbytes * count / moved if moved else 0.0,
            }
            for (topology, call), count in taken.items()
        ],
        "left": list(left),
    }


def _no_calls(job: Job) -> str:
    others = sum((team.others for team in job.teams), Counter[NoCase]())
    told = [f"{case.what}: {case.reason} ({count})" for case, count in others.most_common(_REASONS_TOLD)]
    what = f": {'; '.join(told)}" if told else ""
    return (
        f"--cases-from: no collective that can be measured is in the dumps{what}; name dumps of a job that "
        "made some"
    )


def summary(taken: Taken, job: Job) -> str:
    """One line of what came of the dumps."""
    largest = max(taken.calls, key=lambda key: key[1].nbytes * taken.calls[key])[1]
    files = count_text(len(job.files), "dump")
    return (
        f"{len(taken.calls)} different calls, {sum(taken.calls.values()):,} in all, from {files} of a job of "
        f"{job.nranks} ranks; most bytes: {largest.op} of {format_bytes(largest.nbytes)} {largest.dtype}"
    )
