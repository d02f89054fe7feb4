"""What is kept in results/: the example reads as when it was measured, figures are those of reports."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path

import pytest

from ncclbench.cli.app import run as run_command
from ncclbench.hardware.parts import table
from ncclbench.tables.collectives import COLLECTIVES

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "results" / "example-cpu"
FIGURES = ROOT / "results" / "reference" / "busbw.csv"
KINDS = ("stated", "published", "reported")


def test_the_example_gives_the_rows_it_gave_when_it_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "example.html"
    assert run_command(["report", str(EXAMPLE), "--out", str(page), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    with (EXAMPLE / "summary.csv").open(newline="", encoding="utf-8") as file:
        kept = list(csv.DictReader(file))
    assert len(rows) == len(kept) == 88
    for row, then in zip(rows, kept, strict=True):
        assert (row["status"], row["wrong"]) == ("ok", 0)
        assert {name: str(row[name]) for name in ("op", "nbytes", "mode", "arm", "epochs", "n")} == {
            name: then[name] for name in ("op", "nbytes", "mode", "arm", "epochs", "n")
        }
        for name in ("p25_us", "median_us", "ci_low_us", "ci_high_us", "p95_us", "fastest_us", "busbw_GBs"):
            assert row[name] == pytest.approx(float(then[name])), (row["op"], row["nbytes"], name)
    assert page.stat().st_size < 2.2e6


def test_the_example_is_small_and_its_page_was_written_by_the_sweep() -> None:
    files = {path.name: path.stat().st_size for path in EXAMPLE.iterdir() if path.name != ".lock"}
    assert set(files) == {"run.json", "samples.jsonl", "summary.csv", "report.html"}
    assert sum(files.values()) < 2.8e6
    # The command that results/README.md tells is the one that made it.
    command = json.loads((EXAMPLE / "run.json").read_text("utf-8"))["command"]
    told = (ROOT / "results" / "README.md").read_text("utf-8")
    assert " ".join(f'"{word}"' if " " in word else word for word in command) in told


def test_the_readme_has_a_small_picture() -> None:
    picture = ROOT / "docs" / "images" / "report.png"
    assert f"]({picture.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert 20_000 < len(content) < 200_000


# Published figures.


def figures() -> list[dict[str, str]]:
    with FIGURES.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_figure_says_of_what_from_where_and_since_when() -> None:
    parts = {part.name for part in table().parts}
    for number, line in enumerate(figures(), 2):
        assert None not in line.values(), number
        assert line["machine"].partition(" (")[0] in parts, number
        assert line["collective"] in COLLECTIVES, number
        assert int(line["ranks"]) >= int(line["hosts"]) >= 1, number
        assert float(line["busbw_GBs"]) > 0, number
        assert line["kind"] in KINDS, number
        assert line["nvls"] in ("", "on", "off"), number
        assert line["source"].startswith("https://"), number
        assert datetime.date.fromisoformat(line["looked_up"]) > datetime.date(2026, 1, 1), number


def test_stated_and_published_figures_are_those_of_reports() -> None:
    """In both directions, to the last digit: neither can say what the other does not."""
    names = {part.id: part.name for part in table().parts}
    nvls = {None: "", True: "on", False: "off"}
    in_package = {
        (
            names[entry.part] + (f" ({entry.on})" if entry.on else ""),
            entry.nranks,
            entry.hosts,
            op,
            size,
            entry.busbw_GBs,
            nvls[entry.nvls],
            entry.kind,
            entry.by,
            entry.source,
            entry.date,
        )
        for entry in table().expected
        for op in entry.ops
        for size in [str(size) for size in entry.sizes] or [f">={entry.from_bytes}"]
    }
    in_folder = {
        (
            line["machine"],
            int(line["ranks"]),
            int(line["hosts"]),
            line["collective"],
            line["size_bytes"],
            float(line["busbw_GBs"]),
            line["nvls"],
            line["kind"],
            line["by"],
            line["source"],
            line["looked_up"],
        )
        for line in figures()
        if line["kind"] != "reported"
    }
    assert in_folder == in_package
