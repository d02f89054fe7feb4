"""The page of a search in a real browser: drawn, switched, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_browsing import PHONE, Browser, written
from report_fixtures import HOSTILE, SMALL, make_run
from searching_fixtures import make_search

FIGURES = 4


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("searches")
    large = make_search(
        hosts=8,
        ranks_per_host=8,
        passes=3,
        slow_hosts={2: 4.0},
        slow_pairs={(3, 41): 1.8, (41, 3): 1.8},
        slow_ranks={60: 1.9},
    )
    hostile = make_search(names=[HOSTILE] * 4, slow_hosts={2: 4.0})
    hostile.meta["label"] = HOSTILE
    runs = {
        "large": [large],
        "hostile": [hostile],
        "beside a sweep": [make_run(sizes=SMALL), make_search(slow_ranks={1: 2.0})],
    }
    return written(folder, runs)


@pytest.mark.parametrize("name", ["large", "hostile", "beside a sweep"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    visit = browser.open(pages[name]).drawn()
    assert visit.faults == []
    assert visit.requests == [pages[name].as_uri()]
    figures = visit.page.locator("[data-figure]").all()
    assert len(figures) >= FIGURES
    for figure in figures:
        assert figure.locator(".plot svg.main-svg").count() > 0


def test_map_can_be_switched_and_tells_what_is_under_the_pointer(
    browser: Browser, pages: dict[str, Path]
) -> None:
    visit = browser.open(pages["large"]).drawn()
    page = visit.page
    assert visit.paths("links-0", "path.point") == 2
    for option in ("latency", "both ways at once", "bandwidth"):
        page.locator("[data-figure=links-0] select").select_option(option)
        assert visit.paths("links-0", ".hm image") == 1
        label = page.locator("[data-figure=links-0] .plot").get_attribute("aria-label")
        assert label == f"Map of links, source by row, destination by column: {option}"
    page.locator("[data-figure=links-0]").scroll_into_view_if_needed()
    box = page.locator("[data-figure=links-0] .nsewdrag").bounding_box()
    # Row 16 is the first rank of the slow host, the first column is rank 0.
    page.mouse.move(box["x"] + box["width"] * 0.5 / 64, box["y"] + box["height"] * 16.5 / 64)
    page.wait_for_selector("[data-figure=links-0] .hovertext")
    said = page.locator("[data-figure=links-0] .hovertext").text_content()
    assert "16 → 0 node-02 → node-00, across" in said
    assert "25 % of median" in said
    assert visit.faults == []


@pytest.mark.parametrize("name", ["large", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = visit.page.locator(".plot svg.main-svg").evaluate_all("all => all.map(svg => svg.clientWidth)")
    assert max(widths) <= 390
    assert visit.faults == []


def test_hostile_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).drawn().page
    assert "<script>alert('1')</script>" in page.locator("#suspects .headline").inner_text()
    assert page.locator("img").count() == 0
    ticks = page.locator("[data-figure=links-0] .ytick").all_text_contents()
    assert any(tick.startswith("<script>") for tick in ticks)


def test_a_map_with_numbers_names_their_unit(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).drawn().page
    assert page.locator("[data-figure=links-0] select").input_value() == "bandwidth, GB/s"
    assert len(page.locator("[data-figure=links-0] .heatmap-label").all()) == 4 * 3


def test_selection_leaves_the_search_as_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["beside a sweep"]).drawn()
    page = visit.page
    before = page.locator("[data-figure=alone-0] path.point").count()
    assert before == 4 * 6
    page.locator("#selection .chips label", has_text="broadcast").click()
    assert "broadcast" in page.locator("[data-figure=latency] .shown").text_content()
    assert page.locator("[data-figure=alone-0] path.point").count() == before
    assert visit.faults == []


def test_theme_repaints_the_map(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["large"], color_scheme="light").drawn().page

    def picture() -> str:
        return str(page.locator("[data-figure=links-0] .hm image").evaluate("image => image.href.baseVal"))

    light = picture()
    page.click("#theme")
    assert picture() != light
