"""What the report's panels say in words and tables about a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from drill_fixtures import make_drill
from overlap_fixtures import make_overlap
from report_fixtures import SMALL, make_case, make_run, skip, two_arms_run
from report_reading import content, figures_of, page_of, verdict_of
from transport_fixtures import make_transport

from ncclbench.report.build import columnar, report_of
from ncclbench.report.marks import row_marks
from ncclbench.report.panels.environment import flattened, split_by_difference
from ncclbench.report.text import rate_text, time_text
from ncclbench.store.model import Run
from ncclbench.store.reader import ENDED_SILENTLY


@pytest.fixture(scope="module")
def two_arms() -> Run:
    return two_arms_run()


# --- verdict


def test_all_well() -> None:
    verdict = verdict_of(make_run(sizes=SMALL))
    assert verdict["tone"] == "good"
    assert verdict["headline"] == "12 rows measured, data right"
    assert verdict["place"] == "on gloo, 2 ranks on 1 host"


@pytest.mark.parametrize("make", [make_drill, make_overlap, make_transport])
def test_a_command_that_was_killed_is_not_called_still_running(make: Callable[..., Run]) -> None:
    run = make(status="running")
    run.problems.append(ENDED_SILENTLY)
    page = page_of(run)
    assert "ended without a word (killed, or disk full?)" in page.text
    assert "still running" not in page.text


def test_wrong_data_comes_before_everything() -> None:
    run = make_run(sizes=SMALL)
    key = make_case("broadcast", 4096).key
    run.units[key, "gloo"] = [replace(unit, wrong=(0, 7)) for unit in run.units[key, "gloo"]]
    run.meta["status"] = "failed"
    verdict = verdict_of(run)
    assert (verdict["tone"], verdict["headline"]) == ("bad", "1 row WRONG")
    assert "broadcast 4K on gloo" in verdict["details"]
    (group,) = content("unmeasured", run)["groups"]
    assert (group["status"], group["count"], group["reason"]) == ("wrong", 1, "21 wrong elements")


def test_failure_names_the_rank() -> None:
    run = make_run(sizes=SMALL)
    key = make_case("all_reduce", 4096).key
    del run.units[key, "gloo"]
    reason = "rank 1 on host-a died in all_reduce 4K"
    run.statuses[key, "gloo"] = ("failed", reason)
    verdict = verdict_of(run)
    assert (verdict["tone"], verdict["headline"], verdict["details"]) == ("bad", "1 row failed", [reason])


@pytest.mark.parametrize(
    ("status", "headline"),
    [
        ("interrupted", "11 rows measured, interrupted"),
        ("running", "11 rows measured, still running"),
        ("complete", "11 rows measured, incomplete"),
    ],
)
def test_rows_that_a_run_never_came_to_are_no_failures(status: str, headline: str) -> None:
    run = make_run(sizes=SMALL)
    run.meta |= {"status": status, "message": "stopped by Ctrl-C"}
    del run.units[make_case("broadcast", 1 << 20).key, "gloo"]
    verdict = verdict_of(run)
    assert (verdict["tone"], verdict["headline"], verdict["rest"]) == ("warn", headline, "1 not reached")
    assert verdict["details"] == ["stopped by Ctrl-C"]


def test_nothing_measured_says_why() -> None:
    run = make_run(sizes=(8,), ops=("all_reduce",), modes=("isolated",))
    skip(run, 0, "less than one element per rank")
    verdict = verdict_of(run)
    assert (verdict["headline"], verdict["details"]) == (
        "Nothing measured",
        ["less than one element per rank"],
    )
    page_of(run)


def test_unchecked_data_is_not_called_right() -> None:
    run = make_run(sizes=SMALL)
    run.units = {key: [replace(unit, wrong=None) for unit in units] for key, units in run.units.items()}
    assert verdict_of(run)["headline"] == "12 rows measured, data not checked"


def test_arms_are_counted_and_the_worst_regression_named(two_arms: Run) -> None:
    verdict = verdict_of(two_arms)
    assert verdict["headline"] == "nccl2 against nccl-legacy: 12 slower"
    assert verdict["tone"] == "warn"
    (pair,) = verdict["pairs"]
    assert pair["counts"] == [("faster", 0), ("same", 0), ("unclear", 0), ("slower", 12)]
    comparisons = report_of([two_arms]).comparisons
    worst = max(comparisons, key=lambda row: row["ratio"])
    assert pair["lines"][0].startswith("12 regressions beyond the margin, the worst: ")
    assert f"{worst['op']} float32" in pair["lines"][0]
    assert f"{worst['ratio']:.2f}x time, slower" in pair["lines"][0]


def test_words_of_regression_need_the_margin() -> None:
    run = make_run(sizes=SMALL, arms=("a", "b"), slower={"b": 1.2}, epochs=8, iters=80, noise=0.01)
    run.plan = replace(run.plan, margin_ratio=0.5)
    page = page_of(run)
    assert "regression" not in page.text.lower()


def test_mostly_unstable_run_is_not_green() -> None:
    verdict = verdict_of(make_run(sizes=SMALL, epoch_spread=0.6, seed=4))
    assert verdict["tone"] == "warn"
    assert re.fullmatch(r"\d+ of 12 rows unstable\.", verdict["details"][0])


def test_peaks_come_from_the_mode_that_answers_best() -> None:
    run = make_run(sizes=SMALL)
    rows = report_of([run]).rows
    (peak, _) = content("verdict", run)["peaks"]
    fastest = max(
        row["busbw_GBs"] for row in rows if (row["op"], row["mode"]) == ("all_reduce", "back-to-back")
    )
    quickest = min(row["median_us"] for row in rows if (row["op"], row["mode"]) == ("all_reduce", "isolated"))
    assert peak["rate"] == rate_text(fastest)
    assert peak["time"] == time_text(quickest)
    assert all(re.fullmatch(r"[0-9]+[KM]? bytes, float32", peak[key]) for key in ("rate_at", "time_at"))


# --- marks


def test_marks_say_what_to_do_next() -> None:
    row = {
        "status": "ok",
        "epochs": 1,
        "epoch_spread": 0.14,
        "bimodal": True,
        "mode_low_us": 10.0,
        "mode_high_us": 22.0,
        "fence_bound": True,
        "shared_gpu": True,
        **dict.fromkeys(("warming", "drifts", "correlated")),
    }
    assert [mark.word for mark in row_marks(row, compared=True)] == [
        "unstable",
        "bimodal",
        "one epoch",
        "fence-bound",
        "shared GPU",
    ]
    unstable, bimodal = row_marks(row, compared=True)[:2]
    assert (unstable.why, unstable.step) == ("epochs ±14 %", "more epochs")
    assert bimodal.why == "10.0 µs and 22.0 µs"
    assert row_marks(row | {"epoch_spread": 1.1}, compared=True)[0].why == "epochs vary 3.0x"


def test_fence_matters_only_to_comparisons() -> None:
    row = {"status": "ok", "epochs": 3, "epoch_spread": 0.01, "bimodal": False, "fence_bound": True}
    row |= {"shared_gpu": False, "warming": False, "drifts": None, "correlated": None}
    assert row_marks(row, compared=False) == []


def test_marks_stand_in_the_table_and_in_the_verdict() -> None:
    run = make_run(sizes=SMALL, epoch_spread=0.6, seed=4)
    table = content("table", run)
    marked = [line for line in table["lines"] if line["marks"]]
    unstable = len([line for line in marked if line["marks"][0].word == "unstable"])
    assert unstable > 1
    (step,) = [step for step in content("verdict", run)["next_steps"] if "unstable" in step["what"]]
    assert step["what"] == f"{unstable} rows unstable"
    assert "--epochs" in step["step"]


# --- ranks


def test_slowest_rank_and_its_host_are_named() -> None:
    run = make_run(sizes=SMALL, nranks=8, hosts=2)
    for units in run.units.values():
        for unit in units:
            unit.total_us[5] *= 1.5
    panel = content("ranks", run)
    (entry,) = panel["slowest"]
    assert (entry["rank"], entry["host"], entry["even"]) == ("5", "node-01", "12 %")
    assert float(entry["share"].removesuffix(" %")) > 90
    (fence,) = panel["fences"]
    assert (fence["median_us"], fence["p95_us"]) == ("3.10 µs", "8.40 µs")
    (trace,) = next(iter(figures_of(run)["rank-map"].plots.values()))["isolated"].data
    assert len(trace["y"]) == 8
    assert min(trace["z"][5]) > 20
    assert max(max(line) for line in trace["z"][:5]) < 20


def test_map_of_many_ranks_begins_with_the_odd_one() -> None:
    run = make_run(sizes=(8, 4096), ops=("all_reduce",), modes=("isolated",), nranks=200)
    for units in run.units.values():
        for unit in units:
            unit.total_us[77] *= 2
    (plot,) = next(iter(figures_of(run)["rank-map"].plots.values())).values()
    assert len(plot.data[0]["y"]) == 48
    assert plot.data[0]["y"][0] == "rank 77"
    assert plot.note == "The 48 of 200 ranks that are furthest from the middle, worst first."


# --- what is missing, and where it ran


def test_what_is_missing_is_grouped_by_reason() -> None:
    run = make_run(sizes=SMALL, arms=("gloo", "nccl2"))
    for entry in run.plan.cases:
        del run.units[entry.case.key, "nccl2"]
        run.statuses[entry.case.key, "nccl2"] = ("unavailable", "there is no GPU")
    skip(run, 0, "less than one element")
    run.problems = ["samples.jsonl: torn last line dropped"]
    panel = content("unmeasured", run)
    assert [(group["status"], group["count"], group["reason"]) for group in panel["groups"]] == [
        ("unavailable", 11, "there is no GPU"),
        ("skipped", 2, "less than one element"),
    ]
    assert panel["groups"][1]["which"] == "all_reduce on gloo and nccl2, size 8"
    assert panel["problems"][0]["text"] == "samples.jsonl: torn last line dropped"
    assert verdict_of(run)["rest"] == "11 unavailable, 2 skipped"


def test_differences_between_hosts_come_with_their_hosts(two_arms: Run) -> None:
    (block,) = content("environment", two_arms)["runs"]
    (difference,) = block["different"]
    assert difference.key == "driver"
    assert difference.values == [("590.44", "node-00"), ("580.12", "node-01")]
    assert ("cpu.model", "EPYC 9554") in block["alike"]
    assert [finding["severity"] for finding in block["findings"]] == ["error", "warning"]
    assert [finding["ranks"] for finding in block["findings"]] == ["", "ranks 1-3"]
    facts = dict(block["facts"])
    assert facts["command"] == "ncclbench sweep --ops all_reduce,broadcast"
    assert facts["seed"] == "1"


def test_many_hosts_stay_readable() -> None:
    hosts = [
        (f"node-{index}", {"serial": str(index), "driver": "1" if index else "2"}) for index in range(500)
    ]
    different, alike = split_by_difference(hosts)
    serial, driver = different
    assert (len(serial.values), serial.more) == (8, 492)
    assert driver.values[0] == ("2", "node-0")
    assert driver.values[1][1].endswith("and 492 more")
    assert alike == []


def test_flattening_keeps_every_leaf() -> None:
    nested = {"cpu": {"model": "x", "cores": 4}, "gpus": [{"name": "H200"}, {"name": "B200"}], "numa": [0, 1]}
    assert flattened(nested | {"none": None, "empty": {}}) == {
        "cpu.model": "x",
        "cpu.cores": "4",
        "gpus.0.name": "H200",
        "gpus.1.name": "B200",
        "numa": "0, 1",
        "none": "null",
        "empty": "{}",
    }


def test_cold_costs_are_the_slowest_ranks() -> None:
    run = make_run(sizes=SMALL)
    run.cold[0]["first_op_us"] = None
    (row,) = content("cold", run)["rows"]
    assert row["cells"][:4] == ["11.5 ms", "2.49 ms", "810 µs", "862 µs"]
    assert row["epochs"] == 3


def test_how_to_read_names_the_factor_and_the_clock() -> None:
    text = page_of(make_run(sizes=SMALL, nranks=4)).text
    assert "all_reduce on 4 ranks 1.50" in text
    assert "host time until the operation is done" in text
    assert "CUDA events" not in text


# --- the table


def test_columns_alike_in_all_rows_become_one_line() -> None:
    table = content("table", make_run(sizes=SMALL, ops=("all_reduce",)))
    assert [column.title for column in table["columns"]] == [
        "collective",
        "size",
        "count",
        "mode",
        "time",
        "95 % interval",
        "p95",
        "algbw",
        "busbw",
        "#wrong",
        "n",
    ]
    assert "type float32" in table["alike"]
    assert "ranks 2" in table["alike"]
    assert "root" not in table["alike"]
    several = content("table", make_run(sizes=SMALL, dtypes=("float32", "int8"), arms=("a", "b")))
    assert {"arm", "type"} <= {column.title for column in several["columns"]}


def test_every_row_is_in_the_html_without_scripts() -> None:
    run = make_run(sizes=SMALL)
    skip(run, 0, "less than one element")
    page = page_of(run)
    rows = report_of([run]).rows
    assert page.text.count("all_reduce 8 2 back-to-back") == 1
    assert f"{rows[1]['median_us']:.2f}" in page.text
    assert "skipped less than one element" in page.text


def test_data_for_download_is_unrounded_and_finite() -> None:
    report = report_of([make_run(sizes=SMALL)])
    report.rows[0]["p99_us"] = math.inf
    data = columnar(report.rows)
    rows = [dict(zip(data["keys"], values, strict=True)) for values in data["values"]]
    assert rows[1]["median_us"] == report.rows[1]["median_us"]
    assert rows[0]["p99_us"] is None
    json.dumps(data, allow_nan=False)
