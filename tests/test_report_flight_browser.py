"""The page of dumps in a real browser: drawn, light and dark, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flying import job, write_json
from report_browsing import PHONE, Browser
from report_fixtures import HOSTILE

from ncclbench.flight.dumps import read
from ncclbench.flight.judge import judge
from ncclbench.report.build import render_flight
from ncclbench.report.flight.model import flight_of

FRAMES = [("step", "/job/train.py", 88)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("flights")
    jobs: dict[str, tuple[dict[int, dict[str, Any]], dict[int, str]]] = {
        "stuck": (job(nranks=8, absent=[5], frames=FRAMES), {rank: f"gpu{rank // 4}" for rank in range(8)}),
        "mismatch": (job(other={1: {"op": "broadcast"}}), {}),
        "healthy": (job(), {}),
        "large": (
            job(nranks=300, numbers=60, absent=[77], frames=FRAMES),
            {rank: f"gpu{rank // 8:03}" for rank in range(300)},
        ),
        "hostile": (
            job(absent=[2], group=("0", HOSTILE), op=f"all_reduce {HOSTILE}", frames=[(HOSTILE, HOSTILE, 1)]),
            dict.fromkeys(range(4), HOSTILE),
        ),
    }
    paths = {}
    for name, (dumps, hosts) in jobs.items():
        evidence = read(write_json(folder / name, dumps), hosts)
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render_flight(flight_of(evidence, judge(evidence))), "utf-8")
    return paths


@pytest.mark.parametrize("name", ["stuck", "mismatch", "healthy", "large", "hostile"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    visit = browser.open(pages[name]).drawn()
    assert visit.faults == []
    assert visit.requests == [pages[name].as_uri()]
    figures = visit.page.locator("[data-figure]").all()
    assert len(figures) == (1 if name == "healthy" else 2)
    for figure in figures:
        assert figure.locator(".plot svg.main-svg").count() > 0


def test_bars_and_cells_tell_what_they_are(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["stuck"]).drawn()
    page = visit.page
    assert visit.paths("flight-time-0", ".barlayer path") == 8 * 12 - 1
    assert visit.paths("flight-map-0", ".hm image, .hm path") == 1
    page.locator("[data-figure=flight-map-0]").scroll_into_view_if_needed()
    box = page.locator("[data-figure=flight-map-0] .nsewdrag").bounding_box()
    # The sixth of eight ranks, the last of twelve numbers.
    page.mouse.move(box["x"] + box["width"] * 11.3 / 12, box["y"] + box["height"] * 5.3 / 8)
    page.wait_for_selector("[data-figure=flight-map-0] .hovertext")
    said = page.locator("[data-figure=flight-map-0] .hovertext").text_content()
    assert "rank 5 (gpu1)" in said
    assert "did not come" in said
    assert visit.faults == []


@pytest.mark.parametrize("name", ["stuck", "large", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = visit.page.locator(".plot svg.main-svg").evaluate_all("all => all.map(svg => svg.clientWidth)")
    assert max(widths) <= 390
    assert visit.faults == []


def test_hostile_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["hostile"]).drawn()
    assert "<script>alert('1')</script>" in visit.page.locator("#flight").inner_text()
    assert visit.page.locator("img").count() == 0
    legend = visit.page.locator("[data-figure=flight-time-0] .legendtext").all_text_contents()
    assert any("<script>" in text for text in legend)
    assert visit.faults == []


def test_theme_repaints_the_figures(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["stuck"], color_scheme="light").drawn()

    def colours() -> set[str]:
        bars = visit.page.locator("[data-figure=flight-time-0] .barlayer path")
        return set(bars.evaluate_all("all => all.map(bar => bar.style.fill)"))

    light = colours()
    visit.page.click("#theme")
    assert visit.page.locator("html").get_attribute("data-theme") == "dark"
    assert not colours() & light
    assert visit.faults == []
