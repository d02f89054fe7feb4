"""The page of moved weights in a real browser: drawn, switched, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_browsing import PHONE, Browser, written
from report_fixtures import HOSTILE, SMALL, make_run
from transport_fixtures import make_results, make_times, make_transport


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("transports")
    hostile = [make_times(HOSTILE, epoch) for epoch in range(3)]
    hostile += [make_times("broadcast", epoch, arm=HOSTILE) for epoch in range(3)]
    runs = {
        "usual": [make_transport()],
        "hostile": [make_transport(results=list(hostile), label=HOSTILE, message=HOSTILE, status="failed")],
        "beside a sweep": [make_run(sizes=SMALL), make_transport(results=make_results(epochs=1))],
    }
    return written(folder, runs)


@pytest.mark.parametrize("name", ["usual", "hostile", "beside a sweep"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name]).drawn().assert_whole("#transport [data-figure]")


def test_a_bar_for_each_way_and_each_quantity_can_be_chosen(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["usual"]).drawn()
    assert visit.paths("ways-0", ".bars .point") == 4
    choice = visit.page.locator("[data-figure=ways-0] select")
    choice.select_option("a computing generator sees old weights")
    assert visit.paths("ways-0", ".bars .point") == 2
    choice.select_option("the trainer is held up")
    assert visit.paths("ways-0", ".bars .point") == 4
    assert visit.paths("messages-0", ".scatterlayer .trace") == 4
    assert visit.faults == []


@pytest.mark.parametrize("name", ["usual", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.faults == []


def test_hostile_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).drawn().page
    assert page.locator("#transport img").count() == 0
    assert "<script>alert('1')</script>" in page.locator("#transport table").first.inner_text()


def test_small_messages_open_in_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["usual"]).drawn().page
    table = page.get_by_role("region", name="Small messages")
    assert not table.is_visible()
    page.get_by_text("Small messages in numbers", exact=True).click()
    assert table.locator("tbody tr").count() == 4
