"""A real browser for tests of the report: every kind of page, and whatever goes wrong in it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from report_fixtures import (
    HOSTILE,
    SIZES,
    SMALL,
    make_calibration,
    make_launches,
    make_run,
    skip,
    two_arms_run,
)
from tools import require_tool

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Side
from ncclbench.report.build import render, render_comparison, report_of
from ncclbench.report.versus import Gate
from ncclbench.store.model import Run

# A page that is not drawn by then is broken; how fast it is stands in docs/performance.md.
PATIENCE_MS = 20_000
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


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

    def assert_whole(self, figures: str) -> None:
        """Nothing went wrong, nothing was asked of anybody, and every figure of the selector is drawn."""
        assert self.faults == []
        assert self.requests == [self.page.url.partition("#")[0]]
        for figure in self.page.locator(figures).all():
            assert figure.locator(".plot svg.main-svg").count() > 0

    def paths(self, figure: str, kind: str) -> int:
        return int(self.page.locator(f"[data-figure={figure}] .plot {kind}").count())


@dataclass
class Browser:
    """Opens files, until it is left."""

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

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        for context in self.contexts:
            context.close()


def started_chromium() -> Iterator[Any]:
    """Chromium, until the iterator ends."""
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=require_tool("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


def written_pages(folder: Path) -> dict[str, Path]:
    """Reports by name: a usual run, two arms, two runs, hostile texts; comparisons, usual and hostile."""
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
    pages = {name: render(report_of(own)) for name, own in runs.items()}
    pages["versus"] = versus_page("tuesday", Gate(True, "slower:50%"))
    pages["hostile versus"] = versus_page(HOSTILE, Gate(False, HOSTILE))
    paths = {}
    for name, text in pages.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(text, "utf-8")
    return paths


def versus_page(label: str, gate: Gate) -> str:
    """Six launches against five that are slower, with a calibration and a case that is on one side only."""
    settings: dict[str, Any] = {"sizes": SMALL, "epochs": 2, "iters": 20, "noise": 0.01}
    settings["calibration"] = make_calibration(("all_reduce", 4096, "isolated", 0.02)) | {"advice": [label]}
    base = make_launches("monday", 6, **settings)
    new = make_launches(label, 5, seed=7, slower=1.3, **settings)
    for run in new:
        skip(run, 0, label)
    return render_comparison(compare_sides(Side(base, None, "monday"), Side(new, None, label)), gate)


def written(folder: Path, runs: Mapping[str, list[Run]]) -> dict[str, Path]:
    """A page for each entry, of its runs."""
    paths = {name: folder / f"{name}.html" for name in runs}
    for name, own in runs.items():
        paths[name].write_text(render(report_of(own)), "utf-8")
    return paths
