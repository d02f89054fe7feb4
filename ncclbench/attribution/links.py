"""Links by class, as readings to be searched and as rows of ``matrix --json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.attribution.elements import Ints, link_order, rank_order
from ncclbench.attribution.fit import fit
from ncclbench.attribution.model import Evidence, LinkSamples, Places, RankSamples, padded
from ncclbench.attribution.noise import p_lasting, scatter_of, usual_scatter
from ncclbench.attribution.search import Elementary, Readings, What
from ncclbench.stats.intervals import Floats, holm, log_mean

# What is slower by less is not named. Healthy links of real fabrics differ by up to 5 %, so that two of them
# may be 10 % apart; half again as slow must be found. At 1.2 both are as far away as noise allows.
MARGIN = 0.2

# The chance of any false name on a healthy cluster. A name takes a host out of service and ends with somebody
# pulling cables, so one cluster in twenty, as for verdicts on times, would be far too many.
FALSE_NAMES = 0.002

CLASSES = ("same host", "same switch", "across")


def class_of(places: Places, src: int, dst: int) -> str:
    """The class of a link between two ranks; without known switches all hosts are across from each other."""
    one, other = places.host_of[src], places.host_of[dst]
    if one == other:
        return CLASSES[0]
    switches = places.switch_of
    return CLASSES[1] if switches is not None and switches[one] == switches[other] else CLASSES[2]


def ends_of(links: Sequence[LinkSamples]) -> tuple[Ints, Ints]:
    """Sources and destinations, each of shape (links,)."""
    return np.array([link.src for link in links], np.intp), np.array([link.dst for link in links], np.intp)


def link_readings(
    what: What, links: Sequence[LinkSamples], rates_GBs: Sequence[Floats], places: Places
) -> Readings:
    """Readings of links from one rate of each, shape (rounds,); all must have been read at least once."""
    src, dst = ends_of(links)
    classes = np.array([CLASSES.index(class_of(places, link.src, link.dst)) for link in links], np.intp)
    return Readings(what, np.log(padded(list(rates_GBs))), classes, partial(_link_elements, src, dst, places))


def _link_elements(src: Ints, dst: Ints, places: Places, used: Ints) -> Elementary:
    host_of = np.array(places.host_of, np.intp)
    src, dst = src[used], dst[used]
    inside = host_of[src] == host_of[dst]
    # Numbers of hosts and of ranks must not meet: they stand in one array, though never in one class.
    ends = tuple(np.where(inside, end, host_of[end]) for end in (src, dst))
    return link_order(src, dst, places), ends


def rank_readings(
    what: What, ranks: Sequence[RankSamples], times: Sequence[Floats], places: Places
) -> Readings:
    """Readings of what ranks do alone from one time of each, any unit, shape (rounds,)."""
    who = np.array([samples.rank for samples in ranks], np.intp)
    elements: Callable[[Ints], Elementary] = lambda used: (  # noqa: E731
        rank_order(who[used], places),
        (who[used],),
    )
    return Readings(what, -np.log(padded(list(times))), np.zeros(len(who), np.intp), elements)


def is_read(samples: Floats | None) -> bool:
    """Whether any round gave a number above zero."""
    return samples is not None and bool((np.isfinite(samples) & (samples > 0)).any())


def link_rows(evidence: Evidence, margin: float = MARGIN, alpha: float = FALSE_NAMES) -> list[dict[str, Any]]:
    """The rows of ``matrix``, one for each ordered pair, in the order measured.

    Keys: ``src``, ``dst`` (ranks), ``class``; ``bandwidth_GBs``, ``both_GBs`` and ``latency_us``, medians of
    rounds (null where not measured); ``ratio_to_class_median`` of the bandwidth with its 95 % t interval over
    rounds ``ratio_ci_low``, ``ratio_ci_high`` (null under two rounds); ``class_level_GBs``, the median of the
    healthy links of the class, which is the class's median but where so many are slow that the median is
    one of them; ``slower``, the factor of time against that level; ``rounds``; ``odd``: ``slower`` lies
    outside [1 / (1 + margin), 1 + margin] by more than chance, corrected for all links together.
    """
    read = [link for link in evidence.links if is_read(link.bandwidth_GBs)]
    judged = _judge(read, evidence.places, margin, alpha) if read else {}
    return [
        {
            "src": link.src,
            "dst": link.dst,
            "class": class_of(evidence.places, link.src, link.dst),
            "latency_us": _median(link.latency_us),
            "both_GBs": _median(link.both_GBs),
            **judged.get((link.src, link.dst), _UNREAD),
        }
        for link in evidence.links
    ]


_UNREAD: dict[str, Any] = dict.fromkeys(
    (
        "bandwidth_GBs",
        "ratio_to_class_median",
        "ratio_ci_low",
        "ratio_ci_high",
        "class_level_GBs",
        "slower",
    )
) | {"rounds": 0, "odd": False}


def _judge(
    links: list[LinkSamples], places: Places, margin: float, alpha: float
) -> dict[tuple[int, int], dict[str, Any]]:
    """What a row says of its bandwidth, by (src, dst)."""
    readings = link_readings("bandwidth", links, [link.bandwidth_GBs for link in links], places)
    values = np.nanmedian(readings.logs, axis=1)
    order, ends = readings.elements_of(np.arange(len(links)))
    found = fit(values, readings.classes, order, ends, math.log1p(margin))
    odd = _are_odd(readings, found.level, found.expected, margin, alpha)
    medians = {
        each: float(np.median(values[readings.classes == each])) for each in set(readings.classes.tolist())
    }
    rows = {}
    for at, link in enumerate(links):
        rounds = readings.logs[at][np.isfinite(readings.logs[at])]
        centre = medians[int(readings.classes[at])]
        mean = log_mean(np.exp(rounds))
        half = None if mean is None else mean.half_width()
        ratio = math.exp(values[at] - centre)
        rows[link.src, link.dst] = {
            "bandwidth_GBs": math.exp(values[at]),
            "ratio_to_class_median": ratio,
            "ratio_ci_low": None if half is None else ratio * math.exp(-half),
            "ratio_ci_high": None if half is None else ratio * math.exp(half),
            "class_level_GBs": math.exp(found.level[at]),
            "slower": math.exp(found.level[at] - values[at]),
            "rounds": int(rounds.size),
            "odd": bool(odd[at]),
        }
    return rows


def _are_odd(
    readings: Readings, level: Floats, expected: Floats, margin: float, alpha: float
) -> NDArray[np.bool_]:
    """Which links differ from the level of their class, either way, shape (links,).

    ``expected`` is what slow hosts and ranks leave of the level: about it healthy links are scattered.
    """
    usual = np.nanmedian(readings.logs, axis=1)
    apart = level - usual
    left = expected - usual
    far = np.abs(left) >= math.log1p(margin)
    suspected = [(abs(one), np.array([one])) for one in left[far].tolist()]
    scatter = scatter_of(left[~far], suspected, len(level), usual_scatter(readings.logs))
    wobbles = np.abs(usual[:, np.newaxis] - readings.logs)
    p_values = np.ones(len(level))
    for at in np.flatnonzero(np.abs(apart) >= math.log1p(margin)):
        size = abs(float(apart[at]))
        by_round = (level[at] - readings.logs[at]) * np.sign(apart[at])
        read = int(np.isfinite(by_round).sum())
        others = int((wobbles >= size / 2).sum() - (wobbles[at] >= size / 2).sum())
        rounds = int(np.isfinite(wobbles).sum()) - read
        lasting = p_lasting(int((by_round >= size / 2).sum()), read, others, rounds)
        p_values[at] = max(2 * scatter.p_beyond(size), lasting)
    odd: NDArray[np.bool_] = np.array(holm(p_values.tolist())) <= alpha
    return odd


def _median(samples: Floats | None) -> float | None:
    if samples is None or not is_read(samples):
        return None
    return float(np.median(samples[np.isfinite(samples) & (samples > 0)]))
