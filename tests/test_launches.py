"""Runs against runs: the launch is the unit, unlike things are never paired, few launches claim nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launching import AFTER, BEFORE, compared, launch, launches, only_row, with_plan
from scipy import stats

from ncclbench.compare.between import Hosts, unit_of
from ncclbench.compare.launches import compare_sides
from ncclbench.compare.overview import by_collective, flat, typical_ratio
from ncclbench.compare.sides import Side
from ncclbench.plan.model import Injection
from ncclbench.stats.intervals import Margin
from ncclbench.store.model import Run

# The unit.


def test_each_launch_counts_once_by_welchs_test() -> None:
    base, new = launches(BEFORE), launches(AFTER, 50)
    row = only_row(compared(base, new))

    def logs(runs: list[Run]) -> list[float]:
        (key,) = base[0].units
        return [
            float(np.mean([math.log(np.quantile(unit.time_us, 0.25)) for unit in run.units[key]]))
            for run in runs
        ]

    test = stats.ttest_ind(logs(new), logs(base), equal_var=False)
    interval = test.confidence_interval(0.95)
    assert math.log(row["ratio"]) == pytest.approx(np.mean(logs(new)) - np.mean(logs(base)))
    assert [math.log(row["ci_low"]), math.log(row["ci_high"])] == pytest.approx([interval.low, interval.high])
    assert row["p"] == pytest.approx(test.pvalue)
    assert (row["verdict"], row["unit"], row["base_launches"], row["new_launches"]) == (
        "slower",
        "launches",
        5,
        4,
    )
    assert (row["base"], row["new"], row["epochs"]) == ("old", "young", 6)
    assert row["beyond_margin"]


def test_swapped_sides_turn_everything_round() -> None:
    base, new = launches(BEFORE), launches(AFTER, 50)
    there, back = only_row(compared(base, new)), only_row(compared(new, base))
    assert there["ratio"] == pytest.approx(1 / back["ratio"])
    assert there["ci_low"] == pytest.approx(1 / back["ci_high"])
    assert (there["verdict"], back["verdict"]) == ("slower", "faster")
    assert there["p"] == pytest.approx(back["p"])


def test_many_epochs_of_few_launches_are_few_facts() -> None:
    """Epochs alone would call these launches of equal things different with any number of zeros in p."""
    settings = {"epochs": 30, "iters": 300}
    row = only_row(compared(launches((1.0, 1.02), **settings), launches((1.06, 1.05), 50, **settings)))
    assert row["verdict"] == "unclear"
    assert "2 against 2 launches" in row["note"]
    assert row["ci_low"] is not None


def test_equal_things_are_rarely_called_different() -> None:
    """Launches scatter by 3 %, their epochs by 0.2 %: 5 % of 100 comparisons, with the room chance takes."""
    generator = np.random.default_rng(7)
    runs = [launch(number, math.exp(generator.normal(0, 0.03)), epochs=2, iters=8) for number in range(200)]
    words = []
    for _ in range(100):
        chosen = [runs[index] for index in generator.choice(200, 8, replace=False)]
        words.append(only_row(compared(chosen[:4], chosen[4:]))["verdict"])
    assert sum(word in ("slower", "faster") for word in words) <= 11  # of a true 5 %: seen in 99 of 100


def test_one_launch_a_side_shows_a_ratio_and_claims_nothing() -> None:
    row = only_row(compared([launch(1)], [launch(2, 1.2)]))
    assert row["ratio"] == pytest.approx(1.2, rel=0.02)
    assert (row["ci_low"], row["p"], row["simultaneous_low"], row["half_width"]) == (None, None, None, None)
    assert (row["verdict"], row["beyond_margin"]) == ("unclear", False)
    assert "these two launches differ" in row["note"]
    assert "epochs spread by" in row["note"]
    agreeing = only_row(compared([launch(1)], [launch(2)]))
    assert "these two launches agree" in agreeing["note"]


def test_one_launch_against_several_is_held_against_their_variation() -> None:
    base, new = launches(BEFORE), [launch(50, 1.2)]
    there, back = only_row(compared(base, new)), only_row(compared(new, base))
    spread = np.std(np.log(BEFORE), ddof=1)
    half = stats.t.ppf(0.975, 4) * spread * math.sqrt(1 + 1 / 5)
    assert math.log(there["ci_high"] / there["ci_low"]) / 2 == pytest.approx(half, rel=0.1)
    assert there["ratio"] == pytest.approx(1 / back["ratio"])
    assert there["verdict"] == back["verdict"] == "unclear"
    assert "5 against 1 launches" in there["note"]


def test_two_arms_of_the_same_launches_are_paired() -> None:
    """What the launches have in common, 20 % and more, is no noise of the ratio."""
    arms = {"arms": ("gloo", "gloo#2"), "slower": {"gloo#2": 1.05}}
    runs = launches((1.0, 1.2, 0.8, 1.5), **arms)
    row = only_row(compare_sides(Side(runs, "gloo", "old"), Side(runs, "gloo#2", "young")))
    assert row["verdict"] == "slower"
    assert row["half_width"] < 0.02
    turned = only_row(compare_sides(Side(runs, "gloo", "old"), Side(runs[::-1], "gloo#2", "young")))
    assert turned["p"] == row["p"]
    runs.append(launch(9, **arms))
    del runs[-1].units[next(key for key in runs[-1].units if key[1] == "gloo#2")]
    assert only_row(compare_sides(Side(runs, "gloo", "old"), Side(runs, "gloo#2", "young")))["p"] == row["p"]
    assert (row["base_arm"], row["new_arm"], row["unit"]) == ("gloo", "gloo#2", "launches")


def test_two_arms_of_one_run_are_compared_epoch_by_epoch() -> None:
    run = launch(1, arms=("gloo", "gloo#2"), slower={"gloo#2": 1.2}, epochs=8, iters=80)
    comparison = compare_sides(Side([run], "gloo", "old"), Side([run], "gloo#2", "young"))
    row = only_row(comparison)
    assert (row["unit"], row["epochs"], row["verdict"]) == ("epochs", 8, "slower")
    assert comparison.differences == []


# Hosts.


def on_hosts(names: str, factor: float, first: int, **settings: Any) -> list[Run]:
    generator = np.random.default_rng(first)
    return [
        launch(first + number, factor * math.exp(generator.normal(0, 0.01)), host=f"node-{name}", **settings)
        for number, name in enumerate(names)
    ]


def test_four_nodes_a_side_make_the_node_the_unit() -> None:
    base, new = on_hosts("aabbccdd", 1.0, 0), on_hosts("eeffgghh", 1.2, 50)
    row = only_row(compared(base, new))
    assert (row["unit"], row["verdict"], row["note"]) == ("nodes", "slower", None)

    def nodes(runs: list[Run]) -> list[float]:
        (key,) = base[0].units
        each = [
            np.mean([math.log(np.quantile(unit.time_us, 0.25)) for unit in run.units[key]]) for run in runs
        ]
        return [float(np.mean(each[first : first + 2])) for first in range(0, 8, 2)]

    assert row["p"] == pytest.approx(stats.ttest_ind(nodes(new), nodes(base), equal_var=False).pvalue)


def test_three_nodes_a_side_carry_a_verdict_on_their_kinds() -> None:
    """Even with a launch each; two do not, however often they are launched on."""
    row = only_row(compared(on_hosts("abc", 1.0, 0), on_hosts("def", 1.5, 50)))
    assert (row["unit"], row["verdict"], row["note"]) == ("nodes", "slower", None)
    assert (row["base_launches"], row["new_launches"]) == (3, 3)
    two = only_row(compared(on_hosts("ababab", 1.0, 0), on_hosts("cdcdcd", 1.5, 50)))
    assert (two["unit"], two["verdict"]) == ("launches", "slower")
    assert "about these nodes only (2 against 2)" in two["note"]


def test_equal_kinds_of_three_nodes_are_rarely_called_different() -> None:
    """Nodes scatter by 5 %, launches on one node by 0.5 %: 5 % of 100, with the room chance takes."""
    generator = np.random.default_rng(11)
    words = []
    for _ in range(100):
        levels = np.exp(generator.normal(0, 0.05, 6))
        runs = [
            launch(number, level * math.exp(generator.normal(0, 0.005)), f"node-{node}", epochs=2, iters=8)
            for node, level in enumerate(levels)
            for number in range(2)
        ]
        words.append(only_row(compared(runs[:6], runs[6:]))["verdict"])
    assert sum(word in ("slower", "faster") for word in words) <= 11  # of a true 5 %: seen in 99 of 100


def test_on_fewer_nodes_a_claim_is_about_these_nodes() -> None:
    row = only_row(compared(on_hosts("aaaa", 1.0, 0), on_hosts("bbbb", 1.2, 50)))
    assert (row["unit"], row["verdict"]) == ("launches", "slower")
    assert "these nodes only" in row["note"]


def test_hosts_that_are_mostly_on_one_side_allow_no_claim() -> None:
    row = only_row(compared(on_hosts("aaaab", 1.0, 0), on_hosts("abbbb", 1.2, 50)))
    assert row["verdict"] == "unclear"
    assert "not equally often" in row["note"]
    assert only_row(compared(on_hosts("aabb", 1.0, 0), on_hosts("bbaa", 1.2, 50)))["verdict"] == "slower"


def hosts(*launches: str) -> list[Hosts]:
    """Of each launch the hosts, a letter each."""
    return [frozenset(names) for names in launches]


@pytest.mark.parametrize(
    ("base", "new", "unit"),
    [
        (hosts("a", "b", "c", "d"), hosts("e", "f", "g", "h"), "nodes"),
        (hosts("ab", "cd", "ef", "gh"), hosts("ij", "kl", "mn", "op", "op"), "nodes"),
        # All of the base's launches share a host, so they are one node and its changing neighbours.
        (hosts("ab", "ac", "ad", "ae"), hosts("f", "g", "h", "i"), "launches"),
        (hosts("f", "g", "h", "i"), hosts("ab", "ac", "ad", "ae"), "launches"),
        (hosts("a", "b", "c", ""), hosts("e", "f", "g", "h"), "launches"),
        (hosts("a", "a", "b", "c"), hosts("e", "f", "g", "h"), "nodes"),
        (hosts("a", "b", "c"), hosts("e", "f", "g"), "nodes"),
        (hosts("a", "a", "b", "b"), hosts("e", "f", "g", "h"), "launches"),
    ],
)
def test_nodes_are_launches_that_share_no_host(base: list[Hosts], new: list[Hosts], unit: str) -> None:
    told, doubt, note = unit_of(base, new)
    assert (told, doubt) == (unit, None)
    assert (note is None) == (unit == "nodes")
    assert note is None or "about these nodes only" in note


@pytest.mark.parametrize(
    ("base", "new"),
    [
        (hosts("ab"), hosts("bc")),
        (hosts("ab", "ab", "ab", "ab"), hosts("bc", "bc", "bc", "bc")),
        (hosts("a", "b", "c", "d"), hosts("d", "e", "f", "g")),
        (hosts("ab", "cd"), hosts("a", "b")),
    ],
)
def test_sides_that_share_some_hosts_allow_no_claim(base: list[Hosts], new: list[Hosts]) -> None:
    doubt = unit_of(base, new)[1]
    assert doubt is not None
    assert "some hosts are on both sides" in doubt


def test_the_same_sets_of_hosts_are_launched_on_alike() -> None:
    assert unit_of(hosts("ab", "ac"), hosts("ac", "ab", "ab", "ac")) == ("launches", None, None)
    doubt = unit_of(hosts("ab", "ac"), hosts("ac", "ac", "ab"))[1]
    assert doubt is not None
    assert "not equally often" in doubt


def test_a_host_of_both_sides_makes_every_row_unclear() -> None:
    def on_two(first: int, factor: float, second: str) -> list[Run]:
        runs = launches([factor * each for each in BEFORE], first, hosts=2)
        for run in runs:
            run.meta["environment"]["hosts"][1]["name"] = second
        return runs

    row = only_row(compared(on_two(0, 1.0, "node-01"), on_two(50, 1.5, "node-02")))
    assert (row["verdict"], row["beyond_margin"]) == ("unclear", False)
    assert "some hosts are on both sides" in row["doubt"]


# The whole.


def test_rows_of_launches_have_every_key_of_rows_of_epochs() -> None:
    run = launch(1, arms=("gloo", "gloo#2"))
    epochs = only_row(compare_sides(Side([run], "gloo", "old"), Side([run], "gloo#2", "young")))
    for comparison in (compared([launch(1)], [launch(2)]), compared(launches(BEFORE), launches(AFTER, 50))):
        row = only_row(comparison)
        sides = {f"{side}_{key}" for side in ("base", "new") for key in ("arm", "launches", "spread")}
        assert row.keys() == epochs.keys() | sides


def test_epochs_of_few_samples_say_nothing_of_tails() -> None:
    base, new = (launches(factors, first, iters=54) for factors, first in ((BEFORE, 0), (BEFORE, 50)))
    row = only_row(compared(base, new, margin=Margin(0.1, 0.0)))
    assert (row["verdict"], row["tail"]) == ("same", None)
    assert row["p90_ratio"] is row["p90_ci_low"] is row["p90_ci_high"] is None
    shift = {entry["quantile"]: entry for entry in row["shift"]}
    for name in ("p10", "p90"):
        assert shift[name]["ratio"] is shift[name]["ci_low"] is shift[name]["ci_high"] is None
        assert shift[name]["reason"] == f"{name} needs 10 samples in every epoch, not 9"
    for name in ("p25", "median"):
        assert shift[name]["ratio"] == pytest.approx(1.0, abs=0.02)
        assert shift[name]["reason"] is None
    assert flat(row)["shift_p90_ratio"] is None


def test_all_rows_are_one_family() -> None:
    settings = {"sizes": (64, 256, 4096)}
    rows = compared(launches(BEFORE, **settings), launches(AFTER, 50, **settings)).rows
    smallest = min(rows, key=lambda row: float(row["p"]))
    assert smallest["p_holm"] == pytest.approx(3 * smallest["p"])
    assert all(row["simultaneous_low"] < row["ci_low"] for row in rows)


def test_a_wider_margin_turns_slower_into_the_same() -> None:
    base, new = launches(BEFORE), launches([1.02 * factor for factor in BEFORE], 50)
    assert only_row(compared(base, new, margin=Margin(0.5, 0.0)))["verdict"] == "same"
    assert only_row(compared(base, new, margin=Margin(0.001, 0.0)))["verdict"] == "unclear"


def test_a_worse_tail_is_said_beside_same() -> None:
    new = launches(BEFORE, 50)
    for run in new:
        (key,) = run.units
        slow = [np.where(np.arange(unit.total_us.shape[1]) < 3, 2.0, 1.0) for unit in run.units[key]]
        run.units[key] = [
            replace(unit, total_us=unit.total_us * factor)
            for unit, factor in zip(run.units[key], slow, strict=True)
        ]
    row = only_row(compared(launches(BEFORE), new, margin=Margin(0.1, 0.0)))
    assert (row["verdict"], row["tail"]) == ("same", "tail worse")


def test_what_differs_is_told_with_the_environment_first() -> None:
    new = with_plan(iters=120)(launch(2))
    new.meta["environment"]["hosts"][0]["driver"] = "600.1"
    found = compared([launch(1)], [new]).differences
    assert [change["what"] for change in found] == ["driver", "iters"]
    assert found[0]["new"] == [{"value": "600.1", "ranks": 2}]


def test_notes_tell_of_unfinished_and_slowed_runs() -> None:
    new = with_plan(injection=Injection("gloo", None, 5.0, None))(launch(2))
    new.meta["status"] = "interrupted"
    notes = compared([launch(1)], [new]).notes
    assert any("not complete (interrupted)" in note for note in notes)
    assert any("slowed on purpose" in note for note in notes)


def test_small_and_large_messages_are_summed_up_apart() -> None:
    settings = {"sizes": (64, 32768, 65536, 1 << 20)}
    rows = compared(launches(BEFORE, **settings), launches(AFTER, 50, **settings)).rows
    small, large = by_collective(rows)
    assert (small["messages"], small["rows"], small["slower"]) == ("small", 2, 2)
    assert (large["messages"], large["rows"], large["unclear"]) == ("large", 2, 0)
    assert small["ratio"] == pytest.approx(math.sqrt(rows[0]["ratio"] * rows[1]["ratio"]))
    assert typical_ratio([{"ratio": None}]) is None
