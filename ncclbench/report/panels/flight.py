"""Panel: what flight recorders say: who is stuck and who did not come, first in words."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from ncclbench.flight.model import Finding
from ncclbench.flight.overview import blamed_ranks, operation_text, place_text, ranks_text, state_text
from ncclbench.report.flight.model import Flight
from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text
from ncclbench.units import count_text

# Findings in the table, refused files and ranks to blame that are named; ``flight --json`` has them all.
MOST_FINDINGS = 25
_MOST_NAMED = 8

HEADLINES = {
    "stuck": "Stuck",
    "mismatch": "Ranks issued different operations",
    "healthy": "Nobody is stuck",
    "unclear": "It cannot be told",
}
# Titles of the table, with the ranks under each; one under which there are none is left out.
_COLUMNS: dict[str, Callable[[Finding], Collection[int]]] = {
    "did not come": lambda finding: finding.missing_ranks,
    "issued another": lambda finding: finding.mismatched_ranks,
    "came": lambda finding: set(finding.arrived_ranks) - set(finding.mismatched_ranks),
    "not known": lambda finding: finding.unknown_ranks,
}
_TONES = {"healthy": "good", "unclear": "warn"}


class HasFlights(Protocol):
    """A subject of a page that holds dumps: a report of runs, or the page of ``flight``."""

    @property
    def flights(self) -> tuple[Flight, ...]:
        """What flight recorders left, of each run that has dumps."""
        ...


def build(subject: HasFlights) -> Content | None:
    """One block for each set of dumps; nothing for other runs."""
    if not subject.flights:
        return None
    of_drill = isinstance(subject, Report) and any(
        source.flight is not None and source.run.is_drill for source in subject.sources
    )
    return {"blocks": [_block(flight) for flight in subject.flights], "of_drill": of_drill}


PANEL: Panel[Any] = Panel(
    name="flight",
    order=-13,
    title="Who is stuck",
    description="",
    build=build,
    template="flight.html",
)


def _block(flight: Flight) -> dict[str, Any]:
    judgement = flight.judgement
    findings = judgement.findings
    return {
        "label": flight.label,
        "tone": _TONES.get(judgement.verdict, "bad"),
        "headline": HEADLINES[judgement.verdict],
        "message": f"{judgement.message[:1].upper()}{judgement.message[1:]}.",
        "place": _place(flight),
        "blamed": _blamed(flight),
        "columns": [title for title, ranks in _COLUMNS.items() if any(map(ranks, findings))],
        "has_words": len(findings) > 1 or any(finding.where for finding in findings),
        "has_hosts": any(finding.hosts for finding in findings),
        "findings": [
            _finding(flight, finding, is_first=not place)
            for place, finding in enumerate(findings[:MOST_FINDINGS])
        ],
        "more": max(0, len(findings) - MOST_FINDINGS),
        "unknown": _unknown(flight),
    }


def _place(flight: Flight) -> str:
    """What was read: "4 dumps of 4 ranks, 812 operations, version 2.10"."""
    ranks = len({state.rank for state in flight.states if state.rank not in flight.judgement.missing_dumps})
    parts = [
        f"{count_text(flight.ndumps, 'dump')} of {count_text(ranks, 'rank')}",
        count_text(flight.noperations, "operation"),
        f"format version {list_text(list(flight.versions))}",
    ]
    return ", ".join(parts)


def _blamed(flight: Flight) -> list[tuple[str, str]]:
    """Of the ranks to blame for the first finding: what they did last, and where."""
    if not flight.judgement.findings:
        return []
    first = flight.judgement.findings[0]
    blamed = set(blamed_ranks(first))
    states = [state for state in flight.states if state.rank in blamed]
    lines = []
    for state in states[:_MOST_NAMED]:
        last = state.operation
        if last is None:
            text = "nothing of it is known"
        else:
            what = operation_text(last.collective, last.sequence)
            place = place_text(last)
            text = f"last issued {what} of {flight.group(last.group)}, {state_text(last)}"
            text += f", at {place}" if place else ""
        lines.append((f"{state.name} {state.part}", text))
    if len(states) > _MOST_NAMED:
        rest = [state.rank for state in states[_MOST_NAMED:]]
        lines.append((f"{len(rest)} more", f"ranks {ranks_text(rest)}"))
    return lines


def _finding(flight: Flight, finding: Finding, is_first: bool) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "operation": operation_text(finding.collective, finding.sequence),
        "group": flight.group(finding.group),
        "ranks": {title: ranks_text(ranks(finding)) or "–" for title, ranks in _COLUMNS.items()},
        "hosts": list_text(list(finding.hosts)) or "–",
        "where": finding.where or "",
        # Of the first the answer above the table says it.
        "why": "" if is_first else finding.why,
        "causes": finding.causes,
    }


def _unknown(flight: Flight) -> list[tuple[str, str]]:
    """What could not be known, and why."""
    judgement, evidence = flight.judgement, flight.evidence
    nameless = sum(dump.rank is None for dump in evidence.dumps)
    refused = [f"{one.source}: {one.reason}" for one in evidence.refused[:_MOST_NAMED]]
    if len(evidence.refused) > _MOST_NAMED:
        refused.append(f"and {len(evidence.refused) - _MOST_NAMED:,} more")
    facts = [
        ("no dump of", f"ranks {ranks_text(judgement.missing_dumps)}" if judgement.missing_dumps else ""),
        (
            "ring overwritten",
            f"ranks {ranks_text(judgement.wrapped_ranks)}: of older operations nothing is known"
            if judgement.wrapped_ranks
            else "",
        ),
        ("no rank known", count_text(nameless, "dump") if nameless else ""),
        ("not read", "; ".join(refused)),
    ]
    return [(name, text) for name, text in facts if text]
