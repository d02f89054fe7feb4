"""``ncclbench report``: the one-file HTML page of runs that were measured before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.deciding import is_preset, report_preset
from ncclbench.cli.declaring import SectionedCommand, SectionOption, option, under
from ncclbench.cli.files import free_file
from ncclbench.cli.options import (
    json_option,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.redaction import checked, redact_option, shown_path, tell_owner
from ncclbench.cli.requiring import Held, hold, require_options
from ncclbench.errors import EXIT_BAD_ANSWER, RequestError
from ncclbench.terminal.streams import one_line, show, write
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.compare.launches import Comparison
    from ncclbench.compare.sides import Side
    from ncclbench.store.model import Run

    Sides = tuple[Side, Side]


@click.command(
    "report",
    cls=SectionedCommand,
    epilog="Example: ncclbench report results/hopper results/blackwell --out both.html",
)
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="RUN...",
    callback=lambda ctx, parameter, folders: [values.path(folder, "RUN") for folder in folders],
)
@under(
    "What is written",
    option(
        "--out",
        metavar="FILE",
        parse=values.path,
        otherwise="RUN/report.html; of several runs, report-of-N-runs.html in the first",
        help="The page.",
    ),
)
@click.option(
    "--compare-with",
    cls=SectionOption,
    section="What is written",
    metavar="RUN",
    multiple=True,
    callback=lambda ctx, parameter, words: [values.path(word, "--compare-with") for word in words],
    help="Another run on the same page, and the one RUN compared with it; may be repeated.",
)
@redact_option
@require_options
@json_option
def command(
    folders: Sequence[str],
    out: str | None,
    compare_with: Sequence[str],
    redact: bool,
    as_json: bool,
    **required: Any,
) -> int:
    """Write one HTML page about one or several runs: it opens offline and can be sent to anybody.

    Of the folder of a preset (sweep --preset): its answer, found anew from the steps that lie in it.
    """
    if any(is_preset(Path(folder)) for folder in folders):
        return report_preset(folders, out, compare_with, redact, as_json, required)
    # Imported here for the sake of --help: they bring NumPy, pandas and plotly.
    from ncclbench.report.build import write_report
    from ncclbench.report.flight.redacting import without_names
    from ncclbench.report.flight.runs import flights_of
    from ncclbench.report.redact import Redactor
    from ncclbench.stats.rows import run_rows

    runs, sides = _runs(folders, compare_with)
    page = _page(out, runs, redact)
    flights = flights_of(runs)
    redactor = Redactor(runs, [flight for flight in flights if flight is not None]) if redact else None
    if redactor is not None:
        flights = [flight and without_names(flight, redactor) for flight in flights]
        runs, sides = redactor.runs, [(redactor.side(base), redactor.side(new)) for base, new in sides]
    comparisons = _compared(sides, compare_with)
    of_runs = [(run, run_rows(run)) for run in runs]
    held = hold(of_runs, required)
    write_report(runs, page, held.judged, comparisons=comparisons, redactor=redactor, flights=flights)
    rows = [{"run": run.folder, **row} for run, own in of_runs for row in own]
    wrong = sum(row["status"] == "wrong" for row in rows)
    warning = f" ({count_text(wrong, 'row')} with WRONG data)" if wrong else ""
    for problem in (problem for run in runs for problem in run.problems):
        show(f"ncclbench: {one_line(problem)}\n", sys.stderr)
    tell_owner(redactor)
    if as_json:
        shown = shown_path(page, redactor)
        message = "; ".join(part for part in (f"report: {shown}{warning}", held.message) if part)
        emit_json(checked(_document(runs, rows, comparisons, held, shown, message, ok=not wrong), redactor))
    else:
        write("\n".join([*held.lines(sys.stdout), f"report: {page}{warning}"]) + "\n", sys.stdout)
    return EXIT_BAD_ANSWER if wrong else held.code


def _runs(folders: Sequence[str], compare_with: Sequence[str]) -> tuple[list[Run], list[Sides]]:
    """The runs of the page, and (base, new) of every comparison: RUN is new.

    Raises:
        RequestError: one cannot be read, or there is no telling which is to be compared.
    """
    from ncclbench.compare.sides import Opener
    from ncclbench.store.reader import load_run

    if not compare_with:
        return [load_run(Path(folder)) for folder in folders], []
    if len(folders) > 1:
        raise RequestError(
            f"--compare-with compares one RUN, not {len(folders)}: name one; several launches a side are for "
            "ncclbench compare --base R1 R2 --new R3 R4 --out FILE"
        )
    opener = Opener()
    sides = [opener.sides([word], folders) for word in compare_with]
    runs = [run for base, new in sides for side in (new, base) for run in side.runs]
    return list({id(run): run for run in runs}.values()), sides


def _compared(sides: Sequence[Sides], words: Sequence[str]) -> list[Comparison]:
    """The comparisons, in the order asked for."""
    from ncclbench.compare.launches import compare_sides

    comparisons = []
    for (base, new), word in zip(sides, words, strict=True):
        try:
            comparisons.append(compare_sides(base, new))
        except RequestError as error:
            raise RequestError(f"--compare-with {word}: {error}") from None
    return comparisons


def _page(out: str | None, runs: Sequence[Run], redact: bool) -> Path:
    """Where the page goes: one without names never takes the place of the one with them.

    Raises:
        RequestError: nothing can be written there.
    """
    name = "report" if len(runs) == 1 else f"report-of-{len(runs)}-runs"
    name += "-redacted.html" if redact else ".html"
    # A link is followed: what it points to is replaced, not the link.
    page = Path(os.path.realpath(out)) if out else runs[0].folder / name
    return free_file(page, "name a file with --out")


def _document(
    runs: Sequence[Run],
    rows: list[dict[str, Any]],
    comparisons: Sequence[Comparison],
    held: Held,
    page: Path | str | None,
    message: str,
    ok: bool,
) -> dict[str, Any]:
    from ncclbench.compare.paired import compare_run
    from ncclbench.stats.fits import run_fits

    several = [run for run in runs if len(run.plan.arms) > 1]
    only = runs[0] if len(runs) == 1 else None
    return document(
        "report",
        run=only.folder if only else None,
        ok=ok and not held.fails,
        message=message,
        environment=only.meta.get("environment") if only else None,
        rest={
            "report": page,
            "rows": rows,
            "fits": [{"run": run.folder, **fit.to_json()} for run in runs for fit in run_fits(run)],
            **held.to_json(),
            "comparisons": [{"run": run.folder, **row} for run in several for row in compare_run(run)],
            "compared": [
                {
                    "base": comparison.base.label,
                    "new": comparison.new.label,
                    "rows": comparison.rows,
                    "differences": comparison.differences,
                    "unpaired": comparison.unpaired,
                    "notes": comparison.notes,
                }
                for comparison in comparisons
            ],
            "problems": [problem for run in runs for problem in run.problems],
        },
    )
