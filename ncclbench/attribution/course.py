"""The course of a whole search: ranks alone, pairs, all in a free-running loop, then groups that grow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ncclbench.attribution.model import Attribution, Places
from ncclbench.attribution.stages import (
    Array,
    Keep,
    Orders,
    Size,
    compute_passes,
    compute_turns,
    free_running,
    pair_passes,
    subsets,
)
from ncclbench.plan.pairs import PairPlan
from ncclbench.store.probes import Probe, SubsetTest

# A group is healthy as long as its bus bandwidth is not below this part of that of the pair it began with.
HEALTHY_PART = 0.8


@dataclass(frozen=True, slots=True)
class Search:
    """What a search for suspects does.

    Attributes:
        plan: the pairs, and how often.
        more_passes: passes that are added where somebody is named or it is unclear: what disturbed a few
            passes does not last, and a name must.
        size: how much is sent and computed.
        on_gpus: ranks have a GPU each.
        until_s: of time.monotonic(): when the pairs should be done.
    """

    plan: PairPlan
    more_passes: int
    size: Size
    on_gpus: bool
    until_s: float | None = None


@dataclass(slots=True)
class Notebook:
    """Keeps tests on disk and at hand."""

    keep: Keep
    probes: list[Probe] = field(default_factory=list)

    def __call__(self, tests: Sequence[Probe]) -> None:
        self.keep(tests)
        self.probes += tests


def search_course(
    search: Search, places: Places, keep: Keep, judge: Callable[[Sequence[Probe]], Attribution]
) -> Orders:
    """All stages; what to do next depends on what was found up to then.

    Args:
        judge: what may be said from the tests up to now.
    """
    notes = Notebook(keep)
    turns = compute_turns(places.host_of, search.on_gpus)
    for turn in range(search.plan.passes + search.more_passes):
        if turn == search.plan.passes and judge(notes.probes).verdict == "none":
            break
        # In turns: what disturbs a core for a second then falls on one pass and not on all of a rank.
        computes = search.size.computes
        yield from compute_passes(turns, search.size, notes, computes * turn, computes)
        yield from pair_passes(search.plan, search.size, notes, turn, 1, search.until_s)
    yield from free_running(search.size, notes)
    suspected = {host for suspect in judge(notes.probes).suspects for host in suspect.hosts}
    healthy = yield from growing_groups(places, suspected, search.size, notes)
    everybody = list(range(len(places.host_of)))
    # What flows between all pairs at once, and beside it what does where nobody slow takes part.
    groups = [everybody, *([healthy] if 1 < len(healthy) < len(everybody) else [])]
    if len(everybody) > 1:
        yield from subsets("all_to_all", groups, search.size, notes, 0)


def growing_groups(
    places: Places, suspected: set[str], size: Size, notes: Notebook
) -> Generator[dict[str, Any], Array, list[int]]:
    """all_reduce on a group that takes in ever more units as long as it stays as fast; the others are split.

    A unit is a host, or a rank where there is one host only. Those that are suspected come last, so that the
    group grows large before it meets them.

    Returns:
        the ranks of the group that it ends with; none where there is one unit only.
    """
    units = _units(places, suspected)
    if len(units) < 2:
        return []
    group, waiting = units[:2], [units[2:]]
    too_slow: list[list[int]] = []
    base = yield from _speed(_ranks(group), size, notes)
    while waiting:
        chunk = waiting.pop(0)
        if not chunk:
            continue
        # No more at a time than there are in the group: what one bad unit does to it stays to be seen.
        if len(chunk) > len(group):
            waiting.insert(0, chunk[len(group) :])
            chunk = chunk[: len(group)]
        tried = _ranks([*group, *chunk])
        # The last of what was too slow together, when all the rest of it has joined, is that again.
        speed = 0.0 if tried in too_slow else (yield from _speed(tried, size, notes))
        if speed >= HEALTHY_PART * base:
            group = [*group, *chunk]
            continue
        too_slow.append(tried)
        if len(chunk) > 1:
            half = len(chunk) // 2
            waiting[:0] = [chunk[:half], chunk[half:]]
    return _ranks(group)


def _units(places: Places, suspected: set[str]) -> list[tuple[int, ...]]:
    if len(places.hosts) == 1:
        return [(rank,) for rank in range(len(places.host_of))]
    order = sorted(range(len(places.hosts)), key=lambda host: (places.hosts[host] in suspected, host))
    return [places.ranks_on(host) for host in order]


def _speed(ranks: Sequence[int], size: Size, notes: Notebook) -> Generator[dict[str, Any], Array, float]:
    yield from subsets("all_reduce", [ranks], size, notes, 0)
    test = notes.probes[-1]
    assert isinstance(test, SubsetTest)
    return _busbw(test)


def _ranks(units: Sequence[Sequence[int]]) -> list[int]:
    return sorted(rank for unit in units for rank in unit)


def _busbw(test: SubsetTest) -> float:
    """Bytes per microsecond, times 2(n-1)/n."""
    members = len(test.ranks)
    return 2 * (members - 1) / members * test.nbytes / float(np.median(test.times_us))
