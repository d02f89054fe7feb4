"""What a person sees of dumps: the answer in words, the findings, and what was not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from ncclbench.flight.model import Evidence, Finding, Judgement
from ncclbench.flight.overview import (
    NO_DUMP,
    RankState,
    blamed_ranks,
    group_names,
    group_text,
    operation_text,
    place_text,
    rank_states,
    ranks_text,
    state_text,
)
from ncclbench.terminal.columns import aligned
from ncclbench.terminal.streams import coloured, one_line
from ncclbench.units import noun_text

# Findings in the table: what follows from the first is summed up after so many.
MOST_FINDINGS = 5
# Ranks to blame that have a line of their own, and files that were not read.
_MOST_NAMED = 6
_LONGEST_CELL = 34

_COLOURS = {"healthy": "bold", "unclear": "yellow"}
_TITLES = ("", "finding", "operation", "group", "to blame", "came", "hosts")


def flight_lines(evidence: Evidence, judgement: Judgement, stream: TextIO | None) -> list[str]:
    """All of it; ``stream`` decides whether the answer is coloured."""
    states = rank_states(evidence, judgement)
    names = group_names(evidence)
    answer = one_line(f"{judgement.verdict.upper()}: {judgement.message}")
    lines = [coloured(answer, _COLOURS.get(judgement.verdict, "red"), stream)]
    if judgement.findings:
        lines += [f"  {one_line(line)}" for line in _course(judgement.findings[0], states, names)]
        lines += ["#", *_table(judgement.findings, names)]
    lines += [one_line(f"# {line}") for line in _read(evidence, states)]
    lines += [one_line(f"# {line}") for line in unknown_lines(evidence, judgement)]
    return lines


def unknown_lines(evidence: Evidence, judgement: Judgement) -> list[str]:
    """What could not be known, a line each, the files that were not read last."""
    lines = []
    if judgement.missing_dumps:
        lines.append(f"no dump of {_ranks(judgement.missing_dumps)}: what was done there is not known")
    if judgement.wrapped_ranks:
        lines.append(
            f"ring overwritten on {_ranks(judgement.wrapped_ranks)}: older operations are not known; "
            "TORCH_FR_BUFFER_SIZE makes it larger"
        )
    nameless = sum(dump.rank is None for dump in evidence.dumps)
    if nameless:
        lines.append(f"{nameless} of the dumps do not tell their rank: name the files rank0, rank1 ...")
    homeless = {dump.rank for dump in evidence.dumps if dump.rank is not None} - set(evidence.host_of)
    if evidence.host_of and homeless:
        lines.append(f"no host known of {_ranks(sorted(homeless))}: --ranks-per-host says how many each has")
    if evidence.nranks is None:
        lines.append("how many ranks there were is not known: --world-size N says it")
    lines += [f"not read: {one.source}: {one.reason}" for one in evidence.refused[:_MOST_NAMED]]
    if len(evidence.refused) > _MOST_NAMED:
        lines.append(f"not read: {len(evidence.refused) - _MOST_NAMED:,} more")
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    return f"{noun_text(len(ranks), 'rank')} {ranks_text(ranks)}"


def _course(first: Finding, states: Sequence[RankState], names: dict[str, str]) -> list[str]:
    """Of the root cause: each rank to blame with what it did last, then who waits."""
    blamed = set(blamed_ranks(first))
    lines = []
    named = [state for state in states if state.rank in blamed]
    for state in named[:_MOST_NAMED]:
        last = state.operation
        text = f"{state.name} {state.part}"
        if last is not None:
            what = f"{operation_text(last.collective, last.sequence)} of {group_text(names, last.group)}"
            text += f"; its last is {what}, {state_text(last)}"
            place = place_text(last)
            text += f", at {place}" if place else ""
        lines.append(text)
    if len(named) > _MOST_NAMED:
        lines.append(f"and {_ranks([state.rank for state in named[_MOST_NAMED:]])}")
    came = [state for state in states if state.rank in first.arrived_ranks and state.rank not in blamed]
    if first.kind == "stuck" and came:
        last = came[0].operation
        is_it = last is not None and (last.group, last.sequence) == (first.group, first.sequence)
        place = place_text(last) if last is not None and is_it else None
        lines.append(f"{_ranks([state.rank for state in came])} came{f', at {place}' if place else ''}")
    if first.where and not any(first.where in line for line in lines):
        lines.append(f"where: {first.where}")
    return lines


def _table(findings: Sequence[Finding], names: dict[str, str]) -> list[str]:
    """A line for each of the first findings and why, the root cause first."""
    rows = [
        [
            str(number),
            finding.kind,
            operation_text(finding.collective, finding.sequence),
            group_text(names, finding.group),
            ranks_text(blamed_ranks(finding), 4) or "-",
            ranks_text(set(finding.arrived_ranks) - set(finding.mismatched_ranks), 4) or "-",
            ", ".join(finding.hosts[:3]) + (f" and {len(finding.hosts) - 3} more" * (len(finding.hosts) > 3))
            or "-",
        ]
        for number, finding in enumerate(findings[:MOST_FINDINGS], start=1)
    ]
    cells = [[_cell(text) for text in row] for row in rows]
    header, *rest = aligned([("#", *_TITLES[1:]), *cells], left=None)
    lines = [header]
    for place, (finding, line) in enumerate(zip(findings, rest, strict=False)):
        lines.append(line)
        # Of the first the answer says it.
        lines += [f"   {one_line(finding.why)}"] if place else []
    if len(findings) > MOST_FINDINGS:
        lines.append(f"# and {len(findings) - MOST_FINDINGS:,} more findings: --json has them all")
    if findings[0].causes:
        lines.append(f"# {findings[0].causes:,} of the findings follow from the first")
    return lines


def _cell(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_CELL else f"{line[: _LONGEST_CELL - 1]}…"


def _read(evidence: Evidence, states: Sequence[RankState]) -> list[str]:
    ranks = sum(state.part != NO_DUMP for state in states)
    operations = sum(len(dump.operations) for dump in evidence.dumps)
    of = "" if evidence.nranks is None else f" of {evidence.nranks:,}"
    return [f"read: {len(evidence.dumps):,} dumps, {ranks:,}{of} ranks, {operations:,} operations"]
