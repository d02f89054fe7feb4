"""Every text in a page: what it shows, what hides in attributes, and the data that its scripts draw from."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from ncclbench.report.packing import unpacked

# By the id of its script element.
ROWS, DRAWING = "rows-data", "drawing"
# Not a run's: how it looks, and plotly.js.
_OURS = ("style", "plotlyjs", "scripts")


def page_texts(page: str) -> Iterator[str]:
    """The texts of a page as a reader, or a search through its file, finds them."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    for text in reader.texts:
        yield text
    for text in reader.data:
        yield from json_texts(json.loads(text))


def json_texts(value: Any) -> Iterator[str]:
    """Every text in a JSON document, keys too; as it is and as it reads where it holds plotly's markup."""
    if isinstance(value, str):
        yield value
        if "&" in value or "<" in value:
            yield html.unescape(value.replace("<br>", "\n").replace("<b>", "").replace("</b>", ""))
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from json_texts(key)
            yield from json_texts(below)
    elif isinstance(value, list):
        for entry in value:
            yield from json_texts(entry)


class _Reader(HTMLParser):
    """Collects the texts and the data of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.data: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._within = ""
        if tag in ("script", "style"):
            self._within = named.get("id") or ("scripts" if tag == "script" else "style")
        self.texts += [value for name, value in attrs if value and name not in ("nonce", "class", "style")]

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == ROWS:
            self.data.append(data)
        elif self._within == DRAWING:
            self.data.append(unpacked(data))
        elif self._within not in _OURS and data.strip():
            self.texts.append(data)
