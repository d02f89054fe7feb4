"""Reading a report as its readers do: the page's elements and text, a panel's content, its figures."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

from ncclbench.report.build import render, report_of
from ncclbench.report.figures import Figure
from ncclbench.report.panels import PANELS
from ncclbench.store.model import Run


def page_of(*runs: Run) -> Page:
    return Page(render(report_of(list(runs))))


def content(panel: str, *runs: Run) -> dict[str, Any]:
    found = PANELS[panel].build(report_of(list(runs)))
    assert found is not None
    return found


def verdict_of(run: Run) -> dict[str, Any]:
    (verdict,) = content("verdict", run)["verdicts"]
    return dict(verdict)


def drawing_of(html: str) -> dict[str, Any]:
    """The page's figures, unpacked as the browser does it."""
    text = re.search(r'<script[^>]*id="drawing"[^>]*>([^<]*)</script>', html)
    assert text is not None
    return dict(json.loads(gzip.decompress(base64.b85decode(text[1].replace(",", "<")))))


def figures_of(*runs: Run) -> dict[str, Figure]:
    report = report_of(list(runs))
    found = (PANELS[name].build(report) for name in PANELS)
    return {figure.name: figure for panel in found if panel for figure in panel.get("figures", ())}


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and its text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._raw = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._raw = tag if tag in ("script", "style") else ""

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._raw = ""

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def tagged(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> set[str | None]:
        return {attributes.get("id") for _, attributes in self.elements}
