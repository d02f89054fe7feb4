"""What was measured of a cluster's ranks and links, and the answer to who is slow.

Rounds are in order of time and the same for all: element t of every array belongs to round t. Not every
pair need have been measured; a round that failed is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ncclbench.errors import RequestError
from ncclbench.stats.intervals import Floats

Kind = Literal["rank", "host", "link"]
Verdict = Literal["none", "rank", "host", "link", "several", "unclear"]


# Where only larger slowdowns than this would have been found, that nobody is named says little.
BLIND = 2.0

# Fewer rounds name nobody, however slow somebody is: it may be what lasted for a moment.
FEWEST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Places:
    """Where ranks live.

    Attributes:
        host_of: index of its host, by rank; a host's ranks need not be neighbours.
        hosts: names, by host.
        switch_of: name of its switch, by host; None where that is not known.
    """

    host_of: tuple[int, ...]
    hosts: tuple[str, ...]
    switch_of: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= host < len(self.hosts) for host in self.host_of):
            raise RequestError("a rank's host is none of the hosts")
        if self.switch_of is not None and len(self.switch_of) != len(self.hosts):
            raise RequestError(
                f"{len(self.switch_of)} switches for {len(self.hosts)} hosts: name one for each"
            )

    @property
    def switches(self) -> tuple[str, ...]:
        """Names of the switches, each once; none where they are not known."""
        return tuple(sorted(set(self.switch_of or ())))

    def ranks_on(self, host: int) -> tuple[int, ...]:
        """The ranks of a host, ascending."""
        return tuple(rank for rank, where in enumerate(self.host_of) if where == host)


@dataclass(frozen=True, slots=True)
class LinkSamples:
    """One ordered pair of ranks.

    Attributes:
        src, dst: ranks.
        bandwidth_GBs: while nothing comes back, shape (rounds,).
        latency_us: shape (rounds,).
        both_GBs: from src to dst while as much comes back, shape (rounds,); None where not measured.
    """

    src: int
    dst: int
    bandwidth_GBs: Floats
    latency_us: Floats
    both_GBs: Floats | None = None


@dataclass(frozen=True, slots=True)
class RankSamples:
    """What one rank does alone, the same work on every rank.

    Attributes:
        rank: which.
        compute_us: time of the work, shape (rounds,).
        h2d_GBs, d2h_GBs: copies to and from the device, shape (rounds,); None where there is none.
    """

    rank: int
    compute_us: Floats
    h2d_GBs: Floats | None = None
    d2h_GBs: Floats | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Who came last to an operation in which all wait for all, in iterations that ran free.

    Attributes:
        op, nbytes: the operation.
        last: in how many iterations each rank came last, shape (ranks,).
        iterations: of how many.
        lateness_us: by how much each rank was later than the median rank, median over iterations, (ranks,).
    """

    op: str
    nbytes: int
    last: tuple[int, ...]
    iterations: int
    lateness_us: Floats


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """A collective operation on some of the ranks; ``time_us`` has shape (rounds,)."""

    ranks: tuple[int, ...]
    op: str
    nbytes: int
    time_us: Floats


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was measured."""

    places: Places
    links: list[LinkSamples]
    ranks: list[RankSamples] = field(default_factory=list)
    groups: list[GroupSamples] = field(default_factory=list)
    arrivals: list[Arrivals] = field(default_factory=list)

    def __post_init__(self) -> None:
        nranks = len(self.places.host_of)
        named = {rank for link in self.links for rank in (link.src, link.dst)}
        named |= {samples.rank for samples in self.ranks}
        named |= {rank for group in self.groups for rank in group.ranks}
        if any(not 0 <= rank < nranks for rank in named):
            raise RequestError(f"samples of rank {max(named)}, but there are {nranks} ranks")
        if any(len(one.last) != nranks or len(one.lateness_us) != nranks for one in self.arrivals):
            raise RequestError(f"arrivals must tell of all {nranks} ranks")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who is slow.

    Attributes:
        kind: what it is.
        ranks: the rank; all ranks of the host; one rank of each end of the link, the lower first.
        hosts: names: its host; of a link the hosts of both ends, one name where both are on one host.
        direction: of a link "both" or "a>b" by rank numbers; of a rank or host "both", "out" where only
            what it sends is slow, "in" where only what it receives.
        ratio: how many times slower than the healthy of its class, as a factor of time: 4.0 takes four
            times as long. Of a degradation that began between rounds: since then.
        ci_low, ci_high: 95 % interval of ``ratio``, over rounds and over how much healthy links differ;
            None where only arrivals tell.
        evidence: in words.
    """

    kind: Kind
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    direction: str
    ratio: float
    ci_low: float | None
    ci_high: float | None
    evidence: str

    def to_json(self) -> Mapping[str, Any]:
        """As ``suspects --json`` has it."""
        return {
            "kind": self.kind,
            "ranks": list(self.ranks),
            "hosts": list(self.hosts),
            "direction": self.direction,
            "ratio": self.ratio,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class Attribution:
    """The answer.

    Attributes:
        verdict: the kind of the one suspect, "several", "none", or "unclear" where something is slow and it
            cannot be told what.
        suspects: those that are named, the slowest first.
        drain_hosts: hosts to take out of service, each once: those of ranks, of hosts and of links inside a
            host. A link between two hosts adds none: which of its ends to drain would be a guess.
        message: one line in words.
        unclear: what is slow and cannot be told apart, in words.
        looked_at, not_looked_at: what the answer rests on and what it says nothing about, in words.
        would_find: the slowdown that would have been found anywhere, as a factor of time; None where so
            little was measured that none would.
    """

    verdict: Verdict
    suspects: tuple[Suspect, ...]
    drain_hosts: tuple[str, ...]
    message: str
    unclear: tuple[str, ...]
    looked_at: str
    not_looked_at: str
    would_find: float | None = None

    @property
    def is_blind(self) -> bool:
        """Whether nobody is named and much slower ones would not have been either."""
        return self.verdict == "none" and (self.would_find is None or self.would_find > BLIND)


def padded(rows: list[Floats]) -> Floats:
    """Samples under each other, shape (rows, most rounds): NaN where one is missing or not above zero."""
    table = np.full((len(rows), max((row.size for row in rows), default=0)), np.nan)
    for at, row in enumerate(rows):
        table[at, : row.size] = np.where(np.isfinite(row) & (row > 0), row, np.nan)
    return table
