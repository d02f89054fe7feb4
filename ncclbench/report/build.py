"""From runs to one HTML file that opens anywhere, offline."""

from __future__ import annotations

import itertools
import os
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from ncclbench import __version__
from ncclbench.errors import MeasurementError
from ncclbench.report.model import Report, Row, Source
from ncclbench.report.panels import PANELS
from ncclbench.report.plotlyjs import packed_plotlyjs
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("unpack.js", "figures.js", "table.js", "page.js")


def write_report(runs: list[Run], path: Path) -> None:
    """Write the report of one or several runs.

    Args:
        runs: at least one; their curves stand side by side, each under the run's label.
        path: the file, replaced whole.

    Raises:
        MeasurementError: the file cannot be written; nothing is left half done.
    """
    page = render(report_of(runs))
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise MeasurementError(
            f"cannot write the report {path}: {error.strerror}; "
            "the run is complete, write the page elsewhere with `ncclbench report`"
        ) from error


def report_of(runs: list[Run]) -> Report:
    """The rows and comparisons of runs, each tagged with its run's label."""
    sources = []
    for label, run in zip(_labels(runs), runs, strict=True):
        rows = _tagged(run_rows(run), label)
        comparisons: list[Row] = []
        if len(run.plan.arms) > 1:
            # Only here: one arm is compared with nothing.
            from ncclbench.compare.paired import compare_run

            comparisons = _tagged(compare_run(run), label)
        sources.append(Source(label, run, rows, comparisons))
    return Report(sources)


def render(report: Report) -> str:
    """The page as text."""
    contents = {name: panel.build(report) for name, panel in PANELS.items()}
    entries = [
        {"panel": PANELS[name], "content": content} for name, content in contents.items() if content is not None
    ]
    groups = [
        {"follows_selection": follows, "entries": list(group)}
        for follows, group in itertools.groupby(entries, lambda entry: entry["panel"].follows_selection)
    ]
    data: dict[str, Any] = {
        "families": [
            {"key": family.key, "op": family.op, "label": family.label} for family in report.families.values()
        ],
        "figures": {},
    }
    for content in contents.values():
        for figure in (content or {}).get("figures", ()):
            data["figures"][figure.name] = figure.to_json()
        data |= (content or {}).get("data", {})
    embedded = htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=" and ".join(source.label for source in report.sources),
            report=report,
            groups=groups,
            data=embedded,
            plotlyjs=Markup(packed_plotlyjs()) if data["figures"] else "",
            style=_raw("style.css"),
            scripts=Markup("\n").join(_raw(name) for name in _SCRIPTS),
            # Scripts run only with this word, which a text from a run cannot know beforehand.
            nonce=secrets.token_hex(16),
            version=__version__,
        )
    )


def _environment() -> Environment:
    # Autoescape for every template whatever its name: texts from runs are never markup.
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _raw(name: str) -> Markup:
    """A file of our own that goes into the page as it is."""
    return Markup((_TEMPLATES / name).read_text("utf-8"))


def _labels(runs: list[Run]) -> list[str]:
    """A label per run, unique: its own, else its folder's name; equal ones get a number."""
    plain = [str(run.meta.get("label") or run.folder.resolve().name) for run in runs]
    seen: Counter[str] = Counter()
    labels = []
    for label in plain:
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return labels


def _tagged(rows: list[Row], label: str) -> list[Row]:
    return [{"run": label, **row} for row in rows]
