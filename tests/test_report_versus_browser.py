"""The page about two nodes in a real browser: drawn without a fault, read in any light, on any screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from importing import make_printed, write_imported
from report_browsing import Browser, started_chromium
from report_fixtures import HOSTILE
from two_nodes import BLACKWELL, HOPPER, NODE_SIZES, change_gpus, node_run, on_nodes

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Side
from ncclbench.report.build import render_comparison
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

FEW: dict[str, Any] = {"ops": ("all_reduce", "broadcast"), "epochs": 3, "iters": 30}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from started_chromium()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    with Browser(chromium) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One node a side, three a side, printed means against a measured run, and names that are markup."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [make_printed(nbytes, 18.0 + nbytes * 7 / 4 / 395e3) for nbytes in NODE_SIZES]
    hostile = change_gpus(node_run(HOPPER, HOSTILE, **FEW), name=HOSTILE, driver=HOSTILE)
    hopper, blackwell = (
        node_run(HOPPER, "hopper-01", **FEW),
        node_run(BLACKWELL, "blackwell-01", seed=2, **FEW),
    )
    sides: dict[str, tuple[list[Run], list[Run]]] = {
        "one": ([hopper], [blackwell]),
        "three": (
            on_nodes(HOPPER, ("h1", "h2", "h3"), **FEW),
            on_nodes(BLACKWELL, ("b1", "b2", "b3"), seed=100, **FEW),
        ),
        "printed": ([load_run(write_imported(folder / "printed", rows))], [hopper]),
        "hostile": ([hostile], [blackwell]),
    }
    paths = {}
    for name, (base, new) in sides.items():
        label = HOSTILE if name == "hostile" else "hopper"
        comparison = compare_sides(Side(base, None, label), Side(new, None, "blackwell"))
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render_comparison(comparison), "utf-8")
    return paths


@pytest.mark.parametrize("name", ["one", "three", "printed", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    visit = browser.open(pages[name], color_scheme=scheme).drawn()
    assert visit.faults == []
    assert visit.requests == [pages[name].as_uri()]
    assert visit.page.locator("#selection").count() == 1
    for figure in visit.page.locator("[data-figure]:visible").all():
        assert figure.locator(".plot svg.main-svg").count() > 0
    assert visit.paths("ratios", "path.point") == len(NODE_SIZES)


def test_what_is_confounded_is_seen_before_the_headline(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["three"]).drawn().page
    warned, answer = page.locator(".confounded").bounding_box(), page.locator(".headline").bounding_box()
    assert warned["y"] + warned["height"] <= answer["y"] < 900
    assert "driver 570.86.15 → 580.65.06" in page.locator(".confounded").inner_text()


def test_no_interval_is_drawn_where_there_is_none(browser: Browser, pages: dict[str, Path]) -> None:
    for name, has_intervals in (("three", True), ("printed", False)):
        page = browser.open(pages[name]).drawn().page
        lengths = page.locator("[data-figure=ratios] path.yerror").evaluate_all(
            "bars => bars.map(bar => bar.getBBox().height)"
        )
        assert (max(lengths, default=0) > 1) == has_intervals, name


def test_tables_hold_both_sides(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["one"]).drawn().page
    assert page.locator("#peaks tbody tr").count() == 2
    assert page.locator("#fits tbody").count() == 4  # two operations in two modes
    assert page.locator("#fits tbody").first.locator("tr").count() == 3
    assert page.locator("#fits small").first.inner_text().startswith("[")
    driver = page.locator("#sides tr", has_text="driver")
    assert driver.get_attribute("class") == "differs"
    weight = driver.locator("td").first.evaluate("cell => getComputedStyle(cell).fontWeight")
    assert int(weight) >= 600


@pytest.mark.parametrize("name", ["one", "printed", "hostile"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    visit = browser.open(pages[name], **phone).drawn()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    inner = visit.page.locator(".confounded").first.evaluate("box => box.scrollWidth <= box.clientWidth + 1")
    assert inner
    assert visit.faults == []


def test_without_scripts_the_answer_and_its_tables_are_there(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = browser.open(pages["one"], java_script_enabled=False).page
    assert page.locator(".headline").inner_text() == "Ratios without a verdict: one launch a side"
    assert page.locator(".confounded").is_visible()
    assert page.locator("#fits tbody tr").count() == 12
