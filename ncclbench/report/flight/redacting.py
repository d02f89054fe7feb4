"""A flight without names: of hosts, users, paths and files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ncclbench.report.flight.model import Flight

if TYPE_CHECKING:
    from ncclbench.report.redact import Redactor


def without_names(flight: Flight, redactor: Redactor) -> Flight:
    """The same answer by a redactor that has learnt from it.

    A host's name that is a word too is left in running texts, and replaced wherever a host's name stands.
    """
    shown: Flight = redactor.shown(flight)
    host = redactor.aliases.host
    findings = [
        replace(new, hosts=tuple(host(name) for name in old.hosts))
        for new, old in zip(shown.judgement.findings, flight.judgement.findings, strict=True)
    ]
    refused = [
        replace(new, source=redactor.aliases.named("path", old.source))
        for new, old in zip(shown.evidence.refused, flight.evidence.refused, strict=True)
    ]
    return replace(
        shown,
        judgement=replace(shown.judgement, findings=tuple(findings)),
        evidence=replace(
            shown.evidence,
            host_of={rank: host(name) for rank, name in flight.evidence.host_of.items()},
            refused=tuple(refused),
        ),
        states=tuple(
            replace(new, host=None if old.host is None else host(old.host))
            for new, old in zip(shown.states, flight.states, strict=True)
        ),
    )
