"""Pages that are sent on, in a real browser: no request, no name left, hostile names as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_browsing import Browser, Visit, started_chromium
from report_fixtures import HOSTILE, SMALL, make_run, skip
from test_redact_fuzz import seeded_run, traces_in

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Side
from ncclbench.plan.model import Arm
from ncclbench.report.build import write_report
from ncclbench.report.redact import Redactor
from ncclbench.store.model import Run
from ncclbench.store.printed import Printed

# Text that turns around, cannot be seen, ends an element, an attribute or a string, or calls for a file.
WORSE = "\u202egnp.exe\u2066' \" ` </title></script><svg onload=alert(3)>{{7*7}}${8*8}%00<!--"
NAMES = ("redacted", "redacted against", "hostile against", "imported", "redacted imported")


def hostile_run(folder: str, text: str, seed: int = 1) -> Run:
    run = make_run(Path(folder), sizes=SMALL, modes=("isolated",), label=text, arms=("gloo", text), seed=seed)
    run.meta["environment"]["hosts"][0] |= {"name": text, text: text}
    run.meta["message"] = text
    run.problems = [text]
    skip(run, 0, text)
    return run


def imported_run(text: str) -> Run:
    """What another tool printed, its names being any text of up to 100 characters."""
    run = make_run(Path("results/imported"), sizes=SMALL, label=text)
    run.plan = replace(run.plan, cases=(), arms=(Arm("nccl-tests", "nccl-tests"),), base_arm="nccl-tests")
    run.units, run.cold = {}, []
    run.meta |= {"kind": "import", "arms": {}}
    run.meta["imported"] = {
        "files": [{"file": f"/home/jroe42/{text}.txt", "hosts": [text], "missing": [text]}]
    }
    run.meta["environment"]["hosts"][0]["name"] = text
    shared: dict[str, Any] = {
        "arm": "nccl-tests",
        "op_from": "text",
        "redop": text[:100],
        "root": None,
        "count": None,
        "in_place": False,
        "nranks": 2,
        "nranks_from": "header",
        "algbw_GBs": 1.0,
        "busbw_GBs": 1.0,
        "wrong": 0,
        "reason": text,
    }
    run.printed = [
        Printed(op=op[:100], dtype=text[:100], mode=mode, nbytes=nbytes, time_us=nbytes / 100 + 9, **shared)
        for op in (text, "../../etc/passwd", "__proto__")
        for mode in ("back-to-back", "constructor")
        for nbytes in (8, 4096, 1 << 20)
    ]
    return run


def against(new: Run, base: Run) -> list[Any]:
    return [compare_sides(Side([base], "gloo", "base of it"), Side([new], "gloo", str(new.meta["label"])))]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.html" for name in NAMES}
    redactor = Redactor([seeded_run(0), seeded_run(1, "acme/other"), seeded_run(2, "acme/more")])
    write_report(redactor.runs, paths["redacted"], redactor=redactor)
    new, base = redactor.runs[:2]
    write_report([new, base], paths["redacted against"], comparisons=against(new, base), redactor=redactor)
    new, base = hostile_run("results/a", HOSTILE), hostile_run("results/b", WORSE, seed=2)
    write_report([new, base], paths["hostile against"], comparisons=against(new, base))
    write_report([imported_run(HOSTILE), imported_run(WORSE)], paths["imported"])
    redactor = Redactor([imported_run("trn-b200-0017 of jroe42@acme.example.com on 10.20.30.41")])
    write_report(redactor.runs, paths["redacted imported"], redactor=redactor)
    return paths


@pytest.fixture(scope="module")
def visits(pages: dict[str, Path]) -> Iterator[dict[str, Visit]]:
    """Every page drawn, every operation shown once, the curves hovered over."""
    for chromium in started_chromium():
        with Browser(chromium) as browser:
            opened = {name: browser.open(path).drawn() for name, path in pages.items()}
            for visit in opened.values():
                use(visit.page)
            yield opened


HOVER = """() => {
    for (const plot of document.querySelectorAll('.js-plotly-plot')) {
        const curve = plot.data.findLastIndex((trace) => trace.type === 'scatter' && trace.text);
        if (curve >= 0) Plotly.Fx.hover(plot, [{curveNumber: curve, pointNumber: 0}]);
    }
}"""


def use(page: Any) -> None:
    """Choose every operation and hover over the curves."""
    for number in range(page.locator("#selection input").count()):
        page.evaluate("number => document.querySelectorAll('#selection input')[number].click()", number)
        page.evaluate(HOVER)


@pytest.mark.parametrize("name", NAMES)
def test_page_asks_for_nothing_and_keeps_its_size(
    visits: dict[str, Visit], pages: dict[str, Path], name: str
) -> None:
    visit = visits[name]
    assert visit.faults == []
    assert visit.requests == [pages[name].as_uri()]
    assert visit.page.locator(".plot.message").count() == 0
    assert pages[name].stat().st_size < 2_200_000


@pytest.mark.parametrize("name", NAMES)
def test_no_button_leads_out(visits: dict[str, Visit], pages: dict[str, Path], name: str) -> None:
    page = visits[name].page
    titles = page.locator(".modebar-btn").evaluate_all("all => all.map(b => b.dataset.title || '')")
    assert titles
    assert not [title for title in titles if re.search("share|cloud|edit|plotly", title, re.IGNORECASE)]
    hrefs = page.locator("a[href]").evaluate_all("all => all.map(link => link.getAttribute('href'))")
    assert [href for href in hrefs if not href.startswith("#")] == []


@pytest.mark.parametrize("name", ["redacted", "redacted against", "redacted imported"])
def test_no_name_is_in_the_page_its_data_or_its_downloads(
    visits: dict[str, Visit], pages: dict[str, Path], name: str
) -> None:
    page = visits[name].page
    assert page.locator("#redacted").is_visible()
    dom = page.evaluate(
        """() => {
            const copy = document.documentElement.cloneNode(true);
            for (const packed of copy.querySelectorAll('#drawing, #plotlyjs')) packed.remove();
            return copy.outerHTML;
        }"""
    )
    drawing = page.evaluate("unpacked('drawing')")
    figures = page.evaluate(
        "JSON.stringify([...document.querySelectorAll('.js-plotly-plot')].map(p => p.data))"
    )
    texts = [dom, drawing, figures, page.title()]
    for button in ("#csv", "#json"):
        with page.expect_download() as waiting:
            page.click(button)
        texts.append(Path(waiting.value.path()).read_text("utf-8"))
        assert traces_in(waiting.value.suggested_filename) == []
    assert [traces_in(text) for text in texts] == [[]] * 6
    assert "node-1" in dom or "nodes-1" in dom


@pytest.mark.parametrize("name", ["hostile against", "imported"])
def test_hostile_names_are_shown_as_text(visits: dict[str, Visit], pages: dict[str, Path], name: str) -> None:
    page = visits[name].page
    # None of it became an element, wherever it stands.
    assert page.locator("img, main svg[onload], iframe, object, embed, base, [onerror]").count() == 0
    # Two of data, one packed library, the page's own, and the library unpacked.
    assert page.locator("script").count() == 5
    assert page.locator("script[src], link[href^=http], form").count() == 0
    title = page.title()
    assert "<script>alert('1')</script>" in title
    assert page.locator("h1").inner_text().startswith("<script>alert('1')</script>")
    if name == "hostile against":
        legends = " ".join(page.locator(".legendtext").all_text_contents())
        assert "<img src=x onerror=alert(2)>" in legends
        assert "${8*8}" in legends
    shown = page.evaluate("document.body.innerText")
    # What turns text around is written out; what other template languages would run is left alone.
    assert "\\u202egnp.exe\\u2066" in shown
    assert "\u202e" not in shown
    assert "{{7*7}}${8*8}" in shown
    rows = json.loads(page.locator("#rows-data").text_content() or "")
    assert any(HOSTILE in line for line in rows["values"])
    page.fill("#filter", "onerror=alert(2)")
    assert re.fullmatch(r"[1-9]\d* of \d+ rows", page.locator("#matches").text_content() or "")


def test_file_of_a_figure_is_called_by_plain_letters(visits: dict[str, Visit]) -> None:
    page = visits["imported"].page
    names = []
    for number in range(page.locator("#selection input").count()):
        page.evaluate("number => document.querySelectorAll('#selection input')[number].click()", number)
        with page.expect_download() as waiting:
            page.locator("[data-figure]:visible .modebar-btn").first.dispatch_event("click")
        names.append(waiting.value.suggested_filename.removesuffix(".png"))
    assert names
    assert [name for name in names if not re.fullmatch(r"[\w.-]+", name)] == []
    assert any(name.endswith("..-..-etc-passwd") for name in names)
