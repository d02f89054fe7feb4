"""What a search for slow parts found, judged once for all panels that show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.evidence import evidence_of, wrong_pairs
from ncclbench.attribution.links import link_rows
from ncclbench.attribution.model import Attribution, Evidence, Places
from ncclbench.store.model import Run


@dataclass(frozen=True, slots=True)
class Searched:
    """A search, read.

    Attributes:
        evidence: what was measured.
        links: the rows of ``matrix``, one for each ordered pair that was measured.
        answer: who is slow.
        wrong: pairs between which something else arrived than was sent.
    """

    evidence: Evidence
    links: list[dict[str, Any]]
    answer: Attribution
    wrong: list[tuple[int, int]]

    @property
    def places(self) -> Places:
        """Where the ranks are."""
        return self.evidence.places

    @property
    def order(self) -> list[int]:
        """The ranks as figures show them: those of a host beside each other."""
        host_of = self.places.host_of
        return sorted(range(len(host_of)), key=lambda rank: (host_of[rank], rank))

    def rank_text(self, rank: int) -> str:
        """A rank with its host: rank 5 (node-1)."""
        return f"rank {rank} ({self.places.hosts[self.places.host_of[rank]]})"

    def named_ranks(self) -> set[int]:
        """Ranks that are named, by themselves or with their host."""
        return {rank for one in self.answer.suspects if one.kind != "link" for rank in one.ranks}

    def unexplained(self, links: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The odd ones among links that have no end that is named: of a slow host every link is odd."""
        named = self.named_ranks()
        return [link for link in links if link["odd"] and not {link["src"], link["dst"]} & named]


def searched(run: Run) -> Searched:
    """What a run of ``matrix`` or ``suspects`` found."""
    evidence = evidence_of(run)
    return Searched(evidence, link_rows(evidence), attribute(evidence), wrong_pairs(run))
