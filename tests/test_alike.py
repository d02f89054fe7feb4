"""Which cases and arms may stand against each other, and what is said of those that may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from launching import AFTER, BEFORE, SIZE, compared, launch, launches, only_row, with_plan
from report_fixtures import skip

from ncclbench.compare.launches import Comparison
from ncclbench.errors import RequestError
from ncclbench.store.model import Run

# What is not alike.


def reasons(comparison: Comparison) -> list[tuple[str, str]]:
    return [(entry["side"], entry["reason"]) for entry in comparison.unpaired]


def test_other_numbers_of_ranks_are_refused() -> None:
    with pytest.raises(RequestError, match="BASE has 2 ranks, NEW 4"):
        compared([launch(1)], [launch(2, nranks=4)])


def test_cases_of_one_side_are_named_with_the_nearest_of_the_other() -> None:
    base = launch(1, sizes=(SIZE, 64), dtypes=("float32",))
    new = launch(2, sizes=(SIZE, 128), dtypes=("float32", "float16"))
    comparison = compared([base], [new])
    assert [row["nbytes"] for row in comparison.rows] == [SIZE]
    assert ("base", "NEW has no all_reduce of 64 bytes") in reasons(comparison)
    assert ("new", "dtype float16 in NEW, float32 in BASE") in reasons(comparison)
    assert {entry["case"] for entry in comparison.unpaired if entry["side"] == "base"} == {
        key for key, _ in base.units if "/64/" in key
    }


def test_another_mode_is_another_case() -> None:
    with pytest.raises(RequestError, match="mode back-to-back in BASE, isolated in NEW"):
        compared([launch(1)], [launch(2, modes=("isolated",))])


def on_device(run: Run) -> Run:
    run.units = {
        key: [replace(unit, device_us=unit.total_us) for unit in units] for key, units in run.units.items()
    }
    return run


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (on_device, "clock total in BASE, device in NEW"),
        (with_plan(statistic="p90"), r"fixed different statistics \(p25, p90\): choose one with --statistic"),
        (with_plan(share_gpu=True), "shared a GPU"),
    ],
)
def test_unlike_times_are_never_paired(change: Callable[[Run], Run], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        compared([launch(1)], [change(launch(2))])


def test_a_statistic_asked_for_now_ends_the_quarrel() -> None:
    row = only_row(compared([launch(1)], [with_plan(statistic="p90")(launch(2))], statistic="median"))
    assert row["statistic"] == "median"
    shift = {entry["quantile"]: entry["ratio"] for entry in row["shift"]}
    assert list(shift) == ["p10", "p25", "median", "p90"]
    assert shift["median"] == pytest.approx(row["ratio"])
    assert shift["p90"] == pytest.approx(row["p90_ratio"])


def test_other_uneven_splits_are_other_traffic() -> None:
    runs = [launch(1, ops=("all_to_allv", "all_reduce")), launch(2, ops=("all_to_allv", "all_reduce"))]
    assert len(compared(runs[:1], runs[1:]).rows) == 2
    comparison = compared(runs[:1], [with_plan(seed=99)(runs[1])])
    assert [row["op"] for row in comparison.rows] == ["all_reduce"]
    assert "uneven splits" in comparison.unpaired[0]["reason"]
    assert "seed" in [change["what"] for change in comparison.differences]


def without_check(run: Run) -> Run:
    run.units = {key: [replace(unit, wrong=None) for unit in units] for key, units in run.units.items()}
    return with_plan(check=0)(run)


def test_data_checked_on_one_side_only_make_no_verdict() -> None:
    unchecked = [without_check(run) for run in launches(AFTER, 50)]
    comparison = compared(launches(BEFORE), unchecked)
    row = only_row(comparison)
    assert row["verdict"] == "unclear"
    assert "NEW: data not checked" in row["note"]
    assert "check" in [change["what"] for change in comparison.differences]


def test_data_checked_nowhere_are_alike_and_said() -> None:
    sides = [
        [without_check(run) for run in launches(factors, first)]
        for factors, first in ((BEFORE, 0), (AFTER, 50))
    ]
    comparison = compared(*sides)
    assert only_row(comparison)["verdict"] == "slower"
    assert any("checked on neither side" in note for note in comparison.notes)


def with_wrong_data(run: Run) -> Run:
    (key,) = run.units
    run.units[key][2] = replace(run.units[key][2], wrong=(0, 3))
    return run


def test_wrong_data_void_the_case_and_are_told() -> None:
    new = launches(AFTER, 50)
    with_wrong_data(new[1])
    comparison = compared(launches(BEFORE), new)
    row = only_row(comparison)
    assert (row["verdict"], row["ratio"], row["shift"]) == ("unclear", None, [])
    assert "NEW: wrong data" in row["note"]
    assert comparison.wrong == [str(new[1].folder)]


def failed(run: Run, reason: str = "rank 1 hung") -> Run:
    (key,) = run.units
    run.units.clear()
    run.statuses[key] = ("failed", reason)
    return run


def test_a_case_that_failed_on_a_side_is_an_unclear_row() -> None:
    comparison = compared([launch(1)], [failed(launch(2))])
    row = only_row(comparison)
    assert (row["verdict"], row["ratio"], row["new_us"]) == ("unclear", None, None)
    assert "rank 1 hung" in row["note"]


def test_a_launch_that_failed_is_left_out_by_name() -> None:
    new = launches((*AFTER, 1.2), 50)
    failed(new[2])
    row = only_row(compared(launches(BEFORE), new))
    assert (row["verdict"], row["new_launches"]) == ("slower", 4)
    assert "left out: node-00-52: rank 1 hung" in row["note"]


def test_a_skipped_case_is_not_compared_and_named() -> None:
    new = launch(2, sizes=(SIZE, 64))
    skip(new, 1, "needs CUDA")
    comparison = compared([launch(1, sizes=(SIZE, 64))], [new])
    assert [row["nbytes"] for row in comparison.rows] == [SIZE]
    assert reasons(comparison) == [("base", "NEW: skipped: needs CUDA")]


def test_a_clock_too_coarse_gives_no_ratio() -> None:
    base, new = launch(1), launch(2)
    (key,) = new.units
    new.units[key] = [replace(unit, total_us=np.zeros_like(unit.total_us)) for unit in new.units[key]]
    row = only_row(compared([base], [new]))
    assert (row["ratio"], row["verdict"]) == (None, "unclear")
    assert "too coarse" in row["note"]


# Arms.


def test_equal_arms_of_both_runs_are_paired() -> None:
    base, new = launch(1, arms=("gloo", "gloo#2")), launch(2, arms=("gloo", "nccl2"))
    comparison = compared([base], [new])
    row = only_row(comparison)
    assert (row["base_arm"], row["new_arm"]) == ("gloo", "gloo")
    assert ("base", "arm gloo#2 is in BASE only") in reasons(comparison)
    assert ("new", "arm nccl2 is in NEW only") in reasons(comparison)


def test_rows_of_several_arms_tell_which() -> None:
    arms = ("gloo", "gloo#2")
    rows = compared([launch(1, arms=arms)], [launch(2, arms=arms)]).rows
    assert [(row["base"], row["new"]) for row in rows] == [
        ("old:gloo", "young:gloo"),
        ("old:gloo#2", "young:gloo#2"),
    ]


def test_single_arms_are_compared_whatever_they_are_called() -> None:
    row = only_row(compared([launch(1, arms=("nccl-legacy",))], [launch(2, arms=("nccl2",))]))
    assert (row["base_arm"], row["new_arm"]) == ("nccl-legacy", "nccl2")


def test_arms_without_a_partner_are_refused() -> None:
    with pytest.raises(RequestError, match="name one of each"):
        compared([launch(1, arms=("gloo", "gloo#2"))], [launch(2, arms=("nccl2", "nccl-legacy"))])
