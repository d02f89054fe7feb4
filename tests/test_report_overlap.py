"""What is said of overlap, on the terminal and on the page: how much hides, and where that is no figure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from overlap_fixtures import make_overlap, make_place, make_skip, make_times, over_epochs, written
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, drawing_of, figures_of, page_of

from ncclbench.cli.app import run as run_command
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import ALWAYS
from ncclbench.report.panels import PANELS
from ncclbench.stats.overlap import overlap_rows
from ncclbench.store.model import Run
from ncclbench.store.reader import ENDED_SILENTLY
from ncclbench.terminal.overlap import overlap_lines

SEVERAL = [
    result
    for compute, hidden in (("fma", 0.97), ("triad", 0.6))
    for nbytes in (1 << 16, 1 << 20)
    for result in over_epochs(hidden, compute=compute, nbytes=nbytes)
]


def block(run: Run) -> dict[str, Any]:
    (found,) = content("overlap", run)["blocks"]
    return dict(found)


# --- on the terminal


def test_a_line_for_each_case_with_its_control() -> None:
    lines = overlap_lines(overlap_rows(make_overlap(SEVERAL)))
    assert lines[0] == "# all_reduce float32 on gloo (ProcessGroupGloo (gloo)), 2 ranks"
    assert lines[1].split()[1:] == [
        *("size", "beside", "comm", "compute", "together", "hidden", "+-", "serial", "comm", "compute")
    ]
    first = lines[3].split()
    assert first[:4] == ["64K", "fma", "1000.0", "1000.0"]
    assert first[5].startswith("0.9")
    assert 0.01 <= float(first[6]) <= 0.05
    assert first[7:] == ["0.00", "1.10x", "1.20x"]
    assert len(lines) == 3 + 4 + 3
    widths = {len(line) for line in lines[3:7]}
    assert len(widths) == 1, "columns stand below each other"


def test_marks_and_reasons_of_what_is_no_figure() -> None:
    lines = overlap_lines(
        overlap_rows(
            make_overlap([*over_epochs(), *over_epochs(nbytes=64, control=0.4), make_skip(), *wrong()])
        )
    )
    assert [line.split()[6:8] for line in lines[3:6]] == [
        ["0.03", "0.00"],
        ["no", "figure"],
        ["no", "figure"],
    ]
    assert [line.endswith("  WRONG DATA") for line in lines[3:6]] == [False, False, True]
    assert lines[-4].startswith("# no overlap figure, 1 of 4: the serial control reads 0.40")
    assert lines[-2] == "# WRONG DATA, 1 of 4: 2 elements of the collective's results are wrong"
    assert lines[-1] == "# skipped, 1 of 4: graph needs CUDA"


def wrong() -> list[Any]:
    return [make_times(nbytes=4096, wrong=2)]


def test_free_multiprocessors_have_a_column_on_a_gpu() -> None:
    lines = overlap_lines(overlap_rows(make_overlap(on_gpu())))
    assert lines[1].split()[3] == "free"
    assert lines[3].split()[:3] == ["1M", "fma", "0"]
    assert lines[4].split()[:3] == ["1M", "fma", "16"]


@pytest.mark.parametrize("free_sms", [None, 132])
def test_a_terminal_of_80_columns_is_wide_enough(free_sms: int | None) -> None:
    # Seven characters are the longest time there is; three digits of an efficiency mean nothing any more.
    long = {"comm_us": 9_123_456.0, "compute_us": 9_123_456.0, "nbytes": 512 << 20, "free_sms": free_sms}
    rows = overlap_rows(make_overlap([*over_epochs(-12.5, compute="triad", **long), make_skip("why " * 40)]))
    assert max(map(len, overlap_lines(rows))) <= 80


def on_gpu() -> list[Any]:
    return [
        result
        for free, hidden in ((0, 0.5), (16, 0.9))
        for result in over_epochs(hidden, free_sms=free, arm="nccl2")
    ]


# --- on the page


def test_words_come_first() -> None:
    found = block(make_overlap(SEVERAL))
    assert found["tone"] == "good"
    assert found["headline"].startswith("gloo over eth0: 0.6")
    assert "beside fma) of the shorter hidden" in found["headline"]
    assert found["reasons"] == []
    assert [figure.name for figure in found["figures"]] == ["hidden-0", "slowdown-0"]
    row = found["rows"][0]
    assert (row["size"], row["compute"], row["control"], row["n"]) == ("64K", "fma", "0.00", "24 in 6 epochs")
    assert row["times"][:2] == ["1.00 ms", "1.00 ms"]
    assert row["slowdowns"] == ["1.10x", "1.20x"]


def test_no_figure_is_a_warning_in_the_headline_and_told_once() -> None:
    found = block(make_overlap(environment=make_place((0, 0))))
    assert found["tone"] == "warn"
    assert "no overlap figure: both ranks are on one host" in found["headline"]
    assert found["reasons"] == []
    assert found["rows"][0]["interval"] == "no figure"


def test_wrong_data_is_bad_and_first() -> None:
    found = block(make_overlap([*over_epochs(), *wrong()]))
    assert found["tone"] == "bad"
    assert found["headline"] == "WRONG DATA in 2 rows"
    assert found["others"][0].startswith("gloo over eth0: 0.9")
    assert found["reasons"] == [
        {"what": "1 case, WRONG DATA", "why": "2 elements of the collective's results are wrong"}
    ]
    assert found["rows"][1]["is_wrong"] is True


def test_a_run_that_ended_early_says_so() -> None:
    found = block(make_overlap(status="interrupted", message="ended by SIGINT"))
    assert found["tone"] == "warn"
    assert found["ending"] == "interrupted: ended by SIGINT"
    killed = make_overlap(status="running")
    killed.problems.append(ENDED_SILENTLY)
    assert block(killed)["ending"] == "ended without a word (killed, or disk full?)"


def test_failed_cases_are_bad_and_before_the_figures() -> None:
    failed = make_skip("capture refused", status="failed")
    found = block(make_overlap([*over_epochs(), failed]))
    assert (found["tone"], found["headline"]) == ("bad", "2 rows failed")
    found = block(make_overlap([*over_epochs(epochs=3, mode="graph"), failed]))
    assert (found["rows"][0]["n"], found["rows"][0]["interval"]) == ("12 in 3 epochs", "failed")


def test_curves_are_the_rows_with_their_intervals() -> None:
    run = make_overlap(SEVERAL)
    (plot,) = figures_of(run)["hidden-0"].plots[ALWAYS].values()
    names = [trace["name"] for trace in plot.data]
    assert names == ["fma", "fma, serial control", "triad", "triad, serial control"]
    row = next(row for row in overlap_rows(run) if row["nbytes"] == 1 << 20 and row["compute"] == "fma")
    fma = plot.data[0]
    assert fma["y"][1] == pytest.approx(row["efficiency"], rel=1e-4)
    assert fma["error_y"]["array"][1] == pytest.approx(row["ci_high"] - row["efficiency"], rel=1e-3)
    assert fma["x"][0] < plot.data[2]["x"][0], "side by side, not on top of each other"
    low, high = plot.layout["yaxis"]["range"]
    assert low < 0 < 1 < high
    (slowed,) = figures_of(run)["slowdown-0"].plots[ALWAYS].values()
    assert [trace["name"] for trace in slowed.data] == [
        *("comm beside fma", "fma itself", "comm beside triad", "triad itself")
    ]
    assert slowed.data[0]["y"] == pytest.approx([1.1, 1.1])


def test_one_wild_interval_does_not_flatten_the_rest() -> None:
    run = make_overlap([make_times(0.9), make_times(-400.0, epoch=1)])
    (plot,) = figures_of(run)["hidden-0"].plots[ALWAYS].values()
    assert plot.layout["yaxis"]["range"] == [-1.05, 2.05]
    assert "Not drawn, as below -1 or above 2: 1 point." in plot.note


def test_points_that_are_no_figure_are_hollow_and_all_stand_on_the_axis() -> None:
    sizes = [result for nbytes in (1 << 16, 1 << 20) for result in over_epochs(nbytes=nbytes)]
    kernels = [result for name in ("triad", "gemm") for result in over_epochs(compute=name, nbytes=1 << 16)]
    run = make_overlap([*sizes, *kernels, *over_epochs(control=0.5, nbytes=1 << 18)])
    (plot,) = figures_of(run)["hidden-0"].plots[ALWAYS].values()
    assert plot.data[0]["marker"]["symbol"] == ["circle", "circle-open", "circle"]
    assert plot.note.endswith("Hollow: no overlap figure.")
    for name in ("hidden-0", "slowdown-0"):
        (plot,) = figures_of(run)[name].plots[ALWAYS].values()
        low, high = plot.layout["xaxis"]["range"]
        assert all(low < math.log10(x) < high for trace in plot.data for x in trace["x"])


def test_on_a_gpu_against_the_free_multiprocessors() -> None:
    place = make_place((0, 0), device="cuda:{}")
    run = make_overlap(on_gpu(), arms=("nccl2",), environment=place)
    (plot,) = figures_of(run)["free-0"].plots[ALWAYS].values()
    (curve,) = plot.data
    assert curve["x"] == [0, 16]
    assert curve["y"] == pytest.approx([0.5, 0.9], abs=0.03)
    assert list(figures_of(run)["hidden-0"].plots[ALWAYS]) == [
        "0 SMs free: all_reduce float32 on nccl2",
        "16 SMs free: all_reduce float32 on nccl2",
    ]
    assert block(run)["headline"].startswith("nccl2 on 2 GPUs: 0.")


def test_page_has_what_it_needs_and_no_more() -> None:
    page = page_of(make_overlap(SEVERAL))
    assert {name for name in page.ids() if name in PANELS} == {"overlap", "environment", "howto"}
    assert "Serial control: the same with the two one after the other" in page.text


def test_beside_a_sweep_and_of_nothing() -> None:
    page = page_of(make_run(sizes=SMALL), make_overlap())
    assert {"overlap", "verdict", "curves"} <= page.ids()
    assert PANELS["overlap"].build(report_of([make_run(sizes=SMALL)])) is None
    only_skipped = block(make_overlap([make_skip()]))
    assert only_skipped["headline"].endswith("no overlap figure: graph needs CUDA")
    assert only_skipped["figures"] == []


def test_hostile_words_stay_text() -> None:
    lines = over_epochs(op=HOSTILE, dtype=HOSTILE, arm=HOSTILE, compute=HOSTILE, implementation=HOSTILE)
    run = make_overlap(
        [*lines, make_skip(HOSTILE)], arms=(HOSTILE,), label=HOSTILE, message=HOSTILE, status="failed"
    )
    html = render(report_of([run]))
    page = Page(html)
    assert "<script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    data = json.dumps(drawing_of(html)["figures"]["hidden-0"]["plots"][""])
    assert "alert" in data
    assert "<script" not in json.dumps(
        [plot["data"] for plot in drawing_of(html)["figures"]["hidden-0"]["plots"][""].values()]
    )
    for line in overlap_lines(overlap_rows(run)):
        assert line.isprintable()


# --- the commands


def test_the_report_command_reads_it_and_compare_refuses_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (written(tmp_path / name, make_overlap()) for name in ("a", "b"))
    assert run_command(["report", str(one), "--json"]) == 0
    capsys.readouterr()
    assert "of the shorter hidden" in Page((one / "report.html").read_text("utf-8")).text
    assert run_command(["compare", str(one), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is of ncclbench overlap and has no rows to compare" in line


def test_names_can_be_taken_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = make_place()
    for number, host in enumerate(place["hosts"]):
        host["name"] = f"falcon{number}.secret-site.example"
    run = make_overlap(
        [*over_epochs(), make_skip("falcon1.secret-site.example refused", nbytes=64, mode="eager")],
        environment=place,
    )
    folder = written(tmp_path / "run", run)
    assert run_command(["report", str(folder), "--redact", "--out", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "falcon" not in page
    assert "of the shorter hidden" in Page(page).text
