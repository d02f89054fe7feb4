"""Sentences on who is slow: evidence of a suspect, and the one line that answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ncclbench.attribution.elements import SORTS
from ncclbench.attribution.model import BLIND, Kind, Places, Suspect
from ncclbench.attribution.search import Finding, Search

_COPIES = {"copies to the device": "host-to-device", "copies from the device": "device-to-host"}
_SAID_BESIDE = 1.2

Islands = tuple[tuple[int, ...], ...]


def evidence_of(finding: Finding, of: Kind, apart: Islands, places: Places) -> str:
    """What one finding shows of a suspect of a kind, without naming whom; ``apart`` are islands of hosts."""
    ratio = finding.ratio()[0]
    at = f"at {_percent(ratio)} of the median"
    if finding.what == "compute":
        said = f"computes {ratio:.1f}x slower"
        if finding.elements.level == "host":
            said = f"all its {len(finding.members)} ranks compute {ratio:.1f}x slower"
    elif finding.what in _COPIES:
        said = f"{_COPIES[finding.what]} copies are {at}"
    elif finding.elements.is_pair and of != "link":
        said = f"its only link inside its host is {at}"
    elif finding.elements.is_pair:
        said = f"{_percent(ratio)} of the median{_between(apart, places) or _beside(finding)}"
    else:
        said = f"{_which(finding, places)} are {at} ({finding.partners[0]} of {finding.partners[1]} pairs)"
    both = ", both directions at once" if finding.what == "both ways" else ""
    return said + both + _when(finding)


def _percent(ratio: float) -> str:
    return f"{100 / ratio:.0f} %"


def _which(finding: Finding, places: Places) -> str:
    some, of = finding.partners
    ways = {"out": " sending", "in": " receiving"}.get(finding.elements.direction, "")
    if finding.elements.level == "switch":
        return f"links through the uplink of {_called(finding, finding.label[0], places)}{ways}"
    # Links to what is slower still do not show it.
    said = f"{'all ' if some == of else ''}its links"
    if finding.elements.where == "inside":
        return f"{said} inside its host{ways}"
    return f"{said}{' to other hosts' if finding.elements.level == 'rank' else ''}{ways}"


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


def doubt(finding: Finding, reason: str, places: Places) -> str:
    """What is slow and cannot be told apart."""
    return f"{_whose(finding, places)}: {finding.ratio()[0]:.1f}x slower, but {reason}"


def _whose(finding: Finding, places: Places) -> str:
    names = [_called(finding, one, places) for one in finding.label]
    if finding.elements.where == "alone":
        return f"the work of {names[0]}"
    if finding.elements.is_pair:
        return f"the link of {names[0]} and {names[1]}"
    way = {"out": "from", "in": "to"}.get(finding.elements.direction, "of")
    partners = sorted(set(finding.elements.partners(finding.index).tolist()))
    if len(partners) == 1:
        return f"{names[0]}, {_called(finding, partners[0], places)} or the link {way} {names[0]}"
    return f"the links {way} {names[0]}"


def _called(finding: Finding, index: int, places: Places) -> str:
    if finding.elements.level == "host":
        return places.hosts[index]
    if finding.elements.level == "rank":
        return f"rank {index}"
    return f"switch {places.switches[index]}"


def would_find(searches: Sequence[Search], alpha: float, margin: float) -> float:
    """The slowdown that would have been found in any rank, host or link, as a factor of time."""
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
        return "nobody: nothing was measured of links or ranks"
    largest = math.exp(max(0.0, *(search.largest for search in searches)))
    if found > BLIND:
        return (
            f"nobody stands out, but only a slowdown of {found:.3g}x would have been found (spread up to "
            f"{largest:.2f}x): take more --passes, or a quieter machine"
        )
    would = f"a slowdown of {found:.3g}x would have been found"
    return f"nobody: spread is within noise (largest {largest:.2f}x, {would})"
