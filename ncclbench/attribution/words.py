"""Sentences on who is slow: evidence of a suspect, and the one line that answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ncclbench.attribution.model import Places, Suspect
from ncclbench.attribution.search import Finding, Search

_COPIES = {"copies to the device": "host-to-device", "copies from the device": "device-to-host"}
_SAID_BESIDE = 1.2


def evidence_of(finding: Finding, apart: tuple[tuple[int, ...], ...]) -> str:
    """What one finding shows, without naming whom."""
    ratio = finding.ratio()[0]
    if finding.what == "compute":
        said = f"computes {ratio:.1f}x slower"
        if finding.elements.level == "host":
            said = f"all {len(finding.members)} ranks compute {ratio:.1f}x slower"
    elif finding.what in _COPIES:
        said = f"{_COPIES[finding.what]} copies at {_percent(ratio)} of the median"
    elif finding.elements.is_pair:
        said = f"{_percent(ratio)} of the median{_beside(finding)}{_between(apart)}"
    else:
        said = f"{_which(finding)} are at {_percent(ratio)} of the median ({_count(finding)})"
    both = ", both directions at once" if finding.what == "both ways" else ""
    return said + both + _when(finding)


def _percent(ratio: float) -> str:
    return f"{100 / ratio:.0f} %"


def _which(finding: Finding) -> str:
    ways = {"out": " sending", "in": " receiving"}.get(finding.elements.direction, "")
    if finding.elements.where == "inside":
        return f"all its links inside its host{ways}"
    if finding.elements.level == "switch":
        return f"all links to other switches{ways}"
    if finding.elements.level == "rank":
        return f"all its links to other hosts{ways}"
    return f"all its links{ways}"


def _count(finding: Finding) -> str:
    """How many of its partners show it: 11 of 11 pairs."""
    return f"{finding.partners[0]} of {finding.partners[1]} pairs"


def _beside(finding: Finding) -> str:
    """Of a link with a slow end: how much slower than that it is."""
    start = finding.onset
    beyond = math.exp(float(np.nanmedian(finding.beyond[start:])))
    if finding.ratio()[0] < _SAID_BESIDE * beyond:
        return ""
    return f", {beyond:.1f}x slower than what its slow end lets through"


def _between(apart: tuple[tuple[int, ...], ...]) -> str:
    if not apart:
        return ""
    return (
        f" between all of these {len(apart[0])} and {len(apart[1])} hosts, which are healthy among themselves"
    )


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
    ratio = finding.ratio()[0]
    return f"{_whose(finding, places)} {'reads' if finding.elements.is_pair else 'read'} {ratio:.1f}x slower: {reason}"


def _whose(finding: Finding, places: Places) -> str:
    host = finding.elements.level == "host"
    names = [places.hosts[one] if host else f"rank {one}" for one in finding.label]
    if finding.elements.where == "alone":
        return f"the work of {names[0]}"
    if finding.elements.is_pair:
        return f"the link of {names[0]} and {names[1]}"
    way = {"out": "from", "in": "to"}.get(finding.elements.direction, "of")
    partners = sorted(set(finding.elements.partners(finding.index).tolist()))
    others = [places.hosts[one] if host else f"rank {one}" for one in partners]
    if len(others) == 1:
        return f"{names[0]}, {others[0]} or the link {way} {names[0]}"
    return f"the links {way} {names[0]}"


def nobody(searches: Sequence[Search], alpha: float, margin: float) -> str:
    """That nothing stands out, with the spread and what would have been found."""
    if not searches:
        return "nobody: nothing was measured of links or ranks"
    largest = math.exp(max(0.0, *(search.largest for search in searches)))
    family = sum(search.family[True] or search.family[False] for search in searches)
    needed = max(
        scatter.slowness_at(alpha / family / 4) for search in searches for scatter in search.scatters
    )
    # Up to twentieths, and where healthy ones differ so much that it hardly matters, a thousandfold.
    found = math.ceil(20 * max(1 + margin, math.exp(min(needed, math.log(1000))))) / 20
    return f"nobody: spread is within noise (largest {largest:.2f}x, a slowdown of {found:.3g}x would have been found)"
