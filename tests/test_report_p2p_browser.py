"""The page of a point-to-point run in a real browser: drawn, switched, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from p2p_fixtures import make_p2p, make_results, make_ways
from report_browsing import PHONE, Browser, written
from report_fixtures import SMALL, make_run
from test_report_p2p import hostile

CURVES = 7


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("p2p")
    runs = {
        "everything": [make_p2p(results=[*make_results(), *make_ways("gloo#2")])],
        "hostile": [hostile()],
        "beside a sweep": [make_run(sizes=SMALL), make_p2p()],
    }
    return written(folder, runs)


@pytest.mark.parametrize("name", ["everything", "hostile", "beside a sweep"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name]).drawn().assert_whole("#p2p [data-figure]")


def test_a_curve_for_each_way_and_another_arm_can_be_chosen(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["everything"]).drawn()
    assert visit.paths("p2p-latency-0", ".scatterlayer .trace") == CURVES
    visit.page.locator("[data-figure=p2p-latency-0] select").select_option("gloo#2")
    assert visit.paths("p2p-latency-0", ".scatterlayer .trace") == CURVES
    assert visit.faults == []


@pytest.mark.parametrize("name", ["everything", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.faults == []


def test_deadlocks_differ_in_colour_and_in_words(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["everything"]).drawn().page
    table = page.get_by_role("region", name="Orders of calling, gloo").first
    colours = {
        kind: table.locator(f"td.{kind}").first.evaluate("cell => getComputedStyle(cell).backgroundColor")
        for kind in ("completed", "deadlocked", "raised")
    }
    assert len(set(colours.values())) == 3
    assert table.locator("td.deadlocked").first.inner_text() == "deadlock"
    assert table.locator("td.completed").first.inner_text() == "ends"


def test_hostile_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).drawn().page
    assert page.locator("#p2p img").count() == 0
    assert "<script>alert('1')</script>" in page.locator("#p2p").inner_text()


def test_numbers_open(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["everything"]).drawn().page
    table = page.get_by_role("region", name="Ways of sending")
    assert not table.is_visible()
    page.get_by_text("Every way in numbers", exact=True).click()
    assert table.locator("tbody tr").count() == 2 * CURVES * 3
