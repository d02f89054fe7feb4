"""Hardware and requirements in the report: the first panel, shares of peaks in words, the line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hardware_fixtures import busbw_of, gpu_run, rdma
from report_browsing import Browser, started_chromium
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, figures_of

from ncclbench.hardware.judging import Judged, judge_requirements
from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import Plot
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

GIB = 1 << 30
SIZES = (8, 1 << 20, GIB, 8 * GIB)


def h100() -> Run:
    return gpu_run(sizes=SIZES, ops=("all_reduce", "all_gather"), time_us=busbw_of(485))


def html(run: Run, *texts: str) -> str:
    requirements = [parse_requirement(text) for text in texts]
    return render(report_of([run], judge_requirements(run_rows(run), machine_of(run), requirements)))


def bandwidth(run: Run, op: str = "all_reduce") -> Plot:
    plots = figures_of(run)["bandwidth"].plots
    family = next(family for family in plots if family.startswith(f"{op}/"))
    return plots[family]["back-to-back"]


# The panel.


def test_requirements_stand_above_the_verdict_with_what_decided() -> None:
    page = Page(html(h100(), "90%peak", "all_reduce@8G>=450GB/s", "all_reduce@8<=1us", "all_to_all>=1GB/s"))
    assert [attributes["id"] for attributes in page.tagged("section")][:2] == ["requirements", "verdict"]
    assert "4 requirements: 1 not met, 1 unclear, 2 met" in page.text
    classes = [attributes.get("class") for attributes in page.tagged("tr")]
    assert [name for name in classes if name in ("pass", "fail", "unclear")] == [
        "pass",
        "pass",
        "fail",
        "unclear",
    ]
    assert "at least 90 % of the NVLink peak (450 GB/s, NVLink 4)" in page.text
    assert "all_to_all was not measured" in page.text


@pytest.mark.parametrize(
    ("texts", "headline", "tone"),
    [
        (("all_reduce@8G>=1GB/s",), "Requirement met", "good"),
        (("all_reduce@8G>=1GB/s", "90%peak"), "All 2 requirements met", "good"),
        (("all_to_all>=1GB/s",), "Requirement unclear", "warn"),
        (("all_reduce@8<=1us", "all_to_all>=1GB/s"), "2 requirements: 1 not met, 1 unclear", "bad"),
    ],
)
def test_the_headline_and_its_colour_are_the_worst_answers(
    texts: tuple[str, ...], headline: str, tone: str
) -> None:
    page = Page(html(h100(), *texts))
    first = next(
        attributes for attributes in page.tagged("div") if "verdict" in (attributes.get("class") or "")
    )
    assert first["class"] == f"verdict {tone}"
    assert headline in page.text


def test_no_requirement_no_panel() -> None:
    assert "requirements" not in Page(html(h100())).ids()


def test_texts_from_a_run_stay_texts() -> None:
    judged = [Judged(HOSTILE, "fail", HOSTILE, op=HOSTILE, arm=HOSTILE)]
    page = Page(render(report_of([h100()], judged)))
    assert not page.tagged("img")
    assert "alert('1')" in page.text


# Shares of peaks in words.


def peaks(run: Run) -> dict[str, dict[str, str]]:
    return {peak["op"]: peak for peak in content("verdict", run)["peaks"]}


def test_each_peak_stands_with_its_share_and_what_is_stated() -> None:
    found = peaks(h100())
    assert found["all_reduce"]["share"] == (
        "105 % of the NVLink peak (450 GB/s, NVLink 4): in-network reduction likely (NVLS); "
        "480 GB/s stated by NCCL maintainers"
    )
    assert "370 GB/s stated by NCCL maintainers" in found["all_gather"]["share"]
    assert found["all_reduce"]["share"] in Page(html(h100())).text


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (make_run(sizes=SMALL), "No share of a hardware peak: measured on the CPU."),
        (
            gpu_run(sizes=SMALL, nranks=1),
            "No share of a hardware peak: 1 rank: bus bandwidth is 0 by definition.",
        ),
        (gpu_run(sizes=SMALL, nranks=16, hosts=2), "No share of a hardware peak: NIC rate unknown."),
    ],
    ids=["cpu", "1 rank", "no nics"],
)
def test_without_a_reference_the_page_says_so_once(run: Run, says: str) -> None:
    text = Page(html(run)).text
    assert text.count(says) == 1
    assert "peak busbw is" not in text, "no column of dashes"


# The line.


def test_the_peak_is_a_dashed_line_with_its_name() -> None:
    plot = bandwidth(h100())
    (shape,) = plot.layout["shapes"]
    assert (shape["y0"], shape["y1"], shape["line"]["dash"]) == (450, 450, "dash")
    (label,) = plot.layout["annotations"]
    assert label["text"] == "NVLink 4: 450 GB/s"
    assert label["y"] == pytest.approx(math.log10(450)), "plotly takes a logarithmic axis' annotations so"
    assert shape["line"]["color"] == label["font"]["color"] == "var(--ink)", "suits both pages"
    low, high = plot.layout["yaxis"]["range"]
    assert low < math.log10(450) < high
    assert plot.note == ""
    assert not any("shapes" in state.layout for state in _states(h100(), "latency"))


def test_a_peak_far_above_the_curve_is_inside_the_figure() -> None:
    plot = bandwidth(gpu_run(sizes=(8, 4096), ops=("all_reduce",)))
    assert plot.layout["yaxis"]["range"][1] > math.log10(450)


def test_what_is_stated_is_marked_at_its_sizes() -> None:
    marks = [trace for trace in bandwidth(h100()).data if trace["line"].get("dash") == "dot"]
    assert [(trace["x"], trace["y"]) for trace in marks] == [([GIB, 8 * GIB], [480, 480])]
    assert marks[0]["text"] == ["480 GB/s stated by NCCL maintainers"] * 2


def test_two_machines_have_a_line_each() -> None:
    runs = (h100(), gpu_run("NVIDIA B200", sizes=SIZES, time_us=busbw_of(830)))
    plots = figures_of(*runs)["bandwidth"].plots
    plot = next(plot["back-to-back"] for family, plot in plots.items() if family.startswith("all_reduce/"))
    assert [shape["y0"] for shape in plot.layout["shapes"]] == [450, 900]


def test_where_there_is_no_line_a_sentence_says_why() -> None:
    cpu = bandwidth(make_run(sizes=SMALL))
    assert cpu.layout["shapes"] == []
    assert cpu.note == "No line for the hardware's peak: measured on the CPU."
    nics = bandwidth(gpu_run(sizes=SMALL, nranks=16, hosts=2, nics=rdma(400)))
    assert nics.layout["annotations"][0]["text"] == "NICs, 8 x 400 Gb/s InfiniBand (NDR) a host: 400 GB/s"


def test_the_share_stands_under_the_pointer() -> None:
    curve = next(trace for trace in bandwidth(h100()).data if trace["mode"] == "lines+markers")
    assert curve["text"][-1].endswith("105 % of the NVLink peak")


def _states(run: Run, figure: str) -> list[Plot]:
    return [plot for options in figures_of(run)[figure].plots.values() for plot in options.values()]


# In a browser.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from started_chromium()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_line_and_name_are_drawn_and_can_be_read(chromium: Any, scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html(h100(), "90%peak"), "utf-8")
    with Browser(chromium) as browser:
        visit = browser.open(path, color_scheme=scheme).drawn()
        figure = visit.page.locator("[data-figure=bandwidth] .plot")
        assert figure.locator(".annotation-text").all_text_contents() == ["NVLink 4: 450 GB/s"]
        line = figure.locator(".shapelayer path")
        assert line.count() == 1
        drawn = line.evaluate("element => getComputedStyle(element).stroke")
        ink = visit.page.evaluate("getComputedStyle(document.body).color")
        assert drawn == ink, "as dark or light as the page's own text"
        assert line.bounding_box()["width"] > 300
        assert visit.page.locator("#requirements").is_visible()
        assert not visit.faults
