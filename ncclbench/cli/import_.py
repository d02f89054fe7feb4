"""``ncclbench import``: what other tools printed into a run that report and compare take."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    folder_choices,
)
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.files import new_run_folder
from ncclbench.cli.jobs import typed_command
from ncclbench.cli.options import (
    json_option,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.requiring import Held, hold, require_options
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_BAD_REQUEST, RequestError
from ncclbench.importing import AUTO, IMPORTERS, Reading, read_file
from ncclbench.importing.model import REJECTED, Problem
from ncclbench.importing.nccl_words import OPS
from ncclbench.importing.source import STDIN
from ncclbench.names import flat, lookup
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.terminal.imported import file_lines, table_lines
from ncclbench.terminal.streams import coloured, one_line, show, write
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.importing.assemble import Assembled, Unread
    from ncclbench.importing.model import Described
    from ncclbench.store.model import Run


def _op(text: str, option: str) -> str:
    """An operation by ncclbench's name for it or nccl-tests'."""
    known = {**{name: name for name in COLLECTIVES}, **OPS}
    written = text.removesuffix("_perf")
    return {flat(name): op for name, op in known.items()}.get(flat(written)) or lookup(
        known, "operation", written
    )


@click.command(
    "import",
    cls=SectionedCommand,
    epilog="Example: ncclbench import hopper.log --label hopper",
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    callback=lambda ctx, parameter, files: [values.path(file, "FILE") for file in files],
)
@under(
    "What is read",
    option(
        "--format",
        metavar="NAME",
        default=AUTO,
        parse=values.one_of((AUTO, *IMPORTERS)),
        help=f"Of all the files: {', '.join(IMPORTERS)}.",
    ),
    option(
        "--op",
        metavar="NAME",
        otherwise="from the text",
        parse=_op,
        help="The collective, where neither text nor figures tell it.",
    ),
)
@under("What is kept", *folder_choices)
@require_options
@json_option
def command(
    files: Sequence[str],
    format: str,
    op: str | None,
    out: str | None,
    label: str | None,
    as_json: bool,
    **required: Any,
) -> int:
    """Read what nccl-tests, rccl-tests, PARAM or OSU printed into one run; - is standard input.

    Every row is checked against itself, and what is derived and not read is marked so. A file that cannot
    be read is told and the others are imported; where nothing can be, nothing is written.
    """
    # With numpy, of which --help has no use.
    from ncclbench.importing.assemble import write_run

    created = datetime.now(UTC)
    assembled = _read_all(files, format, op)
    # Of one that cannot be read, the line at the end says it all.
    if len(files) > 1 or assembled.files[0]["format"] is not None:
        for entry in assembled.files:
            stream = sys.stdout if entry["rows"] and not as_json else sys.stderr
            show("\n".join(file_lines(entry)) + "\n", stream)
    if not assembled.rows:
        return _nothing(assembled.files, as_json)
    with new_run_folder(out, label) as folder:
        write_run(folder, assembled, command=typed_command(), label=label, created=created)
        return _conclude(folder.path, assembled.files, required, as_json)


def _read_all(files: Sequence[str], format: str, op: str | None) -> Assembled:
    """The files that can be read, put together, and what is told of each in the order typed."""
    from ncclbench.importing.assemble import Unread, assemble

    if len(set(files)) < len(files):
        raise RequestError("a file is named twice: name it once")
    readings: list[Reading | Unread] = []
    names: dict[bytes, str] = {}
    for file in files:
        try:
            reading = read_file(Path(file), format, op)
        except RequestError as error:
            readings.append(Unread(Path(file), str(error)))
            continue
        readings.append(reading)
        if len(files) > 1 and file != STDIN:
            with suppress(OSError), Path(file).open("rb") as stream:
                first = names.setdefault(file_digest(stream, "sha256").digest(), file)
                if first != file:
                    reason = f"it has the same content as {first}: what is in them was measured once"
                    reading.problems.append(Problem(None, reason))
    return assemble(readings)


def _nothing(entries: Sequence[Described], as_json: bool) -> int:
    """Say that nothing was imported, and why: nothing is written."""
    reasons = [problem["reason"] for entry in entries for problem in entry["problems"]]
    rejected = sum(entry["rows_rejected"] for entry in entries)
    if len(entries) == 1 and entries[0]["format"] is None:
        message = str(reasons[0])
    else:
        first = next((reason for reason in reasons if reason.startswith(REJECTED)), None)
        seen = "no row of numbers" if not rejected else f"{count_text(rejected, 'row')} rejected"
        seen += "" if first is None else f" ({first.removeprefix(REJECTED)})"
        names = ", ".join(entry["file"] for entry in entries[:3]) + (" ..." if len(entries) > 3 else "")
        message = f"nothing to import in {names}: {seen}; give logs that hold the table of results"
    message = one_line(message)
    show(f"ncclbench: error: {message}\n", sys.stderr)
    if as_json:
        emit_json(document("import", ok=False, message=message, rest={"rows": [], "files": entries}))
    return EXIT_BAD_REQUEST


def _conclude(folder: Path, entries: Sequence[Described], required: Mapping[str, Any], as_json: bool) -> int:
    """Write summary and report of the run as readers see it, show it, and find the exit code."""
    # Imported here for the sake of --help: they bring pandas and plotly.
    from ncclbench.report.build import write_report
    from ncclbench.stats.rows import run_rows, write_summary_csv
    from ncclbench.store.folder import REPORT_FILE, SUMMARY_FILE
    from ncclbench.store.reader import load_run

    run = load_run(folder)
    rows = run_rows(run)
    report = folder / REPORT_FILE
    write_summary_csv(rows, folder / SUMMARY_FILE)
    held = hold([(run, rows)], required)
    write_report([run], report, held.judged)
    wrong = [row for row in rows if row["status"] == "wrong"]
    message = _message(rows, entries, len(wrong)) + (f"; {held.message}" if held.message else "")
    if as_json:
        emit_json(_document(run, rows, entries, held, message, report, ok=not wrong))
    else:
        lines = table_lines(rows)
        if wrong:
            lines.append(
                coloured(
                    f"WRONG DATA in {count_text(len(wrong), 'row')}: such times mean nothing",
                    "red",
                    sys.stdout,
                )
            )
        lines += [*held.lines(sys.stdout), f"run: {folder}", f"report: {report}"]
        lines.append(
            f"compare it: ncclbench compare {folder} OTHER-RUN; report again: ncclbench report {folder}"
        )
        write("\n".join(lines) + "\n", sys.stdout)
    return EXIT_BAD_ANSWER if wrong else held.code


def _message(rows: Sequence[Mapping[str, Any]], entries: Sequence[Described], wrong: int) -> str:
    taken = sum(entry["rows_taken"] for entry in entries)
    rejected = sum(entry["rows_rejected"] for entry in entries)
    text = f"{count_text(taken, 'row')} taken, {rejected} rejected: {count_text(len(rows), 'row')} of the run"
    unread_files = sum(entry["format"] is None for entry in entries)
    if unread_files:
        text += f", {count_text(unread_files, 'file')} not read"
    return text + (f", {wrong} WRONG" if wrong else "")


def _document(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    entries: Sequence[Described],
    held: Held,
    message: str,
    report: Path,
    ok: bool,
) -> dict[str, Any]:
    from ncclbench.compare.paired import compare_run
    from ncclbench.stats.fits import run_fits

    return document(
        "import",
        run=run.folder,
        ok=ok and not held.fails,
        message=message,
        environment=run.meta.get("environment"),
        rest={
            "rows": rows,
            "files": entries,
            "fits": [fit.to_json() for fit in run_fits(run)],
            **held.to_json(),
            "comparisons": compare_run(run) if len(run.plan.arms) > 1 else [],
            "report": report,
            "problems": run.problems,
        },
    )
