"""Sentences on who is slow: evidence of a suspect, and the one line that answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ncclbench.attribution.elements import SORTS
from ncclbench.attribution.model import BLIND, FEWEST_ROUNDS, Kind, Places, Suspect
from ncclbench.attribution.search import Finding, Search

_COPIES = {"copies to the device": "host-to-device", "copies from the device": "device-to-host"}
_SAID_BESIDE = 1.2
# So many of what cannot be told are said in one line.
_MOST_UNCLEAR = 3
# Nothing but a stop slows anything so much.
_STOP = 100.0

Islands = tuple[tuple[int, ...], ...]


def evidence_of(findings: Sequence[Finding], of: Kind, apart: Islands, places: Places) -> list[str]:
    """What findings show of a suspect of a kind, without naming whom; ``apart`` are islands of hosts.

    What both directions at once show of the same links stands beside what one at a time does.
    """
    first = [finding for finding in findings if finding.what == "bandwidth"]
    second = {_alike(one, of, places): one for one in findings if one.what == "both ways"}
    joined = {key: one for finding in first if (one := second.get(key := _alike(finding, of, places)))}
    sentences = []
    for finding in findings:
        key = _alike(finding, of, places)
        if joined.get(key) is finding:
            continue
        also = ""
        if finding.what == "both ways":
            also = ", with both directions at once"
        elif finding.what == "bandwidth" and key in joined:
            share, other = _percent(finding.ratio()[0]), _percent(joined[key].ratio()[0])
            also = ", also both directions at once" + (f": at {other}" if other != share else "")
        sentences.append(_shows(finding, of, apart, places) + also + _when(finding))
    return sentences


def _alike(finding: Finding, of: Kind, places: Places) -> tuple[object, ...]:
    """Equal for findings that differ in nothing but by how much."""
    whose = _which(finding, places) if finding.elements.where != "alone" else finding.what
    pair = finding.elements.is_pair
    return whose, pair and of, finding.partners if not pair else finding.label, _when(finding)


def _shows(finding: Finding, of: Kind, apart: Islands, places: Places) -> str:
    ratio = finding.ratio()[0]
    at = f"at {_percent(ratio)} of the median"
    if finding.what == "compute":
        if finding.elements.level == "host":
            return f"all its {len(finding.members)} ranks compute {ratio:.1f}x slower"
        return f"computes {ratio:.1f}x slower"
    if finding.what in _COPIES:
        return f"{_COPIES[finding.what]} copies are {at}"
    if finding.elements.is_pair and of != "link":
        return f"its only link inside its host is {at}"
    if finding.elements.is_pair:
        return f"{_percent(ratio)} of the median{_between(apart, places) or _beside(finding)}"
    return f"{_which(finding, places)} {at} ({finding.partners[0]} of {finding.partners[1]} pairs)"


def _percent(ratio: float) -> str:
    share = 100 / ratio
    if share >= 1:
        return f"{share:.0f} %"
    return f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"


def _which(finding: Finding, places: Places) -> str:
    """Of a rank, host or switch: all its links to other hosts are, what it sends inside its host is."""
    some, of = finding.partners
    way = finding.elements.direction
    if finding.elements.level == "switch":
        uplink = f"through the uplink of {_called(finding, finding.label[0], places)}"
        moves = {"out": "what is sent", "in": "what is received"}.get(way)
        return f"{moves} {uplink} is" if moves else f"links {uplink} are"
    inside = finding.elements.where == "inside"
    to_others = finding.elements.level == "rank" and not inside
    # Links to what is slower still do not show it.
    if way in ("out", "in"):
        preposition = "to" if way == "out" else "from"
        where = " inside its host" if inside else f" {preposition} other hosts" if to_others else ""
        whole = "all that" if some == of else "what"
        return f"{whole} it {'sends' if way == 'out' else 'receives'}{where} is"
    where = " inside its host" if inside else " to other hosts" if to_others else ""
    return f"{'all ' if some == of else ''}its links{where} are"


def _beside(finding: Finding) -> str:
    """Of a link with a slow end: how much slower than that it is."""
    start = finding.onset
    beyond = math.exp(float(np.nanmedian(finding.beyond[start:])))
    if finding.ratio()[0] < _SAID_BESIDE * beyond:
        return ""
    return f", {beyond:.1f}x slower than what its slow end lets through"


def _between(apart: Islands, places: Places) -> str:
    if not apart:
        return ""
    one, other = (", ".join(places.hosts[host] for host in hosts) for hosts in apart)
    return f", as is every pair of {one} with {other}: a slow uplink between these two groups"


def _when(finding: Finding) -> str:
    rounds = finding.slowness.size
    if finding.onset:
        return f", from round {finding.onset + 1} of {rounds} on"
    slow = int(finding.slow_rounds.sum())
    return "" if finding.is_steady else f", in {slow} of {rounds} rounds"


def name_of(suspect: Suspect) -> str:
    """Who it is, with the direction: pair 0-2 (node-0, node-2), both directions."""
    way = {"out": ", sending", "in": ", receiving"}.get(suspect.direction, "")
    if suspect.kind == "host":
        return f"host {suspect.hosts[0]}{way}"
    if suspect.kind == "rank":
        return f"rank {suspect.ranks[0]} ({suspect.hosts[0]}){way}"
    ways = "both directions" if suspect.direction == "both" else f"{suspect.direction} only"
    return f"pair {suspect.ranks[0]}-{suspect.ranks[1]} ({', '.join(suspect.hosts)}), {ways}"


def sentence(suspect: Suspect) -> str:
    """Who it is and why."""
    joint = " " if suspect.evidence.startswith(("computes", "arrives")) else ": "
    return f"{name_of(suspect)}{joint}{suspect.evidence}"


def doubt(finding: Finding, reason: str, places: Places) -> tuple[str, str]:
    """What is slow and cannot be told apart: whose it is, in which measure, and the rest of the sentence."""
    measure = " (both ways at once)" if finding.what == "both ways" else ""
    return f"{_whose(finding, places)}{measure}", f"{finding.ratio()[0]:.1f}x slower, but {reason}"


def cannot_be_told(unclear: Sequence[str]) -> str:
    """The first of what cannot be told, and how many more there are: whatever is unsteady makes many."""
    more = len(unclear) - _MOST_UNCLEAR
    said = [*unclear[:_MOST_UNCLEAR], *([f"and {more} more of the kind"] if more > 0 else [])]
    return f"cannot be told: {'; '.join(said)}"


def _whose(finding: Finding, places: Places) -> str:
    names = [_called(finding, one, places) for one in finding.label]
    if finding.elements.where == "alone":
        copies = _COPIES.get(finding.what)
        return f"the {copies} copies of {names[0]}" if copies else f"the work of {names[0]}"
    if finding.elements.is_pair and finding.elements.direction == "one":
        return f"the link {_arrow(finding, places)}"
    if finding.elements.is_pair:
        return f"the link of {names[0]} and {names[1]}"
    way = {"out": "from", "in": "to"}.get(finding.elements.direction, "of")
    partners = sorted(set(finding.elements.partners(finding.index).tolist()))
    if len(partners) == 1:
        return f"{names[0]}, {_called(finding, partners[0], places)} or the link {way} {names[0]}"
    return f"the links {way} {names[0]}"


def _arrow(finding: Finding, places: Places) -> str:
    """One direction by rank numbers, as suspects are told: 3>1; of hosts with their names."""
    if finding.elements.level == "switch":
        return f"from {' to '.join(_called(finding, one, places) for one in finding.label)}"
    if finding.elements.level == "rank":
        return ">".join(map(str, finding.label))
    ends = ">".join(str(places.ranks_on(host)[0]) for host in finding.label)
    return f"{ends} ({' > '.join(places.hosts[host] for host in finding.label)})"


def _called(finding: Finding, index: int, places: Places) -> str:
    if finding.elements.level == "host":
        return places.hosts[index]
    if finding.elements.level == "rank":
        return f"rank {index}"
    return f"switch {places.switches[index]}"


def would_find(searches: Sequence[Search], alpha: float, margin: float) -> float | None:
    """The slowdown that would have been found in anybody, as a factor of time; None where none would."""
    if not searches or min(search.rounds for search in searches) < FEWEST_ROUNDS:
        return None
    family = max(1, *(sum(search.family[sort] for search in searches) for sort in SORTS))
    needed = max(
        scatter.slowness_at(alpha / len(SORTS) / family / 2)
        for search in searches
        for scatter in search.scatters
    )
    # Up to twentieths, and where healthy ones differ so much that it hardly matters, a thousandfold.
    return math.ceil(20 * max(1 + margin, math.exp(min(needed, math.log(1000))))) / 20


def nobody(searches: Sequence[Search], found: float | None) -> str:
    """That nothing stands out, with the spread and the slowdown ``found`` that would have been."""
    if found is None:
        rounds = min(search.rounds for search in searches)
        return f"nobody stands out, but {rounds} of the {FEWEST_ROUNDS} rounds that it takes can name nobody"
    largest = _factor(math.exp(max(0.0, *(search.largest for search in searches))))
    if found >= _STOP:
        return (
            f"nobody stands out, but readings differ so much (spread up to {largest}) that nothing short of "
            "a stop would have been found: take more --passes, or a quieter machine"
        )
    if found > BLIND:
        return (
            f"nobody stands out, but only a slowdown of {found:.3g}x would have been found (spread up to "
            f"{largest}): take more --passes, or a quieter machine"
        )
    would = f"a slowdown of {found:.3g}x would have been found"
    return f"nobody: spread is within noise (largest {largest}, {would})"


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def speakers(measured: Collection[int], places: Places) -> tuple[int, ...]:
    """The ranks between which there could be readings of links.

    All, or the first of each host where of hosts with several ranks no other one was measured.

    Args:
        measured: ranks with any link that was measured.
        places: where ranks live.
    """
    first: dict[int, int] = {}
    for rank, host in enumerate(places.host_of):
        first.setdefault(host, rank)
    one_each = tuple(sorted(first.values()))
    if len(one_each) > 1 and measured and set(measured) <= set(one_each):
        return one_each
    return tuple(range(len(places.host_of)))
