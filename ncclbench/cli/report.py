"""``ncclbench report``: the one-file HTML page of runs that were measured before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.files import free_file
from ncclbench.cli.options import SectionedCommand, json_option, option, under
from ncclbench.cli.output import document, emit_json
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK
from ncclbench.terminal.streams import show, write

if TYPE_CHECKING:
    from ncclbench.store.model import Run


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
@json_option
def command(folders: Sequence[str], out: str | None, as_json: bool) -> int:
    """Write one HTML page about one or several runs: it opens offline and can be sent to anybody."""
    # Imported here for the sake of --help: they bring NumPy, pandas and plotly.
    from ncclbench.report.build import write_report
    from ncclbench.stats.rows import run_rows
    from ncclbench.store.reader import load_run

    runs = [load_run(Path(folder)) for folder in folders]
    page = _page(out, runs)
    write_report(runs, page)
    rows = [{"run": run.folder, **row} for run in runs for row in run_rows(run)]
    wrong = sum(row["status"] == "wrong" for row in rows)
    message = f"report: {page}" + (f" ({wrong} rows with WRONG data)" if wrong else "")
    for problem in (problem for run in runs for problem in run.problems):
        show(f"ncclbench: {problem}\n", sys.stderr)
    if as_json:
        emit_json(_document(runs, rows, page, message, ok=not wrong))
    else:
        write(f"{message}\n", sys.stdout)
    return EXIT_BAD_ANSWER if wrong else EXIT_OK


def _page(out: str | None, runs: Sequence[Run]) -> Path:
    """Where the page goes.

    Raises:
        RequestError: nothing can be written there.
    """
    name = "report.html" if len(runs) == 1 else f"report-of-{len(runs)}-runs.html"
    # A link is followed: what it points to is replaced, not the link.
    page = Path(out).resolve() if out else runs[0].folder / name
    return free_file(page, "name a file with --out")


def _document(
    runs: Sequence[Run], rows: list[dict[str, Any]], page: Path, message: str, ok: bool
) -> dict[str, Any]:
    from ncclbench.compare.paired import compare_run

    several = [run for run in runs if len(run.plan.arms) > 1]
    comparisons = [{"run": run.folder, **row} for run in several for row in compare_run(run)]
    only = runs[0] if len(runs) == 1 else None
    return document(
        "report",
        run=only.folder if only else None,
        ok=ok,
        message=message,
        environment=only.meta.get("environment") if only else None,
        rest={
            "report": page,
            "rows": rows,
            "comparisons": comparisons,
            "problems": [problem for run in runs for problem in run.problems],
        },
    )
