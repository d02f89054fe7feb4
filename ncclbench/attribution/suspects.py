"""From findings to suspects: what several measurements found of one rank, host or link is one suspect."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ncclbench.attribution.model import Kind, Places, Suspect
from ncclbench.attribution.search import Finding
from ncclbench.attribution.words import evidence_of

# Whose: the kind and who; of links also at which level, since a link of two hosts is not one of two ranks.
Target = tuple[Kind, str, tuple[int, ...]]


@dataclass(slots=True)
class Case:
    """What there is against one target: findings, and sentences that rest on none."""

    findings: list[Finding] = field(default_factory=list)
    more: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cases:
    """What there is against everyone.

    Attributes:
        places: where ranks live.
        by_target: the cases.
    """

    places: Places
    by_target: dict[Target, Case]

    def ranks_of(self, target: Target) -> tuple[int, ...]:
        """As ``Suspect.ranks``; of links between hosts the lowest rank of each."""
        kind, level, label = target
        if kind == "rank":
            return label
        if kind == "host":
            return self.places.ranks_on(label[0])
        if level == "rank":
            return label
        if level == "host":
            return tuple(sorted(self.places.ranks_on(host)[0] for host in label))
        return self._apart(*label) if len(label) == 1 else tuple(sorted(map(self._first_at, label)))

    def _apart(self, switch: int) -> tuple[int, ...]:
        """The lowest rank under a switch, and the lowest elsewhere."""
        own = self.places.switches[switch]
        others = [at for at, name in enumerate(self.places.switches) if name != own]
        return tuple(sorted((self._first_at(switch), min(map(self._first_at, others)))))

    def _first_at(self, switch: int) -> int:
        name, switch_of = self.places.switches[switch], self.places.switch_of
        assert switch_of is not None
        return min(rank for rank, host in enumerate(self.places.host_of) if switch_of[host] == name)

    def touched(self, targets: Iterable[Target]) -> set[int]:
        """All ranks that have a part in any of the targets."""
        ranks: set[int] = set()
        for target in targets:
            ranks |= set(self.ranks_of(target))
            if target[0] == "link" and target[1] == "host":
                ranks |= {rank for host in target[2] for rank in self.places.ranks_on(host)}
        return ranks


def target_of(finding: Finding) -> Target:
    """Whom a finding is against."""
    level = finding.elements.level
    if finding.elements.is_pair:
        return "link", level, tuple(sorted(finding.label))
    if level == "switch":
        return "link", level, finding.label
    return level, level, finding.label


def gather(named: Sequence[Finding], second: Sequence[Finding], places: Places) -> Cases:
    """The cases.

    Args:
        named: findings of links in one direction at a time and of ranks alone.
        second: of links in both directions at once: they add to what is named, or tell of somebody who has
            no part in it. Where one direction is slow, acknowledgements slow the other.
        places: where ranks live.
    """
    cases = Cases(places, defaultdict(Case))
    for finding in named:
        cases.by_target[target_of(finding)].findings.append(finding)
    _merge(cases)
    known = cases.touched(list(cases.by_target))
    for finding in second:
        target = target_of(finding)
        if target in cases.by_target or not cases.touched([target]) & known:
            cases.by_target[target].findings.append(finding)
    return cases


def _merge(cases: Cases) -> None:
    """Join what is one: a host and its only rank, a host and its ranks, a rank and its host's only link."""
    by_target, places = cases.by_target, cases.places
    for host in range(len(places.hosts)):
        ranks = places.ranks_on(host)
        slow = [rank for rank in ranks if ("rank", "rank", (rank,)) in by_target]
        if not slow:
            continue
        host_target: Target = ("host", "host", (host,))
        if len(slow) == len(ranks) > 1:
            for rank in slow:
                by_target[host_target].findings += by_target.pop(("rank", "rank", (rank,))).findings
        elif len(ranks) == 1 and host_target in by_target:
            # What computes slowly also sends slowly; a slow network makes no slow products.
            by_target["rank", "rank", ranks].findings += by_target.pop(host_target).findings
    _merge_stopped(cases)
    alone = {target[2][0] for target in by_target if target[0] == "rank"}
    for target in [target for target in by_target if target[:2] == ("link", "rank")]:
        ends = alone & set(target[2])
        hosts = {places.host_of[rank] for rank in target[2]}
        if ends and len(hosts) == 1 and len(places.ranks_on(hosts.pop())) == 2:
            by_target["rank", "rank", (ends.pop(),)].findings += by_target.pop(target).findings


def _merge_stopped(cases: Cases) -> None:
    """What is stopped again and again neither computes nor sends meanwhile: that makes no second fault of it.

    A link that is slower than the work of its end is one.
    """
    by_target, places = cases.by_target, cases.places
    for target in [target for target in by_target if target[0] == "link" and target[1] in ("rank", "host")]:
        for rank in cases.ranks_of(target):
            own: Target = ("rank", "rank", (rank,))
            stands_alone = target[1] == "rank" or len(places.ranks_on(places.host_of[rank])) == 1
            if own not in by_target or not stands_alone:
                continue
            work = [one.ratio()[0] for one in by_target[own].findings if one.what == "compute"]
            links = by_target[target].findings
            if work and max(one.ratio()[0] for one in links) < max(work):
                del by_target[target]
                break


def suspect_of(target: Target, case: Case, cases: Cases, apart: tuple[tuple[int, ...], ...]) -> Suspect:
    """The suspect that a case with findings is against; ``apart`` are the islands of hosts, if any."""
    kind, level, _ = target
    ranks = cases.ranks_of(target)
    hosts = tuple(dict.fromkeys(cases.places.hosts[cases.places.host_of[rank]] for rank in ranks))
    main = max(case.findings, key=lambda finding: finding.ratio()[0])
    ratio, low, high = main.ratio()
    islands = apart if level == "host" else ()
    sentences = evidence_of(_broadest(case.findings), kind, islands, cases.places)
    return Suspect(
        kind=kind,
        ranks=ranks,
        hosts=hosts,
        direction=_direction(target, case.findings, cases),
        ratio=ratio,
        ci_low=low if math.isfinite(high) else None,
        ci_high=high if math.isfinite(high) else None,
        evidence="; ".join(dict.fromkeys([*sentences, *case.more])),
    )


def _broadest(findings: list[Finding]) -> list[Finding]:
    """Each kind of measurement once for each place, the one with the most readings first."""
    ordered = sorted(findings, key=lambda finding: -len(finding.members))
    kept: dict[tuple[str, str, str], Finding] = {}
    for finding in ordered:
        kept.setdefault((finding.what, finding.elements.where, finding.elements.direction), finding)
    return list(kept.values())


def _direction(target: Target, findings: list[Finding], cases: Cases) -> str:
    links = [finding for finding in findings if finding.elements.where != "alone"]
    told = {finding.elements.direction for finding in links}
    if not links or len(links) < len(findings) or "both" in told:
        return "both"
    if target[0] == "link":
        ways = {finding.label for finding in links}
        if len(ways) > 1 or target[1] == "switch":
            return "both"
        way = ways.pop()
        ends = [cases.places.ranks_on(one)[0] if target[1] == "host" else one for one in way]
        return f"{ends[0]}>{ends[1]}"
    return told.pop() if len(told) == 1 else "both"


def slowest_first(suspects: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """Suspects in the order in which they are told."""
    return tuple(sorted(suspects, key=lambda suspect: -suspect.ratio))


def drain_hosts(suspects: Iterable[Suspect]) -> tuple[str, ...]:
    """As ``Attribution.drain_hosts``."""
    return tuple(dict.fromkeys(one.hosts[0] for one in suspects if one.kind != "link" or len(one.hosts) == 1))
