"""Who is slow: the answer from everything that was measured.

A name is a claim, so the chance that a healthy cluster has any of its ranks, hosts or links named is held at
``alpha``, however many there are: p values of all that could be named, in all kinds of measurement and at all
looks, are corrected together by Holm's method. What is slow by less than ``margin`` is never named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ncclbench.attribution.choose import choose, join_islands, not_between
from ncclbench.attribution.links import FALSE_NAMES, MARGIN, is_read, link_readings, rank_readings
from ncclbench.attribution.model import Attribution, Evidence, RankSamples, Suspect, Verdict
from ncclbench.attribution.search import Readings, Search, What, search
from ncclbench.attribution.supporting import Late, largest_healthy_group, late_ranks
from ncclbench.attribution.suspects import (
    Cases,
    Target,
    drain_hosts,
    gather,
    slowest_first,
    suspect_of,
    target_of,
)
from ncclbench.attribution.words import (
    cannot_be_told,
    doubt,
    name_of,
    nobody,
    sentence,
    speakers,
    would_find,
)
from ncclbench.stats.intervals import Floats

# Times of what ranks do alone; of copies the time of a byte.
_ALONE: tuple[tuple[What, Callable[[RankSamples], Floats | None]], ...] = (
    ("compute", lambda samples: samples.compute_us),
    ("copies to the device", lambda samples: None if samples.h2d_GBs is None else 1 / samples.h2d_GBs),
    ("copies from the device", lambda samples: None if samples.d2h_GBs is None else 1 / samples.d2h_GBs),
)


def attribute(evidence: Evidence, margin: float = MARGIN, alpha: float = FALSE_NAMES) -> Attribution:
    """Name who is slow, or say that nobody is, or that it cannot be told.

    Args:
        evidence: what was measured; pairs and rounds may be missing.
        margin: as a fraction: 0.2 names nothing that is less than 1.2 times slower.
        alpha: the chance of any false name on a healthy cluster.
    """
    readings = _all_readings(evidence)
    searches = [search(one, math.log1p(margin)) for one in readings]
    chosen = choose(searches, alpha)
    named = {one.what: each.named for one, each in zip(readings, chosen, strict=True)}
    first, apart = join_islands(named.pop("bandwidth", []))
    second = not_between(apart, named.pop("both ways", []))
    cases = gather([*first, *(one for each in named.values() for one in each)], second, evidence.places)
    doubts = [one for each in chosen for one in each.unclear]
    doubts.sort(key=lambda one: -one[0].ratio()[0])
    late = late_ranks(evidence, alpha)
    for one in late:
        _support(cases, one)
    known = cases.touched(list(cases.by_target))
    # Of several looks at one thing in one measure the strongest says enough.
    strongest: dict[str, str] = {}
    for finding, reason in doubts:
        if not cases.touched([target_of(finding)]) & known:
            strongest.setdefault(*doubt(finding, reason, evidence.places))
    words = [f"{whose}: {said}" for whose, said in strongest.items()]
    suspects = [suspect_of(target, case, cases, apart) for target, case in cases.by_target.items()]
    for one in late:
        if one.always and one.rank not in known:
            alone = _late_alone(one, evidence)
            suspects += [alone] if alone is not None and alone.ratio >= 1 + margin else []
            words[:0] = [_late_without_time(one, evidence)] if alone is None else []
    return _answer(slowest_first(suspects), tuple(dict.fromkeys(words)), evidence, searches, margin, alpha)


def _all_readings(evidence: Evidence) -> list[Readings]:
    places = evidence.places
    found = []
    one_way = [link for link in evidence.links if is_read(link.bandwidth_GBs)]
    if one_way:
        found.append(link_readings("bandwidth", one_way, [link.bandwidth_GBs for link in one_way], places))
    both = [(link, link.both_GBs) for link in one_way if link.both_GBs is not None and is_read(link.both_GBs)]
    if both:
        found.append(link_readings("both ways", [one for one, _ in both], [rate for _, rate in both], places))
    for what, times_of in _ALONE:
        read = [(samples, times) for samples in evidence.ranks if (times := times_of(samples)) is not None]
        read = [(samples, times) for samples, times in read if is_read(times)]
        if len(read) > 1:
            found.append(rank_readings(what, [one for one, _ in read], [times for _, times in read], places))
    return found


def _support(cases: Cases, late: Late) -> None:
    """Add to a rank's case, or its host's, that it also comes late."""
    host = cases.places.host_of[late.rank]
    targets: tuple[Target, ...] = (("rank", "rank", (late.rank,)), ("host", "host", (host,)))
    for target in targets:
        if target in cases.by_target:
            said = _arrives(late)
            cases.by_target[target].more.append(said if target[0] == "rank" else f"rank {late.rank} {said}")
            return


def _arrives(late: Late) -> str:
    low, high = late.interval
    return f"arrives last in {late.last} of {late.iterations} iterations ({low:.0%} to {high:.0%})"


def _late_alone(late: Late, evidence: Evidence) -> Suspect | None:
    """A rank that nothing but its arrivals tells of; None where no time of work says how much that is.

    Its iterations take as much longer as it comes late, whatever it does then that the probes do not: read
    data, collect garbage, share its core.
    """
    works_us = [float(np.nanmedian(one.compute_us)) for one in evidence.ranks if is_read(one.compute_us)]
    if not works_us:
        return None
    ratio = 1 + late.lateness_us / float(np.median(works_us))
    host = evidence.places.hosts[evidence.places.host_of[late.rank]]
    said = (
        f"{_arrives(late)}, by {late.lateness_us:.0f} us, though its probe and its links are like the others'"
    )
    return Suspect("rank", (late.rank,), (host,), "both", ratio, None, None, said)


def _late_without_time(late: Late, evidence: Evidence) -> str:
    host = evidence.places.hosts[evidence.places.host_of[late.rank]]
    return f"rank {late.rank} ({host}) {_arrives(late)}, and no probe tells why"


def _answer(
    suspects: tuple[Suspect, ...],
    unclear: tuple[str, ...],
    evidence: Evidence,
    searches: Sequence[Search],
    margin: float,
    alpha: float,
) -> Attribution:
    verdict: Verdict
    found = would_find(searches, alpha, margin)
    if suspects:
        verdict = suspects[0].kind if len(suspects) == 1 else "several"
        rest = cannot_be_told(unclear) if unclear else "everything else healthy"
        message = "; ".join([*map(sentence, suspects), *_healthy_group(evidence, suspects, margin), rest])
    elif unclear:
        verdict, message = "unclear", cannot_be_told(unclear)
    elif not searches:
        verdict, message = "unclear", "cannot be told: nothing was measured of links or ranks"
    else:
        verdict, message = "none", nobody(searches, found)
    looked_at, not_looked_at = _looks(evidence)
    return Attribution(
        verdict, suspects, drain_hosts(suspects), message, unclear, looked_at, not_looked_at, found
    )


def _healthy_group(evidence: Evidence, suspects: Sequence[Suspect], margin: float) -> list[str]:
    """What group tests add where the healthy ones leave the suspects out."""
    found = largest_healthy_group(evidence, margin)
    if found is None:
        return []
    group, of = found
    out = [name_of(one) for one in suspects if not set(one.ranks) <= set(group.ranks)]
    if len(out) < len(suspects):
        return []
    return [f"{group.op} runs at full speed on {len(group.ranks)} ranks without it, and not on {of} with it"]


def _looks(evidence: Evidence) -> tuple[str, str]:
    """What was looked at, and what was not, in words."""
    places = evidence.places
    read = [link for link in evidence.links if is_read(link.bandwidth_GBs)]
    ranks = {rank for link in read for rank in (link.src, link.dst)}
    among = speakers(ranks, places)
    # Where one rank speaks for each host, the pairs that there are are those of hosts.
    by_host = len(among) < len(places.host_of)
    count = len(among)
    measured, possible = len({(link.src, link.dst) for link in read}), count * (count - 1)
    rounds = max((link.bandwidth_GBs.size for link in read), default=0)
    whose = f"{count} {'hosts' if by_host else 'ranks'}"
    in_rounds = f"{rounds} round{'s' * (rounds != 1)}"
    looked = [f"{measured} of {possible} ordered pairs of {whose}, {in_rounds}"] if measured else []
    if evidence.ranks:
        looked.append(f"what {len(evidence.ranks)} ranks do alone")
    if evidence.arrivals:
        looked.append(f"arrivals in {sum(one.iterations for one in evidence.arrivals)} iterations")
    missed = []
    if measured < possible:
        left = [places.hosts[places.host_of[rank]] if by_host else f"rank {rank}" for rank in among]
        left = [name for rank, name in zip(among, left, strict=True) if rank not in ranks]
        all_of = f", all of {_listed(left)} among them" if measured and left else ""
        missed.append(
            f"{possible - measured} of {possible} ordered pairs{all_of}: a slow link among these is not seen"
        )
    if by_host:
        missed.append(
            f"links of {len(places.host_of) - count} of {len(places.host_of)} ranks: one spoke for each host"
        )
    hosts = sorted({places.host_of[rank] for rank in ranks})
    if len(hosts) == 2:
        missed.append(
            f"whether all that goes between {' and '.join(places.hosts[host] for host in hosts)} is slow: "
            "there is nothing to compare it with"
        )
    return "; ".join(looked), "; ".join(missed)


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
