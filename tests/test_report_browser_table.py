"""The report's table in a real browser: sorted, filtered, downloaded."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from report_browsing import Browser, written_pages
from report_fixtures import HOSTILE, SIZES, SMALL, make_run

from ncclbench.report.build import render, report_of


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_pages(tmp_path_factory.mktemp("pages"))


def test_comparison_is_sorted_and_downloaded_with_all_its_numbers(
    browser: Browser, pages: dict[str, Path]
) -> None:
    visit = browser.open(pages["versus"], accept_downloads=True).scripted()
    visit.page.click("#rows th[data-key=ratio] button")
    ratios = visit.page.locator("#rows tbody tr td:nth-child(6)").all_text_contents()
    assert len(ratios) == 11
    assert ratios == sorted(ratios)
    with visit.page.expect_download() as started:
        visit.page.click("#csv")
    assert started.value.suggested_filename == "comparison.csv"
    text = Path(started.value.path()).read_text("utf-8")
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(lines) == 11
    assert all(float(line["shift_p90_ratio"]) > 1 for line in lines)
    assert "object" not in text


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


@pytest.mark.full
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
