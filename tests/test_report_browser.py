"""The report in a real browser: drawn without a fault and without a request, on every kind of page."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright
from report_fixtures import HOSTILE, SIZES, SMALL, make_run, skip, two_arms_run
from tools import require_tool

from ncclbench.report.build import render, report_of

# A page that is not drawn by then is broken; how fast it is stands in docs/performance.md.
PATIENCE_MS = 20_000


@dataclass
class Visit:
    """A page in a browser, with everything that went wrong or out."""

    page: Any
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self) -> Visit:
        self.page.wait_for_selector("html[data-drawn]", state="attached", timeout=PATIENCE_MS)
        return self

    def scripted(self) -> Visit:
        """Ready but for the figures."""
        self.page.wait_for_selector("html.scripted", state="attached", timeout=PATIENCE_MS)
        return self

    def paths(self, figure: str, kind: str) -> int:
        return int(self.page.locator(f"[data-figure={figure}] .plot {kind}").count())


@dataclass
class Browser:
    """Opens files; ``close`` ends all visits."""

    chromium: Any
    contexts: list[Any] = field(default_factory=list)

    def open(self, path: Path, **settings: Any) -> Visit:
        context = self.chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        visit = Visit(context.new_page())
        visit.page.on("console", lambda message: visit.faults.append(f"{message.type}: {message.text}"))
        visit.page.on("pageerror", lambda error: visit.faults.append(str(error)))
        visit.page.on("requestfailed", lambda request: visit.faults.append(f"failed: {request.url}"))
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.goto(path.as_uri())
        return visit


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    executable = require_tool("chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    browser = Browser(chromium)
    yield browser
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports by name: one usual run, two arms, two runs, and one of hostile texts."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = make_run(sizes=SMALL, arms=("nccl2", HOSTILE), label=HOSTILE)
    skip(hostile, 0, HOSTILE)
    for host in hostile.meta["environment"]["hosts"]:
        host["name"] = HOSTILE
    hostile.problems = [HOSTILE]
    runs = {
        "usual": [make_run(sizes=SIZES)],
        "arms": [two_arms_run()],
        "two": [make_run(sizes=SMALL, label="hopper"), make_run(sizes=SMALL, label="blackwell", seed=2)],
        "hostile": [hostile],
    }
    paths = {}
    for name, own in runs.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render(report_of(own)), "utf-8")
    return paths


@pytest.fixture(scope="module")
def usual(chromium: Any, pages: dict[str, Path]) -> Iterator[Visit]:
    """The usual page, drawn: for tests that only look at it."""
    browser = Browser(chromium)
    yield browser.open(pages["usual"]).drawn()
    browser.contexts[0].close()


@pytest.mark.parametrize("name", ["usual", "arms", "two", "hostile"])
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


@pytest.mark.parametrize("name", ["arms", "hostile"])
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


def test_table_sorts_by_number_with_missing_values_last(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["hostile"]).scripted().page
    head = page.locator("#rows th[data-key=median_us]")

    def times() -> list[str]:
        index = head.evaluate("head => head.cellIndex")
        return list(page.locator(f"#rows tbody tr td:nth-child({index + 1})").all_text_contents())

    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = times()
    numbers = [float(text) for text in rising if text != "–"]
    assert numbers == sorted(numbers)
    assert rising[-2:] == ["–", "–"]
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    falling = times()
    assert falling[0] == rising[-3]
    assert falling[-2:] == ["–", "–"]


def test_filter_takes_all_words(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["usual"]).scripted().page
    page.fill("#filter", "broadcast 64K")
    visible = page.locator("#rows tbody tr:visible")
    assert visible.count() == 2
    assert page.locator("#matches").text_content() == "2 of 96 rows"
    page.fill("#filter", "no such row")
    assert visible.count() == 0
    page.fill("#filter", "")
    assert visible.count() == 96


def test_table_of_two_thousand_rows_is_quick(browser: Browser, tmp_path: Path) -> None:
    dtypes = ("float32", "float64", "float16", "bfloat16", "int8")
    ops = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
    run = make_run(ops=ops, dtypes=dtypes, sizes=SIZES, arms=("a", "b"), epochs=1, iters=1)
    path = tmp_path / "long.html"
    path.write_text(render(report_of([run])), "utf-8")
    page = browser.open(path).scripted().page
    spent_ms = page.evaluate(
        """() => {
            const before = performance.now();
            document.querySelector('#rows th[data-key=busbw_GBs] button').click();
            const filter = document.getElementById('filter');
            filter.value = 'reduce_scatter int8 64K';
            filter.dispatchEvent(new Event('input'));
            document.body.offsetHeight;
            return performance.now() - before;
        }"""
    )
    assert page.locator("#matches").text_content() == "4 of 1,920 rows"
    assert spent_ms < 1500


def test_downloads_hold_every_row(browser: Browser, pages: dict[str, Path]) -> None:
    visit = browser.open(pages["hostile"], accept_downloads=True).scripted()
    texts = {}
    for button in ("csv", "json"):
        with visit.page.expect_download() as started:
            visit.page.click(f"#{button}")
        texts[started.value.suggested_filename] = Path(started.value.path()).read_text("utf-8")
    rows = json.loads(texts["rows.json"])
    lines = list(csv.DictReader(io.StringIO(texts["summary.csv"], newline="")))
    assert len(rows) == len(lines) == 24
    assert rows[0]["arm"] == lines[0]["arm"] == "nccl2"
    assert (rows[0]["reason"], lines[0]["reason"]) == (HOSTILE, HOSTILE)
    assert (rows[0]["median_us"], lines[0]["median_us"]) == (None, "")
    assert float(lines[3]["median_us"]) == rows[3]["median_us"]
    assert visit.faults == []


def test_formula_in_a_text_is_no_formula_in_a_spreadsheet(browser: Browser, tmp_path: Path) -> None:
    run = make_run(sizes=SMALL, label="=HYPERLINK(1)")
    path = tmp_path / "formula.html"
    path.write_text(render(report_of([run])), "utf-8")
    page = browser.open(path, accept_downloads=True).scripted().page
    with page.expect_download() as started:
        page.click("#csv")
    assert "\n'=HYPERLINK(1)," in Path(started.value.path()).read_text("utf-8")


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
