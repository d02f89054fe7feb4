"""The report in a real browser: drawn without a fault and without a request, on every kind of page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_browsing import PATIENCE_MS, Browser, Visit, started_chromium, written_pages
from report_fixtures import SIZES, SMALL


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from started_chromium()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    with Browser(chromium) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def usual(chromium: Any, pages: dict[str, Path]) -> Iterator[Visit]:
    """The usual page, drawn: for tests that only look at it."""
    with Browser(chromium) as browser:
        yield browser.open(pages["usual"]).drawn()


@pytest.mark.parametrize("name", ["usual", "arms", "two", "hostile", "versus", "hostile versus"])
def test_page_is_drawn_without_a_fault_or_a_request(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    visit = browser.open(pages[name]).drawn()
    assert visit.faults == []
    assert visit.requests == [pages[name].as_uri()]
    for figure in visit.page.locator("[data-figure]").all():
        assert figure.locator(".plot svg.main-svg").count() > 0
    assert visit.page.locator(".plot.message").count() == 0


def test_curves_bands_and_maps_are_there(usual: Visit) -> None:
    assert usual.paths("bandwidth", "path.js-line") == 2  # the curve and the edge of its band
    assert usual.paths("bandwidth", "path.js-fill") == 1
    assert usual.paths("bandwidth", "path.point") == len(SIZES)
    assert usual.paths("latency", "path.point") == len(SIZES)
    assert usual.paths("rank-map", ".hm image, .hm path") >= 1
    assert usual.paths("epochs", "path.point") == 3 * len(SIZES)
    assert usual.paths("samples", "path.point") == 21 + 3
    assert usual.paths("latency", ".legendtext") == 0


def test_arms_have_a_legend_and_their_ratios_intervals(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["arms"]).drawn()
    assert visit.paths("latency", ".legendtext") == 2
    assert visit.paths("ratios", "path.yerror") == len(SMALL)
    assert visit.paths("shift", "path.yerror") == visit.paths("shift", "path.point") == 4


def test_comparison_has_its_figures_follow_the_bar(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["versus"]).drawn()
    assert visit.paths("times", ".scatterlayer path.js-line") == 2
    # 8 bytes were skipped on one side.
    assert visit.paths("ratios", "path.point") == len(SMALL) - 1
    assert visit.paths("launches", "path.point") == (6 + 5) * (len(SMALL) - 1)
    visit.page.locator("#selection input").first.focus()
    visit.page.keyboard.press("ArrowRight")
    assert visit.paths("launches", "path.point") == (6 + 5) * len(SMALL)
    shown = visit.page.locator("[data-figure] .shown").all_text_contents()
    assert len(shown) == 4
    assert all(text.startswith("broadcast float32") for text in shown)
    assert visit.faults == []


def test_axes_speak_bytes_and_units(usual: Visit) -> None:
    page = usual.page
    words = page.locator("[data-figure=bandwidth] .xtick text").all_text_contents()
    assert words == ["8", "128", "2K", "32K", "512K", "8M"]
    rates = page.locator("[data-figure=bandwidth] .ytick text").all_text_contents()
    assert all(re.fullmatch(r"\d+ [KMG]B/s", rate) for rate in rates)
    times = page.locator("[data-figure=latency] .ytick text").all_text_contents()
    assert all(re.fullmatch(r"\d+ (µs|ms)", time) for time in times)


def test_no_button_leads_out(usual: Visit) -> None:
    page = usual.page
    titles = page.locator(".modebar-btn").evaluate_all("buttons => buttons.map(b => b.dataset.title)")
    assert titles
    assert not [title for title in titles if re.search("share|cloud|edit|plotly", title or "", re.IGNORECASE)]
    hrefs = page.locator("a").evaluate_all("links => links.map(link => link.getAttribute('href') || '')")
    assert [href for href in hrefs if href and not href.startswith("#")] == []


def test_operation_is_chosen_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["usual"]).drawn().page
    page.locator("#selection input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#selection input:checked").get_attribute("value") == "broadcast"
    shown = page.locator("[data-figure] .shown").all_text_contents()
    assert all(text.startswith("broadcast float32") for text in shown)
    label = page.locator("[data-figure=latency] .plot").get_attribute("aria-label")
    assert label.endswith(": broadcast float32, isolated")


def test_operations_chosen_faster_than_figures_are_drawn_end_at_the_last(
    browser: Browser, pages: dict[str, Path]
) -> None:
    """Within one task, as assistive tools and scripts do it: no drawing waits for another one."""
    visit = browser.open(pages["usual"]).drawn()
    # Not awaited, so that a page that hangs is found by the wait below.
    visit.page.evaluate(
        """() => { setTimeout(() => {
            const inputs = [...document.querySelectorAll('#selection input')];
            for (const turn of [1, 0, 1]) inputs[turn].click();
            setTimeout(() => { document.documentElement.dataset.chosen = "yes"; });
        }); }"""
    )
    visit.page.wait_for_selector("html[data-chosen]", state="attached", timeout=PATIENCE_MS)
    shown = visit.page.locator("[data-figure] .shown").all_text_contents()
    assert all(text.startswith("broadcast float32") for text in shown)
    assert visit.paths("latency", "path.point") == len(SIZES)
    assert visit.faults == []


def test_mode_is_chosen_per_figure(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["usual"]).drawn()
    page = visit.page
    curve = page.locator("[data-figure=latency] path.js-line").last
    before = curve.get_attribute("d")
    page.locator("[data-figure=latency] select").select_option("back-to-back")
    assert curve.get_attribute("d") != before
    page.locator("[data-figure=samples] select").select_option("64K isolated")
    assert visit.paths("samples", "path.point") == 21 + 3
    assert visit.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_system_and_the_button(
    browser: Browser, pages: dict[str, Path], scheme: str
) -> None:
    page = browser.open(pages["arms"], color_scheme=scheme).drawn().page

    def colours() -> tuple[str, str]:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        curve = page.locator("[data-figure=latency] path.js-line").last.evaluate("path => path.style.stroke")
        return ground, curve

    light, dark = ("rgb(250, 250, 249)", "rgb(213, 94, 0)"), ("rgb(21, 24, 27)", "rgb(242, 142, 75)")
    first, second = (light, dark) if scheme == "light" else (dark, light)
    assert colours() == first
    page.click("#theme")
    assert colours() == second
    page.click("#theme")
    assert colours() == first


def test_text_can_be_read_in_both(browser: Browser, pages: dict[str, Path]) -> None:
    """WCAG AA: 4.5 to 1 between a text and its ground."""
    for scheme in ("light", "dark"):
        page = browser.open(pages["arms"], color_scheme=scheme).scripted().page
        colours = page.evaluate(
            """() => ['--ground', '--ink', '--muted', '--accent', '--warn', '--bad', '--good', '--faster',
                      '--slower', '--beyond-faster', '--beyond-slower'].map(
                name => [name, getComputedStyle(document.documentElement).getPropertyValue(name).trim()])"""
        )
        named = dict(colours)
        for name in ("--ink", "--muted", "--accent", "--warn", "--bad", "--good"):
            assert contrast(named[name], named["--ground"]) >= 4.5, (scheme, name)
        for name in ("--faster", "--slower", "--beyond-faster", "--beyond-slower"):
            assert contrast(named["--ink"], named[name]) >= 4.5, (scheme, name)


def contrast(one: str, other: str) -> float:
    """Ratio of relative luminances, as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["arms", "hostile", "versus", "hostile versus"])
def test_phone_scrolls_down_only(browser: Browser, pages: dict[str, Path], name: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    visit = browser.open(pages[name], **phone).drawn()
    page = visit.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.querySelector('.box.tall').scrollWidth") > 390
    widths = page.locator(".plot svg.main-svg").evaluate_all("all => all.map(svg => svg.clientWidth)")
    assert max(widths) <= 390
    assert visit.faults == []


def test_figures_follow_the_window(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["usual"]).drawn().page
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_timeout(1000)
    widths = page.locator(".plot").evaluate_all(
        "all => all.map(plot => [plot.clientWidth, plot.querySelector('svg').clientWidth])"
    )
    assert all(box == drawing < 600 for box, drawing in widths)


def test_print_is_light_fits_the_paper_and_leaves_no_trace(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["arms"], color_scheme="dark").drawn()
    page = visit.page
    page.evaluate(
        """() => addEventListener('beforeprint', () => {
            const fits = (plot) => plot.querySelector('svg').clientWidth <= plot.clientWidth;
            document.body.dataset.printed = JSON.stringify([
                document.documentElement.dataset.theme, document.body.clientWidth,
                [...document.querySelectorAll('.plot')].every(fits)]);
        })"""
    )
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 50_000
    assert json.loads(page.evaluate("document.body.dataset.printed")) == ["light", 700, True]
    assert page.evaluate(
        "[document.documentElement.dataset.theme ?? null, document.documentElement.className]"
    ) == [
        None,
        "scripted",
    ]
    assert visit.faults == []


def test_without_scripts_the_answer_and_the_numbers_are_there(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = browser.open(pages["usual"], java_script_enabled=False).page
    assert page.locator(".headline").inner_text() == "96 rows measured, data right"
    assert page.locator("#rows tbody tr").count() == 96
    assert page.locator("noscript").first.is_visible()
    assert not page.locator("#theme").is_visible()
    assert not page.locator("#filter").is_visible()
    assert not page.locator(".figures").first.is_visible()


def test_browser_that_cannot_unpack_says_so(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.chromium.new_context()
    browser.contexts.append(context)
    context.add_init_script("delete globalThis.DecompressionStream")
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(pages["usual"].as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")
    assert "cannot unpack the figures" in page.locator("[data-figure=bandwidth] .plot").inner_text()
    page.fill("#filter", "broadcast")
    assert page.locator("#matches").text_content() == "48 of 96 rows"
    assert faults == []
