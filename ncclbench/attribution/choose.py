"""From findings at several looks to what is named, and what cannot be told from something else."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ncclbench.attribution.elements import SORTS, Sort
from ncclbench.attribution.search import Finding, Search
from ncclbench.stats.intervals import holm

# What is slow in every round by more than this is told even where healthy ones may differ as much: half way
# between what is never named (1.2x) and what must be found (1.5x).
_TELLING = math.log(1.35)
# But only where it is so many times as far out as any healthy one: of many some are the slowest.
_FAR_APART = 2.0


# Of healthy clusters one in 1,500 may have a name of one sort; one in 20 may have something that is unclear.
_SUGGESTIVE = 75.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Of one kind of measurement.

    Attributes:
        named: shown to be slow, and told from everything else.
        unclear: slow, but it cannot be told what is; with the reason.
    """

    named: list[Finding]
    unclear: list[tuple[Finding, str]]


def choose(searches: Sequence[Search], alpha: float) -> list[Chosen]:
    """What may be said, with a chance of any false name in all ``searches`` together of ``alpha`` at most."""
    significant: set[int] = set()
    # Each sort has its part of the chance: there are so many more links than ranks.
    part = alpha / len(SORTS)
    first_step = {}
    for sort in SORTS:
        findings = [one for search in searches for one in search.findings if one.elements.sort == sort]
        family = max(1, len(findings), sum(search.family[sort] for search in searches))
        adjusted = holm([one.p for one in findings] + [1.0] * (family - len(findings)))
        significant |= {id(one) for one, p in zip(findings, adjusted, strict=False) if p <= part}
        first_step[sort] = part / family
    return [_choose_one(search, significant, first_step) for search in searches]


def _choose_one(search: Search, significant: set[int], first_step: dict[Sort, float]) -> Chosen:
    shown = [finding for finding in search.findings if id(finding) in significant]
    told = _of_one_regime(shown)
    crowded = _crowded(told)
    named, unclear = [], []
    for finding in told:
        if finding.doubtful:
            unclear.append((finding, "only one link shows it"))
        elif (finding.elements.level, finding.elements.where) in crowded:
            unclear.append((finding, "more than half read so, and which is the norm cannot be told"))
        else:
            named.append(finding)
    if not shown:
        unclear += _not_excluded(search, first_step)
    return Chosen(named, unclear)


def _not_excluded(search: Search, first_step: dict[Sort, float]) -> Iterator[tuple[Finding, str]]:
    """What was slow in every round, and may be so by chance all the same."""
    healthy = search.whole.healthy
    left = np.abs(search.whole.expected - search.whole.values)[healthy]
    apart = _FAR_APART * float(left.max()) if left.size else 0.0
    for finding in search.findings:
        step = first_step[finding.elements.sort]
        if finding.look.cost * finding.p_size <= step and finding.is_always:
            yield finding, f"too few rounds to exclude chance: {search.rounds}"
        elif finding.look.mean:
            continue
        elif finding.look.start == 0 and finding.p <= _SUGGESTIVE * step:
            slow, of = finding.lasting
            yield finding, f"in {slow} of {of} rounds only"
        elif finding.is_always and float(np.nanmedian(finding.beyond)) >= max(_TELLING, apart):
            yield finding, "the others differ so much that this may be chance"


def _of_one_regime(shown: list[Finding]) -> list[Finding]:
    """Those of the look that fits best to when things became slow, and what other looks add to them.

    A look over a change sees a mixture of before and after, in which each link has its own share of either.
    """
    onset = max((finding.onset for finding in shown), default=0)
    starts = sorted({finding.look.start for finding in shown if not finding.look.mean})
    later = [start for start in starts if start >= onset]
    best = later[0] if later else max(starts, default=0)
    told = [finding for finding in shown if not finding.look.mean and finding.look.start == best]
    lasting = [f for f in shown if f.look.start == 0 and f.onset == 0]
    for finding in sorted(lasting, key=lambda finding: finding.look.mean):
        covered = set(np.concatenate([[], *(other.members for other in told)]).tolist())
        if not covered & set(finding.members.tolist()):
            told.append(finding)
    return told


def _crowded(told: list[Finding]) -> set[tuple[str, str]]:
    """Levels of nodes of which more than half read slow."""
    slow: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    total: dict[tuple[str, str], int] = {}
    for finding in told:
        if not finding.elements.is_pair:
            key = finding.elements.level, finding.elements.where
            slow[key].add(finding.label)
            total[key] = max(total.get(key, 0), len(finding.elements))
    return {key for key, labels in slow.items() if 2 * len(labels) > total[key]}


def islands(named: list[Finding]) -> tuple[tuple[int, ...], ...]:
    """Two groups of hosts, fast inside and slow towards each other in both directions; () where none are.

    That is how a slow uplink reads between switches that nobody told of.
    """
    slow = [f for f in named if _is_host_link(f) and f.elements.direction == "both"]
    if len(slow) < 2:
        return ()
    elements = slow[0].elements
    apart = {finding.label for finding in slow}
    group = {int(host): int(host) for host in np.unique(elements.labels)}
    for one, other in elements.labels.tolist():
        if (one, other) not in apart:
            joined, kept = group[other], group[one]
            group = {host: kept if of == joined else of for host, of in group.items()}
    members: dict[int, list[int]] = defaultdict(list)
    for host, of in group.items():
        members[of].append(host)
    between = sum(group[one] != group[other] for one, other in elements.labels.tolist())
    if len(members) != 2 or between != len(apart) or min(map(len, members.values())) < 2:
        return ()
    return tuple(tuple(hosts) for hosts in members.values())


def _is_host_link(finding: Finding) -> bool:
    return finding.elements.is_pair and finding.elements.level == "host"


def join_islands(named: list[Finding]) -> tuple[list[Finding], tuple[tuple[int, ...], ...]]:
    """The named ones with the links between two islands made into one, and the islands."""
    apart = islands(named)
    if not apart:
        return named, ()
    links = [finding for finding in named if _is_host_link(finding)]
    joined = replace(
        links[0],
        members=np.concatenate([finding.members for finding in links]),
        slowness=np.nanmedian([finding.slowness for finding in links], axis=0),
        beyond=np.nanmedian([finding.beyond for finding in links], axis=0),
        label=(apart[0][0], apart[1][0]),
    )
    return [joined, *(finding for finding in named if not _is_host_link(finding))], apart


def not_between(apart: tuple[tuple[int, ...], ...], findings: list[Finding]) -> list[Finding]:
    """Findings without those of single links between two islands, which share what is slow."""
    home = {host: number for number, hosts in enumerate(apart) for host in hosts}
    return [
        finding
        for finding in findings
        if not (_is_host_link(finding) and len({home.get(host) for host in finding.label}) == 2)
    ]
