"""The page of a drill in a real browser: drawn, switched, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from drill_fixtures import make_drill, make_trial, make_trials
from report_browsing import PHONE, Browser, written
from report_fixtures import HOSTILE, SMALL, make_run

from ncclbench.stats.recovery import PHASE_WORDS
from ncclbench.store.model import Run


def drill_of_everything() -> Run:
    run = make_drill(strategies=("reconfigure", "rebuild", "restart", "abort"), trials=5)
    run.trials += make_trials(("reconfigure", "rebuild"), 3, fault="hang")
    run.trials.append(
        make_trial("restart", 3, fault="hang", recovered=False, correct=False, outcome="rank 0 timed out")
    )
    return run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drills")
    hostile = make_drill(trials=1, label=HOSTILE)
    hostile.trials = [make_trial(HOSTILE, number, fault=HOSTILE, outcome=HOSTILE) for number in range(3)]
    runs = {
        "everything": [drill_of_everything()],
        "hostile": [hostile],
        "beside a sweep": [make_run(sizes=SMALL), make_drill()],
    }
    return written(folder, runs)


@pytest.mark.parametrize("name", ["everything", "hostile", "beside a sweep"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name]).drawn().assert_whole("#drill [data-figure]")


def test_a_bar_for_each_phase_and_strategy_and_each_fault_can_be_chosen(
    browser: Browser, pages: dict[str, Path]
) -> None:
    visit = browser.open(pages["everything"]).drawn()
    assert visit.paths("phases-0", ".bars .point") == 8 + 8 + 5 + 2
    visit.page.locator("[data-figure=phases-0] select").select_option("hang")
    assert visit.paths("phases-0", ".bars .point") == 8 + 8 + 5
    ticks = visit.page.locator("[data-figure=phases-0] .ytick text").evaluate_all(
        "all => all.map(text => [text.getBoundingClientRect().top, text.textContent])"
    )
    assert [words for _, words in sorted(ticks)] == list(PHASE_WORDS.values())
    assert visit.faults == []


@pytest.mark.parametrize("name", ["everything", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = visit.page.locator(".plot svg.main-svg").evaluate_all("all => all.map(svg => svg.clientWidth)")
    assert max(widths) <= 390
    assert visit.faults == []


def test_hostile_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).drawn().page
    assert page.locator("#drill img").count() == 0
    assert "<script>alert('1')</script>" in page.locator("#drill table").first.inner_text()


def test_numbers_open_and_close(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["everything"]).drawn().page
    table = page.get_by_role("region", name="Trials")
    assert not table.is_visible()
    page.get_by_text("Every trial", exact=True).click()
    assert table.locator("tbody tr").count() == 4 * 5 + 2 * 3 + 1
