"""``ncclbench report`` on the folder of a preset: its answer anew, on the terminal and as a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncclbench.cli.files import free_file
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.redaction import checked, shown_path, tell_owner
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, RequestError
from ncclbench.terminal.streams import coloured, write


def is_preset(folder: Path) -> bool:
    """Whether it is a preset's folder, or its preset.json, and no run's."""
    from ncclbench.store.files import PRESET_FILE

    if folder.name == PRESET_FILE:
        return os.path.exists(folder)
    return os.path.lexists(folder / PRESET_FILE)


def report_preset(
    folders: Sequence[str],
    out: str | None,
    compare_with: Sequence[str],
    redact: bool,
    as_json: bool,
    required: Mapping[str, Any],
) -> int:
    """Write the page of a preset's folder and show its answer; the exit code.

    Raises:
        RequestError: it is no preset that can be read, or something was asked that is for runs.
    """
    from ncclbench.report.deciding import decided_of, without_names, write_decided
    from ncclbench.store.files import PRESET_FILE, REPORT_FILE
    from ncclbench.store.preset import read_preset
    from ncclbench.terminal.preset import decision_colour, decision_lines

    _refuse(folders, compare_with, required)
    folder = Path(folders[0])
    folder = folder.parent if folder.name == PRESET_FILE else folder
    if not os.path.isfile(folder / PRESET_FILE):  # opening a pipe would wait for who writes to it
        raise RequestError(f"{folder / PRESET_FILE} is no file: name the folder that ncclbench wrote")
    stored = read_preset(folder)
    name = REPORT_FILE.replace(".html", "-redacted.html") if redact else REPORT_FILE
    page = free_file(Path(os.path.realpath(out)) if out else folder / name, "name a file with --out")
    decided, redactor = decided_of(folder, stored), None
    if redact:
        decided, redactor = without_names(folder, stored, decided)
    write_decided(decided, page, redactor)
    tell_owner(redactor)
    decision = decided.decision
    wrong = decision is not None and decision.wrong
    answer = "no question is asked" if decision is None else decision.answer
    if as_json:
        shown = shown_path(page, redactor)
        rest = {
            "report": shown,
            "rows": [],
            "preset": decided.preset,
            "decision": None if decision is None else decision.as_json(),
            "steps": [
                {"name": step.name, "status": step.status, "seconds": step.seconds, "said": step.said}
                for step in decided.steps
            ],
        }
        run = shown_path(folder, redactor)
        emit_json(
            checked(
                document("report", run=run, ok=not wrong, message=f"{answer}; report: {shown}", rest=rest),
                redactor,
            )
        )
    else:
        lines = [] if decision is None else decision_lines(decision)
        if decision is not None:
            lines[0] = coloured(lines[0], decision_colour(decision), sys.stdout)
        write("\n".join([*lines, f"report: {page}"]) + "\n", sys.stdout)
    return EXIT_BAD_ANSWER if wrong else EXIT_OK


def _refuse(folders: Sequence[str], compare_with: Sequence[str], required: Mapping[str, Any]) -> None:
    if len(folders) > 1:
        raise RequestError(
            "the folder of a preset has a page of its own: name it alone, or name runs within it"
        )
    for given, option in ((compare_with, "--compare-with"), (required.get("require"), "--require")):
        if given:
            raise RequestError(
                f"{option} is for runs, and {folders[0]} is the folder of a preset: name a step within it"
            )
