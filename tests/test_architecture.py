"""docs/architecture.md says what is there: its generated part is today's, every folder has a line."""

from __future__ import annotations

import re

from imports import BEGIN, PAGE, graph, page, without_detours
from test_layering import ROOT


def test_the_generated_part_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == 1
    assert text == page(text), "run python tests/imports.py"


def test_every_folder_has_its_line() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## What is done in one place")[0]
    told = set(re.findall(r"`(\w+)`", "".join(line for line in text.splitlines() if line.startswith("| `"))))
    folders = {path.name for path in (ROOT / "ncclbench").iterdir() if (path / "__init__.py").is_file()}
    assert told == folders | {"kernels"}


def test_places_that_are_named_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    for place in re.findall(r"`((?:ncclbench|tests)/[\w/]+\.py)`", text):
        assert (ROOT / place).is_file(), place


def test_the_picture_leaves_out_what_a_longer_way_tells() -> None:
    edges = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert without_detours(edges) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert set(graph()["cli"]) > {"plan", "store"}
