"""From runs to one HTML file that opens anywhere, offline."""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from ncclbench import __version__
from ncclbench.report.figures import Figure
from ncclbench.report.flight.model import FlightPage
from ncclbench.report.flight.runs import flights_of
from ncclbench.report.imported import worded
from ncclbench.report.model import Family, Report, Row, Source, tabled
from ncclbench.report.packing import packed, packed_plotlyjs
from ncclbench.report.panels import FLIGHT_PANELS, PANELS
from ncclbench.report.panels.panel import Panel, Subject
from ncclbench.report.text import moment_text, visible_text
from ncclbench.stats.rows import run_rows
from ncclbench.store.folder import replace_file
from ncclbench.store.model import Run

if TYPE_CHECKING:
    from ncclbench.compare.launches import Comparison
    from ncclbench.hardware.judging import Judged
    from ncclbench.report.flight.model import Flight
    from ncclbench.report.redact import Redactor
    from ncclbench.report.searched import Searched
    from ncclbench.report.versus.model import Gate

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("unpack.js", "figures.js", "table.js", "page.js")


def write_report(
    runs: list[Run],
    path: Path,
    requirements: Sequence[Judged] = (),
    comparisons: Sequence[Comparison] = (),
    redactor: Redactor | None = None,
    flights: Sequence[Flight | None] | None = None,
) -> None:
    """Write the report of one or several runs.

    Args:
        runs: at least one; their curves stand side by side, each under the run's label.
        path: the file, replaced whole.
        requirements: what was required of the runs and what came of it, shown first.
        comparisons: of these runs, shown after their verdicts.
        redactor: that took the names out of the runs, if anything did: the page says so and is searched.
        flights: what the flight recorders of each run say; None looks into their folders.

    Raises:
        MeasurementError: the file cannot be written, or a name is left in it; what was there before stands.
    """
    page = render(report_of(runs, requirements, comparisons, flights), redactor.notice if redactor else ())
    write_page(page, path, redactor)


def report_of(
    runs: list[Run],
    requirements: Sequence[Judged] = (),
    comparisons: Sequence[Comparison] = (),
    flights: Sequence[Flight | None] | None = None,
) -> Report:
    """The rows and comparisons of runs, each tagged with its run's label."""
    if flights is None:
        flights = flights_of(runs)
    versus = []
    if comparisons:
        from ncclbench.report.versus.model import Versus

        versus = [Versus(comparison, None) for comparison in comparisons]
    sources = []
    for label, run, flight in zip(_labels(runs), runs, flights, strict=True):
        rows = _tagged(worded(run_rows(run)), label)
        own: list[Row] = []
        if len(run.plan.arms) > 1:
            # Only here: one arm is compared with nothing.
            from ncclbench.compare.paired import compare_run

            own = _tagged(compare_run(run), label)
        if flight is not None and len(runs) > 1:
            flight = replace(flight, label=label)
        sources.append(Source(label, run, rows, own, _search(run), flight))
    return Report(sources, requirements, versus)


def _search(run: Run) -> Searched | None:
    if not run.is_search:
        return None
    # Only here: other reports judge nobody.
    from ncclbench.report.searched import searched

    return searched(run)


def render(report: Report, notice: Sequence[str] = ()) -> str:
    """The page of a report as text; ``notice`` stands on top, a line each."""
    return _page(
        PANELS,
        report,
        title=report.title,
        created=[(source.label, source.run.meta.get("created")) for source in report.sources],
        notice=notice,
        families=report.families,
        rows=tabled(report.rows),
    )


def write_comparison(
    comparison: Comparison, path: Path, gate: Gate | None = None, redactor: Redactor | None = None
) -> None:
    """Write the page of a comparison.

    Args:
        comparison: of two sides.
        path: the file, replaced whole.
        gate: what the comparison was held against, None where nothing was asked.
        redactor: as in ``write_report``.

    Raises:
        MeasurementError: the file cannot be written, or a name is left in it; what was there before stands.
    """
    page = render_comparison(comparison, gate, redactor.notice if redactor else ())
    write_page(page, path, redactor)


def render_comparison(comparison: Comparison, gate: Gate | None = None, notice: Sequence[str] = ()) -> str:
    """The page of a comparison as text; ``notice`` stands on top, a line each."""
    # Imported here: the report of a single arm needs none of it.
    from ncclbench.compare.overview import flat
    from ncclbench.report.versus import PANELS as VERSUS_PANELS
    from ncclbench.report.versus.model import Versus

    versus = Versus(comparison, gate)
    return _page(
        VERSUS_PANELS,
        versus,
        title=versus.title,
        created=[],
        notice=notice,
        families=versus.families,
        rows=[flat(row) for row in tabled(versus.rows)],
    )


def write_flight(flight: Flight, path: Path, redactor: Redactor | None = None) -> None:
    """Write the page of dumps.

    Args:
        flight: what they say.
        path: the file, replaced whole.
        redactor: as in ``write_report``.

    Raises:
        MeasurementError: the file cannot be written, or a name is left in it; what was there before stands.
    """
    write_page(render_flight(flight, redactor.notice if redactor else ()), path, redactor)


def render_flight(flight: Flight, notice: Sequence[str] = ()) -> str:
    """The page of dumps as text; ``notice`` stands on top, a line each."""
    return _page(
        FLIGHT_PANELS,
        FlightPage((flight,)),
        title="Flight recorder",
        created=[],
        notice=notice,
        families={},
        rows=[],
    )


def write_page(page: str, path: Path, redactor: Redactor | None) -> None:
    """Write a page that was rendered, searched before for names where they were taken out.

    Raises:
        MeasurementError: the file cannot be written, or a name is left in it; what was there before stands.
    """
    if redactor is not None:
        from ncclbench.report.contents import page_texts

        redactor.check(page_texts(page))
    replace_file(path, page.encode())


def _page(
    panels: Mapping[str, Panel[Subject]],
    subject: Subject,
    *,
    title: str,
    created: Sequence[tuple[str, Any]],
    notice: Sequence[str],
    families: Mapping[str, Family],
    rows: list[Row],
) -> str:
    """A page: those of the panels that have something to show of the subject, and the rows for download."""
    in_order = sorted(panels.values(), key=lambda panel: panel.order)
    contents = [(panel, panel.build(subject)) for panel in in_order]
    shown = [(panel, content) for panel, content in contents if content is not None]
    groups = [
        {"follows_selection": follows, "entries": list(group)}
        for follows, group in itertools.groupby(shown, lambda entry: entry[0].follows_selection)
    ]
    figures: list[Figure] = [figure for _, content in shown for figure in content.get("figures", ())]
    drawing = {
        "families": [
            {"key": family.key, "op": visible_text(str(family.op)), "label": visible_text(family.label)}
            for family in families.values()
        ],
        "figures": {figure.name: figure.to_json() for figure in figures},
    }
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            notice=notice,
            when=[(label, moment_text(str(moment))) for label, moment in created if moment],
            groups=groups,
            rows=htmlsafe_json_dumps(columnar(rows), separators=(",", ":"), allow_nan=False),
            drawing=packed(json.dumps(drawing, separators=(",", ":"), allow_nan=False)),
            plotlyjs=packed_plotlyjs(),
            style=_own("style.css"),
            scripts="\n".join(_own(name) for name in _SCRIPTS),
            # Scripts run only with this word, which a text from a run cannot know beforehand.
            nonce=secrets.token_hex(16),
            version=__version__,
        )
    )


def columnar(rows: list[Row]) -> dict[str, list[Any]]:
    """Rows as keys and values, unrounded, for sorting and downloading: a third of one object per row."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {"keys": keys, "values": [[_finite(row.get(key)) for key in keys] for row in rows]}


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _environment() -> Environment:
    # Autoescape for every template whatever its name: texts from runs are never markup.
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: Any) -> Any:
    """What a template writes; our own markup as it is."""
    return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _own(name: str) -> str:
    """A file of ours that goes into the page as it is."""
    return (_TEMPLATES / name).read_text("utf-8")


def _labels(runs: list[Run]) -> list[str]:
    """A label per run, unique: its own, else its folder's name; equal ones get a number."""
    plain = [str(run.meta.get("label") or os.path.basename(os.path.realpath(run.folder))) for run in runs]
    seen: Counter[str] = Counter()
    labels = []
    for label in plain:
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return labels


def _tagged(rows: list[Row], label: str) -> list[Row]:
    return [{"run": label, **row} for row in rows]
