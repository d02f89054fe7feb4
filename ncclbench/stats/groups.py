"""What each group of a topology took, and whether one is slower than the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.model import Case
from ncclbench.stats.intervals import ALPHA, FEWEST_EPOCHS, Floats, Margin, log_mean
from ncclbench.store.model import Unit
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.topologies import Groups
from ncclbench.units import rank_ranges

# Of more groups the slowest are told: a table of thousands answers no question.
MOST_GROUPS = 64


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """One group in a case on an arm.

    Attributes:
        ranks: global ranks in group order.
        median_us: of its slowest rank per operation, median over epochs of the epoch's median.
        busbw_GBs: with that; None where the operation moves no data.
        ratio: of its time to the median of the other groups' in the same epoch, geometric mean over epochs;
            None where it is the only group or a clock was too coarse.
        low, high: 95 % interval of the ratio, simultaneously for all groups; None under two epochs.
        slow: it is slower than the others by more than the margin, beyond chance.
        wrong: wrong elements in the results of its ranks; None where none were checked.
    """

    ranks: tuple[int, ...]
    median_us: float
    busbw_GBs: float | None
    ratio: float | None
    low: float | None
    high: float | None
    slow: bool
    wrong: int | None

    def to_json(self) -> dict[str, Any]:
        """As in ``rows``."""
        return {
            "ranks": list(self.ranks),
            "median_us": self.median_us,
            "busbw_GBs": self.busbw_GBs,
            "ratio": self.ratio,
            "ci_low": self.low,
            "ci_high": self.high,
            "slow": self.slow,
            "wrong": self.wrong,
        }


def members_of(groups: Groups) -> NDArray[np.int64] | None:
    """The ranks that are in any group, ascending; None for all, as in the world."""
    return np.unique(np.array(groups, dtype=np.int64)) if groups else None


def group_times(case: Case, units: Sequence[Unit], groups: Groups, margin: Margin) -> list[GroupTimes]:
    """Every group of the case's topology, the slowest first.

    Args:
        units: its epochs.
        groups: of the topology, all of one size.
        margin: what a difference must exceed to be called slow.
    """
    if not units or not groups:
        return []
    places = np.array(groups, dtype=np.int64)
    # Shape (epochs, groups).
    epochs = np.stack([np.median(unit.rank_time_us[places].max(axis=1), axis=1) for unit in units])
    medians: Floats = np.median(epochs, axis=0)
    ratios = _ratios(epochs) if len(groups) > 1 else None
    # One in twenty intervals would miss by chance; of many groups the worst is looked at.
    confidence = 1 - ALPHA / len(groups)
    wrongs = np.array([unit.wrong for unit in units if unit.wrong is not None], dtype=np.int64)
    wrong = wrongs.sum(axis=0)[places].sum(axis=1) if wrongs.size else None
    has_data = COLLECTIVES[case.op].has_data
    found = []
    for number in np.argsort(-medians, kind="stable"):
        median_us = float(medians[number])
        mean = log_mean(ratios[:, number]) if ratios is not None else None
        low, high = mean.interval(confidence) if mean is not None else (None, None)
        busbw = case.nbytes / median_us / 1e3 * case.busbw_factor if has_data and median_us > 0 else None
        slow = low is not None and len(units) >= FEWEST_EPOCHS and low > 1 + margin.of(median_us)
        ratio = None if mean is None else mean.estimate
        own_wrong = None if wrong is None else int(wrong[number])
        found.append(GroupTimes(groups[number], median_us, busbw, ratio, low, high, slow, own_wrong))
    return found


def groups_keys(found: Sequence[GroupTimes]) -> dict[str, Any]:
    """What a row tells of its groups: how many, the slowest, and how far apart they are."""
    if not found:
        return {"ngroups": 1, "groups": None, "groups_spread": None, "slow_groups": None}
    fastest_us = found[-1].median_us
    # Whoever had wrong data is told in any case.
    told = sorted(range(len(found)), key=lambda place: not found[place].wrong)[:MOST_GROUPS]
    return {
        "ngroups": len(found),
        "groups": [found[place].to_json() for place in sorted(told)],
        "groups_spread": found[0].median_us / fastest_us if fastest_us > 0 else None,
        "slow_groups": sum(group.slow for group in found),
    }


def wrong_where(row: Mapping[str, Any]) -> str:
    """In which groups of a row data were wrong: "in the group of ranks 2-3 of pairs"; empty if in none."""
    bad = [group for group in row.get("groups") or () if group["wrong"]]
    if not bad:
        return ""
    worst = max(bad, key=lambda group: group["wrong"])
    more = f", and in {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"in the group of {rank_ranges(worst['ranks'])} of {row['topology']}{more}"


def _ratios(epochs: Floats) -> Floats:
    """Each group's time over the median of the others', shape as given; 0 where there is no such number."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios: Floats = epochs / _median_of_others(epochs)
    return np.where(np.isfinite(ratios), ratios, 0.0)


def _median_of_others(epochs: Floats) -> Floats:
    """For each group the median of the other groups, shape as given: (epochs, groups).

    Taking one value out of a sorted row moves its median by at most one place, so one sort serves all.
    """
    count = epochs.shape[1]
    order = np.argsort(epochs, axis=1, kind="stable")
    ordered = np.take_along_axis(epochs, order, axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count)[np.newaxis, :], axis=1)
    rest = count - 1
    low, high = (rest - 1) // 2, rest // 2
    rows = np.arange(len(epochs))[:, np.newaxis]
    below = ordered[rows, low + (place <= low)]
    above = ordered[rows, high + (place <= high)]
    others: Floats = (below + above) / 2
    return others
