"""``--require``: what one may write, and that it is the interval of every row that decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hardware_fixtures import busbw_of, gpu_run
from report_fixtures import make_run, skip

from ncclbench.errors import RequestError
from ncclbench.hardware.judging import Judged, judge_requirements, overall, worst
from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

GIB = 1 << 30


# What one may write.


@pytest.mark.parametrize(
    ("text", "op", "nbytes", "metric", "bound"),
    [
        ("90%peak", None, None, "busbw", 0.9),
        ("all_reduce>=90%peak", "all_reduce", None, "busbw", 0.9),
        ("all_reduce@1G>=450GB/s", "all_reduce", GIB, "busbw", 450),
        ("@1G>=400GB/s", None, GIB, "busbw", 400),
        (" all_reduce @ 1G >= 450 GB/s ", "all_reduce", GIB, "busbw", 450),
        ("all_to_all@64M>=800MB/s", "all_to_all", 64 << 20, "busbw", 0.8),
        ("all_reduce@1G>=400Gb/s", "all_reduce", GIB, "busbw", 50),
        ("all_reduce@1G:algbw>=250.5GB/s", "all_reduce", GIB, "algbw", 250.5),
        ("all_reduce@8<=20us", "all_reduce", 8, "time", 20),
        ("all_reduce@1G:time<=4.5ms", "all_reduce", GIB, "time", 4500),
        ("barrier<=20us", "barrier", None, "time", 20),
        ("AllReduce>=4GB/s", "all_reduce", None, "busbw", 4),
        ("all_reduce@8≤20µs", "all_reduce", 8, "time", 20),
    ],
)
def test_what_one_may_write(text: str, op: str | None, nbytes: int | None, metric: str, bound: float) -> None:
    found = parse_requirement(text)
    assert (found.op, found.nbytes, found.metric) == (op, nbytes, metric)
    assert found.bound == pytest.approx(bound)
    assert found.of_peak == ("peak" in text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all_reduce@1G>450", "write 'all_reduce@1G>=450GB/s'"),
        ("all_reduce@1G=450GB/s", "write 'all_reduce@1G>=450GB/s'"),
        ("all_reduce@8=20us", "write 'all_reduce@8<=20us'"),
        ("all_reduce@8<20", "write 'all_reduce@8<=20us'"),
        ("all_reduce@1G>=450", "has no unit: take GB/s, "),
        ("all_reduce@1G>=450gb/s", "write GB/s for bytes or Gb/s for bits"),
        ("all_reduce@1G>=450GiB/s", "has the unit 'GiB/s': write GB/s for bytes"),
        ("all_reduce@8<=20usec", "has the unit 'usec': write us"),
        ("90%", "write 90%peak"),
        ("all_reduce<=90%peak", "a bandwidth is bounded from below, write >="),
        ("all_reduce>=20us", "a time is bounded from above, write <="),
        ("all_reduce:algbw>=90%peak", "leave :algbw away"),
        ("all_reduce:latency<=9us", "asks for 'latency': take busbw, algbw, time"),
        ("all_reduce:busbw<=9us", "asks for busbw in us: take GB/s, MB/s, Gb/s, %peak"),
        ("all_reduce:time>=9GB/s", "asks for time in GB/s: take us, µs, ms, s"),
        ("allreduces>=4GB/s", "unknown collective 'allreduces': did you mean 'all_reduce'?"),
        ("barrier>=1GB/s", "barrier moves no data, ask for a time like 'barrier<=20us'"),
        ("all_reduce@1X>=4GB/s", "--require size '1X' is not a size"),
        ("all_reduce@0>=4GB/s", "is zero"),
        ("all_reduce>=0GB/s", "a bound must be above zero"),
        ("all_reduce>=1e3GB/s", "'1e3GB/s' is not a bound"),
        ("all_reduce>=-4GB/s", "is not a bound"),
        ("all_reduce>=", "is not a bound"),
        ("fast", "is not a requirement: write it like 90%peak, 'all_reduce@1G>=450GB/s'"),
        ("", "is not a requirement"),
        # What is left where a shell has taken the > for itself.
        ("all_reduce@1G", "quote it, or the shell takes > and < for itself"),
    ],
)
def test_anything_else_is_one_line_that_says_what_to_write(text: str, says: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse_requirement(text)
    message = str(raised.value)
    assert says in message
    assert "\n" not in message
    # What the line suggests is right.
    for suggested in (part for part in message.split("'") if part.startswith("all_reduce@") and "=" in part):
        if suggested != text:
            parse_requirement(suggested)


# What decides.


def judged(run: Run, *texts: str, rows: list[dict[str, Any]] | None = None) -> list[Judged]:
    requirements = [parse_requirement(text) for text in texts]
    return judge_requirements(run_rows(run) if rows is None else rows, machine_of(run), requirements)


def one(run: Run, text: str, rows: list[dict[str, Any]] | None = None) -> Judged:
    (found,) = judged(run, text, rows=rows)
    return found


def row_of(run: Run, op: str, nbytes: int, mode: str) -> dict[str, Any]:
    found = [row for row in run_rows(run) if (row["op"], row["nbytes"], row["mode"]) == (op, nbytes, mode)]
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def h100() -> Run:
    """470 GB/s at 8 GiB, so some 104 % of the peak; 12 us at 8 B."""
    return gpu_run(sizes=(8, GIB, 8 * GIB), time_us=busbw_of(485))


def test_the_interval_decides_and_not_the_median(h100: Run) -> None:
    row = row_of(h100, "all_reduce", 8 * GIB, "back-to-back")
    low = row["busbw_GBs"] * row["median_us"] / row["ci_high_us"]
    high = row["busbw_GBs"] * row["median_us"] / row["ci_low_us"]
    assert low < row["busbw_GBs"] < high
    inside = (low + row["busbw_GBs"]) / 2
    answers = {
        bound: one(h100, f"all_reduce@8G>={bound:.6f}GB/s") for bound in (low - 1e-3, inside, high + 1e-3)
    }
    assert [found.answer for found in answers.values()] == ["pass", "unclear", "fail"]
    unclear = answers[inside]
    assert unclear.value == row["busbw_GBs"] > inside, "the median alone would have passed"
    assert (unclear.ci_low, unclear.ci_high) == (pytest.approx(low), pytest.approx(high))
    assert "more --epochs or --precision narrow it" in unclear.message
    assert (unclear.op, unclear.nbytes, unclear.mode, unclear.arm, unclear.unit, unclear.rows) == (
        *("all_reduce", 8 * GIB, "back-to-back", "nccl2", "GB/s"),
        1,
    )


def test_a_time_is_judged_in_isolated_mode_and_from_above(h100: Run) -> None:
    row = row_of(h100, "all_reduce", 8, "isolated")
    bounds = (row["ci_high_us"] + 1e-3, row["median_us"], row["ci_low_us"] - 1e-3)
    found = [one(h100, f"all_reduce@8<={bound:.6f}us") for bound in bounds]
    assert [each.answer for each in found] == ["pass", "unclear", "fail"]
    assert {each.mode for each in found} == {"isolated"}
    assert (found[0].value, found[0].ci_low, found[0].unit) == (row["median_us"], row["ci_low_us"], "us")


def test_another_mode_serves_where_the_better_one_was_not_measured() -> None:
    run = gpu_run(sizes=(8, GIB), modes=("isolated",))
    assert one(run, "all_reduce@1G>=1GB/s").mode == "isolated"
    run = gpu_run(sizes=(8, GIB), modes=("back-to-back",))
    assert one(run, "all_reduce@8<=1s").mode == "back-to-back"


def test_without_a_size_the_largest_that_was_measured_counts(h100: Run) -> None:
    found = one(h100, "all_reduce>=450GB/s")
    assert (found.nbytes, found.answer) == (8 * GIB, "pass")
    assert found.value == one(h100, "all_reduce@8G>=450GB/s").value
    assert found.value != one(h100, "all_reduce@1G>=450GB/s").value


def test_every_arm_dtype_and_form_must_hold() -> None:
    run = gpu_run(sizes=(GIB,), arms=("nccl2", "nccl-legacy"), dtypes=("float32", "bfloat16"))
    key = next(
        key
        for key in run.units
        if "bfloat16" in key[0]
        and "all_reduce" in key[0]
        and key[1] == "nccl-legacy"
        and "back-to-back" in key[0]
    )
    slow = gpu_run(
        sizes=(GIB,), arms=("nccl2", "nccl-legacy"), dtypes=("float32", "bfloat16"), time_us=busbw_of(200)
    )
    assert one(run, "all_reduce@1G>=400GB/s").answer == "pass"
    assert one(run, "all_reduce@1G>=400GB/s").rows == 4
    run.units[key] = slow.units[key]
    found = one(run, "all_reduce@1G>=400GB/s")
    assert (found.answer, found.arm, found.dtype) == ("fail", "nccl-legacy", "bfloat16")
    assert found.rows == 4


def test_the_requirement_without_an_operation_is_of_all_of_them() -> None:
    run = gpu_run(sizes=(GIB,), ops=("all_reduce", "all_gather", "barrier"))
    fast = one(run, "100%peak")
    assert (fast.answer, fast.rows) == ("pass", 2), "a barrier has no bandwidth to require"
    for key, units in gpu_run(sizes=(GIB,), ops=("all_gather",), time_us=busbw_of(300)).units.items():
        run.units[key] = units
    found = one(run, "90%peak")
    assert (found.answer, found.op) == ("fail", "all_gather")
    assert found.bound == pytest.approx(405)
    assert "below 90 % of the NVLink peak (450 GB/s, NVLink 4)" in found.message


def test_above_the_peak_is_above_every_share_of_it(h100: Run) -> None:
    assert one(h100, "all_reduce>=100%peak").answer == "pass"


def test_wrong_data_fails_whatever_the_speed(h100: Run) -> None:
    rows = [row | {"status": "wrong", "wrong": 3, "busbw_GBs": None} for row in run_rows(h100)]
    found = one(h100, "all_reduce@1G>=1GB/s", rows=rows)
    assert (found.answer, found.value) == ("fail", None)
    assert "WRONG DATA" in found.message
    assert one(h100, "all_reduce@8<=1s", rows=rows).answer == "fail"


def test_what_was_not_measured_is_unclear_and_says_what_there_is(h100: Run) -> None:
    found = one(h100, "all_reduce@2G>=1GB/s")
    assert (found.answer, found.rows, found.value) == ("unclear", 0, None)
    assert found.message == "all_reduce was not measured at 2G, the nearest size that was is 1G"
    assert one(h100, "all_to_all>=1GB/s").message == "all_to_all was not measured"


def test_an_arm_that_failed_does_not_pass_by_being_away() -> None:
    run = gpu_run(sizes=(GIB,), arms=("nccl2", "nccl-legacy"))
    for key in [key for key in run.units if key[1] == "nccl-legacy"]:
        del run.units[key]
        run.statuses[key] = ("failed", "rank 3 died")
    found = one(run, "all_reduce@1G>=1GB/s")
    assert (found.answer, found.arm) == ("unclear", "nccl-legacy")
    assert "not measured: rank 3 died" in found.message
    run.units.clear()
    assert one(run, "@1G>=1GB/s").answer == "unclear"


def test_a_form_that_does_not_exist_is_not_asked_for() -> None:
    run = gpu_run(sizes=(GIB,), dtypes=("float32", "bfloat16"))
    for index, entry in enumerate(run.plan.cases):
        if entry.case.dtype == "bfloat16":
            skip(run, index, "not here")
    assert one(run, "all_reduce@1G>=400GB/s").answer == "pass"


def test_a_size_that_ranks_do_not_divide_is_the_one_asked_for() -> None:
    """Of 1 GiB in whole elements for 6 ranks nothing but the rest is missing."""
    nbytes = GIB // (6 * 16) * 6 * 16
    run = gpu_run(sizes=(nbytes,), nranks=6, ops=("all_gather",))
    assert nbytes < GIB
    assert one(run, "all_gather@1G>=1GB/s").nbytes == nbytes
    assert one(run, "all_gather@2G>=1GB/s").rows == 0
    assert one(run, "all_gather@512M>=1GB/s").rows == 0, "a larger size is another"


def test_one_epoch_cannot_tell(h100: Run) -> None:
    run = gpu_run(sizes=(GIB,), epochs=1, iters=5)
    found = one(run, "all_reduce@1G>=1GB/s")
    assert (found.answer, found.ci_low) == ("unclear", None)
    assert found.message.endswith("one epoch has no interval, measure more with --epochs")


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (make_run(sizes=(4096,)), "no reference: measured on the CPU"),
        (gpu_run(sizes=(4096,), nranks=16, hosts=2), "no reference: NIC rate unknown"),
        (gpu_run(sizes=(4096,), nranks=1), "1 rank: bus bandwidth is 0 by definition"),
    ],
    ids=["cpu", "no nics", "1 rank"],
)
def test_a_share_of_nothing_is_unclear(run: Run, says: str) -> None:
    found = one(run, "all_reduce>=1%peak")
    assert (found.answer, found.bound) == ("unclear", None)
    assert says in found.message


def test_ranks_that_share_a_gpu_have_times_but_no_bandwidth(h100: Run) -> None:
    rows = [row | {"busbw_GBs": None, "algbw_GBs": None, "shared_gpu": True} for row in run_rows(h100)]
    assert "ranks share a GPU: no bandwidth" in one(h100, "@1G>=1GB/s", rows=rows).message
    assert one(h100, "all_reduce@8<=1s", rows=rows).answer == "pass"


def test_all_together() -> None:
    def answered(*answers: Any) -> list[Judged]:
        return [Judged("90%peak", answer, "") for answer in answers]

    assert overall(answered("pass", "pass"), "fail") == "pass"
    assert overall(answered("pass", "unclear"), "fail") == "fail"
    assert overall(answered("pass", "unclear"), "pass") == "pass"
    assert overall(answered("unclear", "fail"), "pass") == "fail"
    of_runs = [Judged("90%peak", "pass", "one", rows=2), Judged("90%peak", "unclear", "two", rows=3)]
    assert (worst(of_runs).message, worst(of_runs).rows) == ("two", 5)


def test_each_form_is_held_at_its_own_largest_size_and_in_its_own_mode() -> None:
    """What one arm, type or number of ranks reached at 8 GiB says nothing of what another did at 1 GiB."""
    fast = gpu_run(sizes=(GIB, 8 * GIB), arms=("nccl2",))
    slow = gpu_run(sizes=(GIB,), arms=("nccl-legacy",), modes=("isolated",), time_us=busbw_of(200))
    for changes in ({}, {"dtype": "bfloat16", "arm": "nccl2"}, {"nranks": 4, "arm": "nccl2"}):
        rows = [*run_rows(fast), *[row | changes for row in run_rows(slow)]]
        found = one(fast, "all_reduce>=400GB/s", rows=rows)
        assert (found.answer, found.rows, found.nbytes, found.mode) == ("fail", 2, GIB, "isolated"), changes


def test_a_form_without_the_size_asked_for_does_not_pass_by_being_away() -> None:
    rows = [*run_rows(gpu_run(sizes=(GIB,))), *run_rows(gpu_run(sizes=(8 * GIB,), dtypes=("bfloat16",)))]
    found = one(gpu_run(sizes=(GIB,)), "all_reduce@1G>=400GB/s", rows=rows)
    assert (found.answer, found.rows, found.dtype) == ("unclear", 2, "bfloat16")
    assert found.message.startswith("all_reduce bfloat16 sum 1G")
    assert "not measured: the nearest size that was is 8G" in found.message


def test_a_mode_that_failed_is_not_replaced_by_one_that_did_not() -> None:
    rows = run_rows(gpu_run(sizes=(GIB,)))
    failed = [
        row | {"status": "failed", "reason": "timeout", "median_us": None}
        if row["mode"] == "back-to-back"
        else row
        for row in rows
    ]
    found = one(gpu_run(sizes=(GIB,)), "all_reduce@1G>=1GB/s", rows=failed)
    assert (found.answer, found.mode) == ("unclear", "back-to-back")
    assert "not measured: timeout" in found.message


@pytest.mark.parametrize(
    ("nbytes", "taken"),
    [(GIB, True), (GIB - 64, True), (GIB - 40, False), (GIB - 1024, False), (GIB + 96, False)],
)
def test_only_what_trimming_explains_is_the_size_asked_for(nbytes: int, taken: bool) -> None:
    """1 GiB in whole parts of 16 bytes for 6 ranks lacks 64 bytes; nothing makes 1024 bytes of that."""
    rows = [row | {"nbytes": nbytes, "nranks": 6} for row in run_rows(gpu_run(sizes=(GIB,), nranks=6))]
    assert (one(gpu_run(sizes=(GIB,)), "all_reduce@1G>=1GB/s", rows=rows).rows == 1) is taken


def test_a_gpu_that_was_held_back_is_named_beside_the_answer(h100: Run) -> None:
    held = {"throttled": ["software power cap"], "throttled_ranks": [3]}
    rows = [row | held for row in run_rows(h100)]
    for text in ("all_reduce@1G>=1GB/s", "all_reduce@1G>=900GB/s"):
        assert one(h100, text, rows=rows).message.endswith("; throttled: software power cap on rank 3")
        assert "throttled" not in one(h100, text).message


def test_the_shape_of_the_answer_for_programs(h100: Run, tmp_path: Path) -> None:
    found = one(h100, "all_reduce@1G>=1GB/s").to_json()
    assert set(found) == {
        *("requirement", "answer", "message", "rows", "op", "nbytes", "dtype", "mode", "arm", "value"),
        *("ci_low", "ci_high", "rounding_low", "rounding_high", "bound", "unit", "basis"),
    }
