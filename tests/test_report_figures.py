"""The report's figures: what they draw, on which axes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_fixtures import SIZES, SMALL, make_case, make_run, two_arms_run
from report_reading import Page, content, figures_of, page_of, verdict_of

from ncclbench.plan.model import PlannedCase
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import log_axis, log_ticks, plain, ratio_axis, size_axis
from ncclbench.report.model import Report
from ncclbench.report.panels import PANELS
from ncclbench.report.text import list_text, ranges_text, rate_text, tick, time_text
from ncclbench.store.model import Run

STYLE = Path(__file__).resolve().parent.parent / "ncclbench" / "report" / "templates" / "style.css"


@pytest.fixture(scope="module")
def two_arms() -> Run:
    return two_arms_run()


# --- curves


def test_curves_hold_the_rows() -> None:
    run = make_run(sizes=SMALL)
    rows = [
        row for row in report_of([run]).rows if (row["op"], row["mode"]) == ("all_reduce", "back-to-back")
    ]
    options = figures_of(run)["bandwidth"].plots["all_reduce/float32/sum/None/world/False/True/2"]
    assert list(options) == ["back-to-back", "isolated"]
    band, line = options["back-to-back"].data
    assert line["x"] == [row["nbytes"] for row in rows]
    assert line["y"] == pytest.approx([row["busbw_GBs"] for row in rows], rel=1e-4)
    high, low = band["y"][:3], band["y"][:2:-1]
    for middle, below, above, row in zip(line["y"], low, high, rows, strict=True):
        assert below <= middle <= above
        assert above == pytest.approx(row["busbw_GBs"] * row["median_us"] / row["ci_low_us"], rel=1e-3)


def test_latency_is_read_from_isolated_first_and_what_exists_else() -> None:
    latency = figures_of(make_run(sizes=SMALL))["latency"]
    assert [list(options) for options in latency.plots.values()] == [["isolated", "back-to-back"]] * 2
    only = figures_of(make_run(sizes=SMALL, modes=("back-to-back",)))["latency"]
    assert [list(options) for options in only.plots.values()] == [["back-to-back"]] * 2


def test_wrong_rows_are_on_no_curve() -> None:
    run = make_run(sizes=SMALL, ops=("broadcast",), modes=("isolated",))
    key = make_case("broadcast", 4096).key
    run.units[key, "gloo"] = [replace(unit, wrong=(1, 0)) for unit in run.units[key, "gloo"]]
    for name in ("bandwidth", "latency"):
        (options,) = figures_of(run)[name].plots.values()
        assert options["isolated"].data[-1]["x"] == [8, 1 << 20]


def test_one_rank_has_no_bus_and_still_a_page() -> None:
    run = make_run(sizes=SMALL, nranks=1)
    figures = figures_of(run)
    ops = {name: {key.split("/")[0] for key in figures[name].plots} for name in ("bandwidth", "latency")}
    assert ops == {"bandwidth": {"broadcast"}, "latency": {"all_reduce", "broadcast"}}
    page_of(run)


def test_operation_without_data_has_rows_but_no_curve() -> None:
    run = make_run(sizes=(8,), ops=("barrier",), modes=("isolated",))
    case = replace(make_case("barrier", 8), nbytes=0, count=0)
    units = run.units.pop((make_case("barrier", 8).key, "gloo"))
    run.units[case.key, "gloo"] = [replace(unit, case=case.key) for unit in units]
    run.plan = replace(run.plan, cases=(PlannedCase(case, "planned", None, 0),))
    report = report_of([run])
    assert PANELS["curves"].build(report) is None
    assert "barrier" in Page(render(report)).text


def test_rows_without_samples_make_a_page() -> None:
    """What an import brings: a printed mean, no intervals, no samples."""
    report = report_of([make_run(sizes=SMALL)])
    bare = ("n", "ci_low_us", "ci_high_us", "p25_us", "p95_us", "fastest_us", "skew_us", "epoch_spread")
    for row in report.rows:
        row.update(dict.fromkeys(bare))
    source = report.sources[0]
    source.run.units.clear()
    source.run.cold = []
    source.run.meta.pop("fence")
    page = Page(render(Report([source])))
    assert {"curves", "table"} <= page.ids()
    assert not {"ranks", "spread", "cold"} & page.ids()


def test_figures_are_what_plotly_knows(two_arms: Run) -> None:
    import plotly.graph_objects as graph_objects

    skip_colours = json.loads(
        re.sub(
            r"var\(--[a-z0-9-]+\)",
            "#123456",
            json.dumps([f.to_json() for f in figures_of(two_arms).values()]),
        )
    )
    count = 0
    for figure in skip_colours:
        for options in figure["plots"].values():
            for plot in options.values():
                graph_objects.Figure(data=plot["data"], layout=plot["layout"])
                count += 1
    assert count > 20


def test_every_colour_is_one_the_style_has() -> None:
    run = make_run(sizes=SMALL, arms=tuple("abcdefgh"), epochs=2, iters=4)
    used = set(
        re.findall(r"var\((--[a-z0-9-]+)\)", json.dumps([f.to_json() for f in figures_of(run).values()]))
    )
    style = STYLE.read_text("utf-8")
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", style)
    assert len(blocks) == 3
    assert len(used) > 6
    for block in blocks:
        assert used <= set(re.findall(r"(--[a-z0-9-]+):", block))


def test_arms_differ_by_more_than_colour() -> None:
    report = report_of([make_run(sizes=SMALL, arms=tuple("abcdefgh"), epochs=2, iters=4)])
    looks = {(series.colour, series.symbol, series.dash) for series in report.series.values()}
    assert len(looks) == 8
    assert len({series.symbol for series in list(report.series.values())[:6]}) == 6


# --- axes and words


def test_size_axis_speaks_bytes() -> None:
    axis = size_axis(SIZES)
    assert axis["ticktext"] == ["8", "128", "2K", "32K", "512K", "8M"]
    assert axis["tickvals"] == [8, 128, 2048, 32768, 524288, 8388608]
    assert axis["range"][0] < math.log10(8) < math.log10(1 << 26) < axis["range"][1]
    assert size_axis([4096])["ticktext"] == ["4K"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.5, 2e4, [1, 10, 100, 1e3, 1e4]),
        (30, 4000, [30, 100, 300, 1000, 3000]),
        (15, 220, [20, 50, 100, 200]),
        (45, 270, [50, 100, 150, 200, 250]),
        (0.9, 1.1, [0.9, 0.95, 1.0, 1.05, 1.1]),
    ],
)
def test_ticks_are_round_and_enough(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize("span", [1.0000001, 1.001, 1.7, 9.9, 1e3, 1e9])
@pytest.mark.parametrize("low", [1e-6, 0.37, 42.0, 8e5])
def test_ticks_lie_inside(low: float, span: float) -> None:
    ticks = log_ticks(low, low * span)
    assert 2 <= len(ticks) <= 21
    assert all(low * 0.999 <= value <= low * span * 1.001 for value in ticks)


def test_log_axis_of_one_value_is_wide_enough_to_draw() -> None:
    axis = log_axis([42.0], time_text)
    assert axis["range"][1] - axis["range"][0] >= 0.04
    assert len(axis["tickvals"]) >= 2


def test_ratio_axis_cuts_wild_intervals_off() -> None:
    assert ratio_axis([1e-9, 1.0, 1e9])["range"] == pytest.approx([-1.1, 1.1])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "0.400 ns"), (0.85, "850 ns"), (12.34, "12.3 µs"), (1200, "1.20 ms"), (3e6, "3.00 s")],
)
def test_times_have_the_unit_that_suits(value: float, text: str) -> None:
    assert time_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.5e-4, "350 KB/s"), (0.0123, "12.3 MB/s"), (48, "48.0 GB/s"), (1234, "1234 GB/s")]
)
def test_rates_are_decimal(value: float, text: str) -> None:
    assert rate_text(value) == text


def test_small_words() -> None:
    assert [tick("10.0 µs"), tick("1.20 ms"), tick("100 µs")] == ["10 µs", "1.2 ms", "100 µs"]
    assert list_text(["a"]) == "a"
    assert list_text(["a", "b", "c"]) == "a, b and c"
    assert list_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert ranges_text([3, 0, 1, 2, 7, 9, 10]) == "0-3, 7, 9-10"
    assert plain("<b>&") == "&lt;b&gt;&amp;"


# --- arms side by side


def test_ratios_stand_in_their_cells(two_arms: Run) -> None:
    (table,) = content("comparison", two_arms)["tables"]
    assert table["title"] == "nccl2 against nccl-legacy"
    assert table["sizes"] == ["8", "4K", "1M"]
    assert [(line["family"].op, line["mode"]) for line in table["lines"]] == [
        ("all_reduce", "isolated"),
        ("all_reduce", "back-to-back"),
        ("broadcast", "isolated"),
        ("broadcast", "back-to-back"),
    ]
    row = report_of([two_arms]).comparisons[0]
    cell = table["lines"][0]["cells"][0]
    assert cell["ratio"] == f"{row['ratio']:.2f}"
    assert cell["verdict"] == "slower"
    assert cell["beyond"] is True
    assert "x time, slower [" in cell["detail"]


def test_ratio_figure_shows_interval_and_margin() -> None:
    run = two_arms_run()
    run.plan = replace(run.plan, margin_us=5.0)
    rows = [
        row for row in report_of([run]).comparisons if (row["op"], row["mode"]) == ("all_reduce", "isolated")
    ]
    key = "all_reduce/float32/sum/None/world/False/True/4"
    plot = figures_of(run)["ratios"].plots[key]["isolated"]
    margin, trace = plot.data
    assert trace["y"] == pytest.approx([row["ratio"] for row in rows], rel=1e-4)
    above = [y + up for y, up in zip(trace["y"], trace["error_y"]["array"], strict=True)]
    assert above == pytest.approx([row["ci_high"] for row in rows], rel=1e-3)
    # 3 % or 5 µs, the larger: small operations have the microseconds.
    assert margin["y"][:3] == pytest.approx([1 + row["margin"] for row in rows], rel=1e-3)
    assert margin["y"][0] > 1.1
    assert margin["y"][2] == pytest.approx(1.03)


def test_case_that_failed_on_an_arm_has_a_cell_that_says_so(two_arms: Run) -> None:
    run = make_run(sizes=SMALL, arms=("a", "b"), epochs=6, iters=60)
    key = run.plan.cases[0].case.key
    del run.units[key, "b"]
    run.statuses[key, "b"] = ("failed", "rank 0 died")
    (table,) = content("comparison", run)["tables"]
    cell = table["lines"][0]["cells"][0]
    assert (cell["ratio"], cell["verdict"]) == ("", "unclear")
    assert "rank 0 died" in cell["detail"]
    page_of(run)


def test_three_arms_make_two_pairs() -> None:
    run = make_run(sizes=SMALL, arms=("a", "b", "c"), epochs=6, iters=60)
    assert [table["title"] for table in content("comparison", run)["tables"]] == [
        "b against a",
        "c against a",
    ]
    verdict = verdict_of(run)
    assert verdict["headline"] == "36 rows measured, data right"
    assert [pair["titled"] for pair in verdict["pairs"]] == [True, True]
