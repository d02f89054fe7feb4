"""Groups that ran at once: which one is slow, which one had wrong data, and what of it a row tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from report_fixtures import make_case

from ncclbench.plan.model import Arm
from ncclbench.stats.groups import MOST_GROUPS, group_times, groups_keys, wrong_where
from ncclbench.stats.intervals import Margin
from ncclbench.stats.summary import summary_row
from ncclbench.store.model import Unit
from ncclbench.tables.topologies import Groups

PAIRS: Groups = tuple((rank, rank + 1) for rank in range(0, 8, 2))
MARGIN = Margin(0.05, 0.5)
CASE = make_case("all_reduce", 4096, "isolated", nranks=2)


def units(
    seed: int, factors: dict[int, float] | None = None, wrong: Sequence[int] | None = None, nranks: int = 8
) -> list[Unit]:
    """Eight epochs of 20 samples of 100 us with the noise of a quiet machine, some ranks slower."""
    generator = np.random.default_rng(seed)
    found = []
    for epoch in range(8):
        level = np.exp(generator.normal(0, 0.03))
        times = 100 * level * np.exp(generator.normal(0, 0.05, (nranks, 20)))
        for rank, factor in (factors or {}).items():
            times[rank] *= factor
        nothing = np.zeros_like(times)
        told = None if wrong is None else tuple(wrong)
        found.append(Unit(CASE.key, "gloo", epoch, 1, 1, nothing, nothing, None, times, (20,), (0,), told))
    return found


def row_of(measured: list[Unit], groups: Groups) -> dict[str, Any]:
    arm = Arm("gloo", "gloo")
    return summary_row(CASE, arm, measured, implementation=None, statistic="p25", groups=groups)


@pytest.mark.parametrize("rank", range(8))
def test_the_group_of_a_slow_rank_is_called_slow_and_no_other(rank: int) -> None:
    found = group_times(CASE, units(rank, {rank: 1.3}), PAIRS, MARGIN)
    assert [group.ranks for group in found if group.slow] == [PAIRS[rank // 2]]
    assert found[0].slow
    assert found[0].ratio == pytest.approx(1.3, rel=0.05)


def test_none_is_called_slow_where_none_is() -> None:
    called = [
        any(group.slow for group in group_times(CASE, units(seed), PAIRS, MARGIN)) for seed in range(200)
    ]
    assert sum(called) <= 2


def test_all_groups_slow_is_no_slow_group() -> None:
    found = group_times(CASE, units(1, dict.fromkeys(range(8), 3.0)), PAIRS, MARGIN)
    assert not any(group.slow for group in found)


def test_of_few_epochs_none_is_called_slow() -> None:
    found = group_times(CASE, units(1, {3: 2.0})[:5], PAIRS, MARGIN)
    assert not any(group.slow for group in found)


@pytest.mark.parametrize(("time_us", "slow"), [(0.0, []), (1e-300, []), (1e15, [(2, 3)])])
def test_times_beyond_all_clocks(time_us: float, slow: Sequence[tuple[int, ...]]) -> None:
    measured = units(1)
    for unit in measured:
        unit.total_us[2:4] = time_us
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        found = group_times(CASE, measured, PAIRS, MARGIN)
    assert [group.ranks for group in found if group.slow] == slow
    assert all(group.ratio is None or np.isfinite(group.ratio) for group in found)


@pytest.mark.parametrize("time_us", [0.0, 1e-300])
def test_a_group_among_others_that_took_no_time(time_us: float) -> None:
    measured = units(1)
    for unit in measured:
        unit.total_us[2:] = time_us
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        found = group_times(CASE, measured, PAIRS, MARGIN)
    json.dumps([group.to_json() for group in found], allow_nan=False)


def test_wrong_elements_are_of_the_group_whose_ranks_had_them() -> None:
    found = group_times(CASE, units(1, wrong=(0, 0, 0, 3, 0, 0, 0, 0)), PAIRS, MARGIN)
    assert {group.ranks: group.wrong for group in found} == {(0, 1): 0, (2, 3): 24, (4, 5): 0, (6, 7): 0}
    row = row_of(units(1, wrong=(0, 0, 0, 3, 1, 0, 0, 0)), PAIRS)
    assert (row["wrong"], row["status"]) == (32, "wrong")
    assert row["reason"] == "32 wrong elements in the group of ranks 2-3 of world, and in 1 more"


def test_where_nothing_was_checked_nothing_is_said_of_it() -> None:
    assert {group.wrong for group in group_times(CASE, units(1), PAIRS, MARGIN)} == {None}
    assert wrong_where(row_of(units(1), PAIRS)) == ""


def test_of_very_many_groups_those_with_wrong_data_are_told_in_any_case() -> None:
    groups: Groups = tuple((rank, rank + 1) for rank in range(0, 400, 2))
    wrong = [0] * 400
    wrong[250] = 5
    measured = units(1, {250: 0.1, 251: 0.1}, wrong, nranks=400)
    keys = groups_keys(group_times(CASE, measured, groups, MARGIN))
    assert len(keys["groups"]) == MOST_GROUPS
    assert [group["wrong"] for group in keys["groups"]] == [0] * (MOST_GROUPS - 1) + [40]
    assert wrong_where({**keys, "topology": "pairs"}) == "in the group of ranks 250-251 of pairs"
