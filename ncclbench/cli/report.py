"""``ncclbench report``: the one-file HTML page of runs that were measured before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli.options import SectionedCommand, json_option, option, under
from ncclbench.cli.output import document, emit_json
from ncclbench.errors import RequestError
from ncclbench.terminal.streams import write

if TYPE_CHECKING:
    from ncclbench.store.model import Run


@click.command(
    "report",
    cls=SectionedCommand,
    epilog="Example: ncclbench report results/hopper results/blackwell --out both.html",
)
@click.argument("folders", nargs=-1, required=True, metavar="RUN...")
@under(
    "What is written",
    option(
        "--out",
        metavar="FILE",
        otherwise="RUN/report.html; of several runs, report-of-N-runs.html in the first",
        help="The page.",
    ),
)
@json_option
def command(folders: Sequence[str], out: str | None, as_json: bool) -> None:
    """Write one HTML page about one or several runs: it opens offline and can be sent to anybody."""
    # Imported here for the sake of --help: they bring NumPy, pandas and plotly.
    from ncclbench.report.build import write_report
    from ncclbench.store.reader import load_run

    runs = [load_run(Path(folder)) for folder in folders]
    page = _page(out, runs)
    write_report(runs, page)
    message = f"report: {page}"
    if as_json:
        emit_json(_document(runs, page, message))
    else:
        write(f"{message}\n", sys.stdout)


def _page(out: str | None, runs: Sequence[Run]) -> Path:
    """Where the page goes.

    Raises:
        RequestError: nothing can be written there.
    """
    name = "report.html" if len(runs) == 1 else f"report-of-{len(runs)}-runs.html"
    page = Path(out) if out is not None else runs[0].folder / name
    mend = "name a file with --out"
    if page.is_dir():
        raise RequestError(f"{page} is a folder: {mend}")
    if page.exists() and not page.is_file():
        # It would be replaced whole, as a file is.
        raise RequestError(f"{page} is a device or a pipe, no file: {mend}")
    if not page.parent.is_dir():
        raise RequestError(f"there is no folder {page.parent}: make it, or {mend}")
    if not os.access(page.parent, os.W_OK):
        raise RequestError(f"cannot write to {page.parent}: {mend} elsewhere")
    return page


def _document(runs: Sequence[Run], page: Path, message: str) -> dict[str, Any]:
    from ncclbench.compare.paired import compare_run
    from ncclbench.stats.rows import run_rows

    rows = [{"run": run.folder, **row} for run in runs for row in run_rows(run)]
    several = [run for run in runs if len(run.plan.arms) > 1]
    comparisons = [{"run": run.folder, **row} for run in several for row in compare_run(run)]
    only = runs[0] if len(runs) == 1 else None
    return document(
        "report",
        run=only.folder if only else None,
        ok=True,
        message=message,
        environment=only.meta.get("environment") if only else None,
        rest={"report": page, "rows": rows, "comparisons": comparisons},
    )
