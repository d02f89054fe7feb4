"""Markup in every text of a run: it stands on the page as text, and on a terminal nothing acts on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flying import job
from parsers_files import RUNS, run_of
from parsing import said_by
from report_browsing import Browser
from report_reading import Page

from ncclbench.errors import RequestError
from ncclbench.store.reader import load_run

RAN = "window.owned=1"
# Each would run, or act on a terminal, if it stood anywhere unescaped; a number behind keeps texts apart.
MARKUP = (
    f"<script>{RAN}</script>",
    f'"><img src=x onerror={RAN}>',
    f"</script><script>{RAN}</script>",
    f"javascript:{RAN}//",
    f"'-{RAN}-'{{{{7*7}}}}<svg/onload={RAN}>",
    f"\x1b[31m\x07\u202e\r\n</style><script>{RAN}</script>",
)
_TYPE = "type"


def leaves(tree: Any) -> Iterator[str]:
    """Every text in it, keys too."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from leaves(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from leaves(value)
    elif isinstance(tree, str):
        yield tree


def renamed(tree: Any, names: dict[str, str]) -> Any:
    """With other texts; which type a line is of stays."""
    if isinstance(tree, dict):
        return {
            names.get(key, key): value if key == _TYPE else renamed(value, names)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [renamed(value, names) for value in tree]
    return names.get(tree, tree) if isinstance(tree, str) else tree


class Marked:
    """A run folder in which every text is markup that may be, wherever the same text stands alike."""

    def __init__(self, kind: str, folder: Path, kept: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._meta = json.loads((run_of(kind) / "run.json").read_text())
        self._lines = [json.loads(line) for line in (run_of(kind) / "samples.jsonl").read_text().splitlines()]
        self._texts = list(dict.fromkeys([*leaves(self._meta), *leaves(self._lines)]))
        folder.mkdir()
        self._problems = self._written({})
        free = [
            text
            for text in self._texts
            if text not in kept and self._written({text: f"{text}<"}) == self._problems
        ]
        assert len(free) >= 10, "almost nothing was tried"
        self.free = free

    def _written(self, names: dict[str, str]) -> list[str] | None:
        """The folder's problems with these texts; None where it cannot be read."""
        (self.folder / "run.json").write_text(json.dumps(renamed(self._meta, names)))
        lines = (json.dumps(renamed(line, names)) + "\n" for line in self._lines)
        (self.folder / "samples.jsonl").write_text("".join(lines))
        with suppress(RequestError):
            return load_run(self.folder).problems
        return None

    def write(self, turn: int) -> None:
        """Every text another kind of markup, turn by turn."""
        names: dict[str, str] = {}
        for number, text in enumerate(self.free):
            names[text] = f"{MARKUP[(number + turn) % len(MARKUP)]}{number}"
            if self._written(names) != self._problems:  # may be one alone, not beside the others
                del names[text]
        assert len(names) >= 10
        assert self._written(names) == self._problems


def assert_harmless(html: str) -> None:
    """No script, handler or address but the page's own."""
    page = Page(html)
    assert "owned=1>" not in html
    assert f"<script>{RAN}" not in html
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, attributes)
            assert RAN not in (value or "") or name not in ("href", "src", "action", "style"), (
                tag,
                attributes,
            )
        assert tag not in ("img", "iframe", "object", "base") or not attributes.get("src", "").startswith("x")
        assert tag != "script" or set(attributes) & {"nonce"}, attributes
    assert "\x1b" not in html
    assert RAN in html, "markup is there, as text"


Made = Callable[[Path, int], Path]


def report_of(kind: str) -> Made:
    def make(folder: Path, turn: int) -> Path:
        marked = Marked(kind, folder / f"{kind}<b>{turn}")
        marked.write(turn)
        page = folder / f"{kind}-{turn}.html"
        said_by(["report", str(marked.folder), "--out", str(page)])
        said_by(["report", str(marked.folder), "--out", str(folder / "redacted.html"), "--redact"])
        return page

    return make


def comparison(kind: str) -> Made:
    def make(folder: Path, turn: int) -> Path:
        sides = [
            Marked(kind, folder / f"{kind}-{turn}-{side}", ("back-to-back",)) for side in ("base", "new")
        ]
        for side in sides:
            side.write(turn)
        if kind == "import":  # of other times than the base
            file = sides[1].folder / "samples.jsonl"
            file.write_text(file.read_text().replace('"time_us": 1', '"time_us": 2'))
        else:
            shutil.copytree(sides[0].folder, sides[1].folder, dirs_exist_ok=True)
            meta = sides[1].folder / "run.json"
            meta.write_text(meta.read_text().replace("2026-11-29", "2026-11-30"))
            samples = sides[1].folder / "samples.jsonl"
            samples.write_text(samples.read_text().replace(".", ".1"))
        page = folder / f"compare-{kind}-{turn}.html"
        code = said_by(["compare", *(str(side.folder) for side in sides), "--out", str(page)])
        assert code.code in (0, 1), code.err
        return page

    return make


def flight(folder: Path, turn: int) -> Path:
    dumps = job(nranks=2, numbers=3, absent=[1], frames=[("step", "train.py", 7)])
    names = {
        text: f"{MARKUP[(number + turn) % len(MARKUP)]}{number}"
        for number, text in enumerate(
            ("default_pg", "step", "train.py", "2.30.4", "python", "nccl:all_reduce", "Float")
        )
    }
    where = folder / f"dumps{turn}"
    where.mkdir()
    for rank, content in dumps.items():
        (where / f"rank{rank}<img src=x>.json").write_text(json.dumps(renamed(content, names)))
    page = folder / f"flight-{turn}.html"
    assert said_by(["flight", str(where), "--out", str(page)]).code in (0, 1)
    return page


PAGES: dict[str, Made] = {
    **{kind: report_of(kind) for kind in RUNS},
    "compare sweeps": comparison("sweep"),
    "compare imports": comparison("import"),
    "flight": flight,
}


@pytest.mark.parametrize("name", PAGES)
def test_no_markup_stands_unescaped(name: str, tmp_path: Path) -> None:
    for turn in (0, 3):
        assert_harmless(PAGES[name](tmp_path, turn).read_text("utf-8"))


@pytest.mark.full
def test_no_script_of_a_run_runs(browser: Browser, tmp_path: Path) -> None:
    for name, make in PAGES.items():
        visit = browser.open(make(tmp_path, 1)).scripted()
        assert visit.page.evaluate("window.owned") is None, name
        assert visit.faults == [], name
        visit.page.close()


def test_this_test_can_fail(browser: Browser, tmp_path: Path) -> None:
    for markup in MARKUP[:3]:
        (tmp_path / "page.html").write_text(f'<html class=scripted><p title="{markup}">{markup}</html>')
        visit = browser.open(tmp_path / "page.html").scripted()
        assert visit.page.evaluate("window.owned") == 1
        with pytest.raises(AssertionError):
            assert_harmless((tmp_path / "page.html").read_text())
