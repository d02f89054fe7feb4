"""What the report of a run with several arms says beside its verdicts: how sure, how precise, and why not."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from report_fixtures import SMALL, make_calibration, make_case, make_run, two_arms_run
from report_reading import content, figures_of, page_of, verdict_of

from ncclbench.plan.model import Injection
from ncclbench.report.build import report_of
from ncclbench.report.calibrations import MISSING, UNREADABLE
from ncclbench.report.claims import detail_text, interval_text, summarised
from ncclbench.report.marks import comparison_marks, row_marks
from ncclbench.store.model import Run, Stop

ISOLATED = ("isolated",)


def arms_run(**settings: Any) -> Run:
    """Two equal arms on one operation."""
    fixed = {"ops": ("all_reduce",), "sizes": SMALL, "modes": ISOLATED, "arms": ("a", "b"), "epochs": 12}
    return make_run(**{**fixed, "iters": 240, **settings})


def key_of(nbytes: int) -> str:
    return make_case("all_reduce", nbytes).key


# --- ratio by quantile


def test_ratio_by_quantile_marks_what_the_verdict_compares() -> None:
    run = two_arms_run()
    rows = [row for row in report_of([run]).comparisons if row["op"] == "all_reduce"]
    (options, _) = figures_of(run)["shift"].plots.values()
    largest = max(rows, key=lambda row: abs(math.log(row["ratio"])))
    first, plot = next(iter(options.items()))
    assert first.endswith(largest["mode"])
    (trace,) = plot.data
    assert plot.layout["xaxis"]["ticktext"] == ["p10", "p25", "median", "p90"]
    assert trace["y"] == pytest.approx([entry["ratio"] for entry in largest["shift"]], rel=1e-4)
    up = [ratio + length for ratio, length in zip(trace["y"], trace["error_y"]["array"], strict=True)]
    assert up == pytest.approx([entry["ci_high"] for entry in largest["shift"]], rel=1e-3)
    assert trace["marker"]["color"] == [
        "var(--surface)",
        "var(--series-2)",
        "var(--surface)",
        "var(--surface)",
    ]
    assert "the verdict: slower" in trace["text"][1]
    assert "Filled: p25" in plot.note


def test_statistic_outside_the_shift_function_has_its_place_in_it() -> None:
    run = two_arms_run()
    run.plan = replace(run.plan, statistic="p75")
    plot = next(iter(next(iter(figures_of(run)["shift"].plots.values())).values()))
    assert plot.layout["xaxis"]["ticktext"] == ["p10", "p25", "median", "p75", "p90"]
    assert plot.data[0]["marker"]["size"].index(11) == 3


def test_three_arms_share_the_quantiles() -> None:
    run = arms_run(arms=("a", "b", "c"))
    (options,) = figures_of(run)["shift"].plots.values()
    one, other = next(iter(options.values())).data
    assert (one["name"], other["name"]) == ("b", "c")
    assert [right - left for left, right in zip(one["x"], other["x"], strict=True)] == pytest.approx(
        [0.12] * 4
    )


def test_ratio_by_quantile_leaves_out_what_few_samples_cannot_tell() -> None:
    run = arms_run(epochs=12, iters=108)
    (options,) = figures_of(run)["shift"].plots.values()
    plot = next(iter(options.values()))
    assert plot.layout["xaxis"]["ticktext"] == ["p25", "median"]
    assert len(plot.data[0]["y"]) == 2
    assert "Not drawn: p10 needs 10 samples in every epoch, not 9. Not drawn: p90 " in plot.note
    assert page_of(run).ids() >= {"comparison"}


# --- marks


def test_marks_of_a_row_over_time() -> None:
    row = report_of([make_run(sizes=SMALL)]).rows[0]
    row |= {"warming": True, "warming_ratio": 1.4, "drifts": True, "drift": 0.81}
    row |= {"correlated": True, "autocorrelation": 0.62, "epoch_spread": 0.01}
    marks = {mark.word: (mark.why, mark.step) for mark in row_marks(row, compared=False)}
    assert marks == {
        "warming": ("first samples 1.40x time", "more -w"),
        "drifting": ("0.81x from first to last epoch", "warm up first"),
        "correlated": ("lag 1: 0.62", "more -n"),
    }


def test_drift_is_marked_and_advised_from_the_samples() -> None:
    run = arms_run(epoch_spread=0.005, noise=0.02)
    for arm in ("a", "b"):
        for unit in run.units[key_of(4096), arm]:
            unit.total_us[:] *= 1 + 0.05 * unit.epoch
    steps = {step["what"]: step for step in content("verdict", run)["next_steps"]}
    assert "clocks" in steps["2 rows drifting"]["step"]
    assert steps["2 rows drifting"]["which"] == "all_reduce on a and b, size 4K"
    (options,) = figures_of(run)["epochs"].plots.values()
    assert "Drift over epochs: 4K." in options["isolated"].note


def test_statistic_between_modes_is_marked_and_explained() -> None:
    run = arms_run(noise=0.02, epoch_spread=0.005)
    generator = np.random.default_rng(3)
    for unit in run.units[key_of(4096), "b"]:
        # A quarter of the samples, now more, now less, is quick: the p25 is between.
        share = 0.25 + generator.uniform(-0.15, 0.15)
        unit.total_us[:, generator.random(unit.total_us.shape[1]) > share] *= 2.5
    report = report_of([run])
    row = next(row for row in report.comparisons if row["nbytes"] == 4096)
    assert row["between_modes"]
    assert [mark.word for mark in comparison_marks(row)] == ["between modes"]
    panel = content("comparison", run)
    cell = panel["tables"][0]["lines"][0]["cells"][1]
    assert cell["between_modes"]
    assert "sits between two modes" in cell["detail"]
    assert any(line.startswith("†") for line in panel["legend"])
    steps = content("verdict", run)["next_steps"]
    assert any(step["what"] == "1 comparison between modes" for step in steps)


def test_correlated_and_drifting_ratios_are_marked_apart_from_rows() -> None:
    row = {"between_modes": False, "correlated": True, "autocorrelation": 0.7, "drifts": True, "drift": 1.2}
    assert [(mark.word, mark.why) for mark in comparison_marks(row)] == [
        ("correlated", "lag 1: 0.70"),
        ("drifting", "1.20x from first to last epoch"),
    ]


# --- unclear, and what could have been found


def test_unclear_says_what_could_have_been_found() -> None:
    run = arms_run(epoch_spread=0.06)
    report = report_of([run])
    unclear = [row for row in report.comparisons if row["verdict"] == "unclear" and not row["note"]]
    assert unclear
    cells = content("comparison", run)["tables"][0]["lines"][0]["cells"]
    for row in unclear:
        cell = cells[SMALL.index(row["nbytes"])]
        percent = 100 * row["detectable"]
        assert cell["least"] == (f"≥{percent:.0f}%" if percent >= 10 else f"≥{percent:.1f}%")
        assert "or more could have been found" in cell["detail"]
    (pair,) = verdict_of(run)["pairs"]
    assert any("no difference below" in line and "could have been found" in line for line in pair["lines"])
    assert "≥" in page_of(run).text


def test_clear_verdicts_say_nothing_of_the_kind() -> None:
    run = two_arms_run()
    assert {row["verdict"] for row in report_of([run]).comparisons} == {"slower"}
    assert not any("could have been found" in line for line in verdict_of(run)["pairs"][0]["lines"])
    assert content("comparison", run)["legend"] == []


def test_case_that_is_not_lost_in_noise_has_no_smallest_difference() -> None:
    run = arms_run(noise=0.002, epoch_spread=0.001)
    for units in run.units.values():
        for unit in units:
            unit.start_us[0] += 50
    rows = report_of([run]).comparisons
    assert "fence-bound" in rows[0]["note"]
    assert rows[0]["detectable"] < 0.05
    cells = content("comparison", run)["tables"][0]["lines"][0]["cells"]
    assert [cell["least"] for cell in cells] == ["", "", ""]


def test_reason_of_unclear_cases_is_counted() -> None:
    run = arms_run(epochs=4)
    (pair,) = verdict_of(run)["pairs"]
    assert pair["lines"] == ["3 unclear: 4 epochs on both arms, a verdict needs 6."]


def test_note_of_runs_is_a_reason_only_where_it_is_a_doubt() -> None:
    row = {"verdict": "unclear", "ratio": 1.02, "beyond_margin": False, "tail": None, "detectable": 0.04}
    row |= {"op": "all_reduce", "dtype": "float32", "nbytes": 8, "mode": "isolated"}
    row |= {"note": "about these nodes only (1 against 1), not about their kind", "doubt": None}
    (line,) = summarised("a", "b", [row]).lines
    assert line.startswith("In 1 unclear case no difference below 4.0 %")
    (line,) = summarised("a", "b", [row | {"doubt": "2 against 2 launches"}]).lines
    assert line == "1 unclear: 2 against 2 launches."


def test_many_reasons_are_summed_up() -> None:
    run = arms_run(sizes=(8, 16, 32, 64, 128), epochs=6)
    for nbytes in (16, 32, 64, 128):
        del run.units[key_of(nbytes), "b"]
        run.statuses[key_of(nbytes), "b"] = ("failed", f"rank 0 died in {nbytes}")
    (pair,) = verdict_of(run)["pairs"]
    assert "1 unclear: b: rank 0 died in 16." in pair["lines"]
    assert sum("rank 0 died" in line for line in pair["lines"]) == 3
    assert "1 unclear for other reasons." in pair["lines"]


# --- precision


def test_precision_says_what_reached_it_and_what_did_not() -> None:
    run = arms_run()
    run.plan = replace(run.plan, precision=0.02)
    run.stops = {
        key_of(8): Stop(12, "precision", 0.017),
        key_of(4096): Stop(32, "budget", 0.043),
        key_of(1 << 20): Stop(96, "epochs", None),
    }
    details = verdict_of(run)["details"]
    assert "1 of 3 cases reached the precision of ±2.0 % (half-widths up to ±1.7 %)." in details
    assert "1 case ran out of the time budget at ±4.3 %, all_reduce 4K isolated." in details
    assert "1 case used up its epochs." in details
    facts = dict(content("environment", run)["runs"][0]["facts"])
    assert facts["asked for"] == "at most 12 epochs of fresh process groups, until ±2.0 %"


def test_run_without_precision_tells_only_of_a_spent_budget() -> None:
    run = arms_run()
    run.stops = {key_of(8): Stop(12, "epochs", 0.01), key_of(4096): Stop(9, "budget", 0.05)}
    assert "1 of 2 cases stopped by the time budget." in verdict_of(run)["details"]
    run.stops = {key_of(8): Stop(12, "epochs", 0.01)}
    assert verdict_of(run)["details"] == []


def test_slowdown_put_in_on_purpose_is_never_silent() -> None:
    run = arms_run()
    run.plan = replace(run.plan, injection=Injection("b", None, None, 0.1))
    assert "A slowdown was put into b on purpose." in verdict_of(run)["details"]


# --- calibration


def test_calibration_stands_beside_the_verdict_counts() -> None:
    known = make_calibration(
        ("all_reduce", 4096, "isolated", 0.021), ("all_reduce", 1 << 20, "isolated", 0.054)
    )
    run = arms_run(calibration=known)
    assert verdict_of(run)["calibration"] == [
        "A/A on this machine, 2026-11-27: 3 of 60 equal pairs called different (95 % interval of the rate "
        "1.0 % to 14 %); resolves 2.1 % (all_reduce 4K isolated) to 5.4 % (all_reduce 1M isolated) in 20 s "
        "a case."
    ]
    first, second, _ = content("comparison", run)["tables"][0]["lines"][0]["cells"]
    assert "calibrated: 2.1 % can be found in 20 s" in second["detail"]
    assert "calibrated" not in first["detail"]
    (block,) = content("calibration", run)["blocks"]
    assert block["advice"] == known["advice"]
    assert block["lines"][0][:5] == ["all_reduce float32", "4K", "isolated", "p25", "2.1 %"]


def test_missing_calibration_is_said_where_there_is_a_claim() -> None:
    assert verdict_of(arms_run())["calibration"] == [MISSING]
    assert "ncclbench calibrate" in page_of(arms_run()).text
    assert verdict_of(make_run(sizes=SMALL))["calibration"] == []


@pytest.mark.parametrize("broken", [{}, {"resolution": 3}, make_calibration() | {"comparisons": "many"}])
def test_calibration_that_is_none_is_no_traceback(broken: dict[str, Any]) -> None:
    run = arms_run(calibration=broken)
    assert verdict_of(run)["calibration"] == [UNREADABLE]
    page_of(run)


def test_calibration_of_a_later_version_can_be_read() -> None:
    known = json.loads(json.dumps(make_calibration(("all_reduce", 4096, "isolated", None))))
    known["more"] = known["resolution"][0]["more"] = [1]
    (line,) = verdict_of(arms_run(calibration=known))["calibration"]
    assert line.endswith("(95 % interval of the rate 1.0 % to 14 %).")


# --- nothing is dropped


def test_all_epochs_are_drawn_in_their_order_and_wild_ones_inside_the_axis() -> None:
    run = arms_run(arms=("a",), epochs=12)
    for unit in run.units[key_of(4096), "a"]:
        if unit.epoch == 7:
            unit.total_us[:] *= 40
    (options,) = figures_of(run)["epochs"].plots.values()
    plot = options["isolated"]
    points = plot.data[-1]
    assert len(points["x"]) == 12 * len(SMALL)
    assert points["x"][:12] == sorted(points["x"][:12])
    assert math.log10(max(points["y"])) < plot.layout["yaxis"]["range"][1]
    assert max(points["y"]) > 30


def test_bimodal_case_is_marked_in_its_samples() -> None:
    run = arms_run(arms=("a",))
    for unit in run.units[key_of(4096), "a"]:
        unit.total_us[:, ::2] *= 2
    row = next(row for row in report_of([run]).rows if row["nbytes"] == 4096)
    assert row["bimodal"]
    (options,) = figures_of(run)["samples"].plots.values()
    plot = options["4K isolated"]
    assert [shape["x0"] for shape in plot.layout["shapes"]] == [row["mode_low_us"], row["mode_high_us"]]
    assert "Bimodal on a" in plot.note
    assert options["8 isolated"].layout["shapes"] == []
    (epochs,) = figures_of(run)["epochs"].plots.values()
    assert "Samples with two modes: 4K." in epochs["isolated"].note


def test_ends_of_an_interval_have_the_same_digits() -> None:
    assert interval_text(1.034, 1.0812) == "[1.034x, 1.081x]"
    assert interval_text(1.21, 1.3) == "[1.21x, 1.30x]"
    assert interval_text(None, None) == ""


def test_detail_without_an_interval_says_what_it_rests_on() -> None:
    row = {"verdict": "unclear", "ratio": 1.2, "ci_low": None, "ci_high": None, "statistic": "p25"}
    row |= {"base_launches": 1, "new_launches": 1, "epochs": 8, "note": "these two launches differ"}
    row |= {"tail": None, "detectable": None, "between_modes": False, "unit": "launches"}
    assert detail_text(row) == "1.20x time, unclear; 1 and 1 launches; these two launches differ"
