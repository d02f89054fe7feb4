"""The page of an overlap run in a real browser: drawn, switched, on a phone, with hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from overlap_fixtures import make_overlap, make_place, make_skip, over_epochs
from report_browsing import PHONE, Browser, written
from report_fixtures import HOSTILE, SMALL, make_run

from ncclbench.store.model import Run


def run_of_everything() -> Run:
    lines = [
        result
        for free in (0, 8, 16)
        for compute in ("fma", "triad", "gemm")
        for nbytes in (1 << 16, 1 << 20, 1 << 24)
        for result in over_epochs(0.5 + free / 40, compute=compute, nbytes=nbytes, free_sms=free)
    ]
    return make_overlap([*lines, make_skip()], environment=make_place((0, 0), device="cuda:{}"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("overlaps")
    hostile = make_overlap(
        over_epochs(op=HOSTILE, arm=HOSTILE, compute=HOSTILE, implementation=HOSTILE), arms=(HOSTILE,)
    )
    runs = {
        "everything": [run_of_everything()],
        "hostile": [hostile],
        "beside a sweep": [make_run(sizes=SMALL), make_overlap()],
    }
    return written(folder, runs)


@pytest.mark.parametrize("name", ["everything", "hostile", "beside a sweep"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name]).drawn().assert_whole("#overlap [data-figure]")


def test_points_for_each_size_and_kernel_and_each_case_can_be_chosen(
    browser: Browser, pages: dict[str, Path]
) -> None:
    visit = browser.open(pages["everything"]).drawn()
    assert visit.paths("hidden-0", ".scatterlayer .point") == 3 * 3 * 2
    assert visit.paths("free-0", ".scatterlayer .point") == 3 * 3
    visit.page.locator("[data-figure=hidden-0] select").select_option(
        "16 SMs free: all_reduce float32 on gloo"
    )
    assert visit.paths("hidden-0", ".scatterlayer .point") == 3 * 3 * 2
    assert visit.faults == []


@pytest.mark.parametrize("name", ["everything", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    visit = browser.open(pages[name], **PHONE).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = visit.page.locator(".plot svg.main-svg").evaluate_all("all => all.map(svg => svg.clientWidth)")
    assert max(widths) <= 390


def test_every_number_can_be_opened(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["everything"]).drawn().page
    table = page.get_by_role("region", name="Overlap, every case")
    assert not table.is_visible()
    page.get_by_text("Every case in numbers", exact=True).click()
    assert table.locator("tbody tr").count() == 27
