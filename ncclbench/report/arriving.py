"""Who begins last in an ordinary sweep, as far as its samples tell.

A sweep has a fence before every sample. Where all wait for all, the ranks end a sample together, so the rank
with the shortest time began last; no clocks are compared. It came from the fence and not from work: that
tells of a rank that is slow to react, as on a busy core, and nothing of how fast anybody computes. Only
back-to-back mode is read, where one fence is followed by many operations.
"""

from __future__ import annotations

import numpy as np

from ncclbench.attribution.evidence import arrivals_of, places_of
from ncclbench.attribution.model import Arrivals, Evidence, Places
from ncclbench.attribution.supporting import Late, late_ranks
from ncclbench.report.model import Source, good_rows, row_units
from ncclbench.report.text import time_text
from ncclbench.stats.rates import clopper_pearson
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.units import count_text, format_percent

MODE = "back-to-back"
# A host is named where one of its ranks begins last in this share of the samples, as a rank is.
_NEARLY_ALWAYS = 0.75
_ALPHA = 0.05


def last_to_begin(source: Source, arm: str) -> str | None:
    """One rank always, one host, or nobody in particular, with the exact interval against chance.

    None where the run holds no samples that could tell.
    """
    nranks = source.run.plan.nranks
    records = [
        arrivals_of(
            np.concatenate([unit.rank_time_us * unit.k for unit in units], axis=1), row["op"], row["nbytes"]
        )
        for row in good_rows(source.rows)
        if (row["arm"], row["mode"], row["nranks"]) == (arm, MODE, nranks)
        and row["op"] in COLLECTIVES
        and COLLECTIVES[row["op"]].synchronising
        and (units := row_units(source, row))
    ]
    if not records or nranks < 2:
        return None
    places = places_of(source.run.meta.get("environment") or {}, nranks)
    late = late_ranks(Evidence(places, [], arrivals=records), _ALPHA)
    samples = count_text(sum(one.iterations for one in records), "sample")
    always = next((one for one in late if one.always), None)
    if always is not None:
        return f"{_who(always, places)} nearly always, {_often(always, places)}."
    host = _host(records, places)
    if host is not None:
        return host
    if late:
        most = max(late, key=lambda one: one.last)
        return f"{_who(most, places)} more often than chance, but not always, {_often(most, places)}."
    return f"nobody in particular, in {samples} (chance {format_percent(1 / nranks)})."


def _who(late: Late, places: Places) -> str:
    return f"rank {late.rank} ({places.hosts[places.host_of[late.rank]]})"


def _often(late: Late, places: Places) -> str:
    chance = 1 / len(places.host_of)
    return (
        f"{_rate(late.last, late.iterations, chance)}, {time_text(abs(late.lateness_us))} "
        f"{'after' if late.lateness_us >= 0 else 'before'} the middle rank"
    )


def _host(records: list[Arrivals], places: Places) -> str | None:
    """The host whose ranks, now one and now another, begin last nearly always."""
    if len(places.hosts) < 2:
        return None
    last = np.bincount(places.host_of, np.array([one.last for one in records]).sum(axis=0))
    samples = sum(one.iterations for one in records)
    host = int(last.argmax())
    chance = len(places.ranks_on(host)) / len(places.host_of)
    low, _ = clopper_pearson(int(last[host]), samples)
    if last[host] < _NEARLY_ALWAYS * samples or low <= chance:
        return None
    return f"a rank of {places.hosts[host]} nearly always, {_rate(int(last[host]), samples, chance)}."


def _rate(last: int, samples: int, chance: float) -> str:
    low, high = clopper_pearson(last, samples)
    return (
        f"in {last:,} of {samples:,} samples ({100 * last / samples:.0f} %, {100 * low:.0f} to "
        f"{100 * high:.0f} %; chance {format_percent(chance)})"
    )
