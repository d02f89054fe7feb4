"""Reading what other tools print: IMPORTERS, one entry per format, and the one way into all of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ncclbench.errors import RequestError
from ncclbench.importing.model import Importer, Problem, Reading
from ncclbench.importing.nccl_json import NCCL_JSON
from ncclbench.importing.nccl_tests import NCCL_TESTS
from ncclbench.importing.osu import OSU
from ncclbench.importing.param import PARAM
from ncclbench.importing.rccl_tables import CSV_NAMES, RCCL_CSV, RCCL_JSON
from ncclbench.importing.source import STDIN, check_file, first_text, last_text, standard_input
from ncclbench.names import lookup

AUTO = "auto"
# Of what an importer is as sure as this, its tool has said its name.
_CERTAIN = 95
_FIRST_LINES = 20
_JSON_BEHIND = re.compile(r'^\s*\{\s*"version"\s*:|"(?:out_of_place|nccl_version)"\s*:', re.MULTILINE)

_ENTRIES = (NCCL_TESTS, NCCL_JSON, RCCL_JSON, RCCL_CSV, PARAM, OSU)

IMPORTERS: dict[str, Importer] = {entry.name: entry for entry in _ENTRIES}

__all__ = ["AUTO", "IMPORTERS", "Importer", "Reading", "read_file"]


def read_file(file: Path, format: str = AUTO, op: str | None = None) -> Reading:
    """What is in a file; nothing in it is run or unpacked.

    Args:
        file: where it lies; ``-`` is standard input.
        format: name in IMPORTERS, or "auto" for the one that recognises it surest.
        op: name in COLLECTIVES of what was measured, where the text does not tell.

    Raises:
        RequestError: it cannot be read, is too large, or is of no known format.
    """
    if str(file) != STDIN:
        check_file(file)
        return _read(file, format, op)
    with standard_input(sys.stdin.buffer) as copy:
        try:
            reading = _read(copy, format, op)
        except RequestError as error:
            raise RequestError(str(error).replace(str(copy), "standard input")) from None
    reading.file = file
    return reading


def _read(file: Path, format: str, op: str | None) -> Reading:
    text = first_text(file)
    if format != AUTO:
        return lookup(IMPORTERS, "format", format).read(file, op)
    sure = {name: entry.recognises(text, file.name) for name, entry in IMPORTERS.items()}
    surest = max(sure, key=lambda name: sure[name])
    if not sure[surest] and (late := _begins_late(file, op)) is not None:
        return late
    if not sure[surest]:
        raise RequestError(
            f"{file} {_seen(text)}: give the output as the benchmark wrote it "
            f"({', '.join(IMPORTERS)}), or name the format with --format"
        )
    reading = IMPORTERS[surest].read(file, op)
    for name in sure:
        if name != surest and sure[name] >= _CERTAIN:
            reason = f"there is {name} in it, too: import it again with --format {name}"
            reading.problems.append(Problem(None, reason))
    if surest == NCCL_TESTS.name and _JSON_BEHIND.search(text + last_text(file)):
        reason = "JSON stands behind the text in it: import it from a file of its own"
        reading.problems.append(Problem(None, reason))
    return reading


def _seen(text: str) -> str:
    """What a text of no known format looks like."""
    commas = [line.count(",") for line in text.splitlines()[:_FIRST_LINES] if line.strip()]
    if len(commas) > 1 and commas[0] >= 2 and commas.count(commas[0]) >= 0.8 * len(commas):
        return f"looks like CSV, but its header does not name {', '.join(CSV_NAMES)}, as rccl-tests writes it"
    return "is in no format that is known"


def _begins_late(file: Path, op: str | None) -> Reading | None:
    """A log of nccl-tests whose table lies behind more foreign text than was looked at, or None."""
    reading = NCCL_TESTS.read(file, op)
    return reading if reading.rows_taken or reading.rows_rejected else None
