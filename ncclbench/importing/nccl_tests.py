"""The importer of what nccl-tests and rccl-tests print."""

from __future__ import annotations

from pathlib import Path

from ncclbench.importing.model import Importer, Reading
from ncclbench.importing.nccl_draft import Draft
from ncclbench.importing.nccl_scan import looks_like_rows
from ncclbench.importing.nccl_section import Notes, section_of
from ncclbench.importing.nccl_streams import scan


def read(file: Path, op: str | None = None) -> Reading:
    """What a log of nccl-tests or rccl-tests holds, each invocation a section.

    Args:
        op: the collective, name in COLLECTIVES, where the text does not tell it.

    Raises:
        RequestError: the file cannot be read.
    """
    drafts, problems = scan(file)
    reading = Reading(file, NCCL_TESTS.name)
    notes = Notes(problems)
    for draft in drafts:
        if _is_something(draft):
            section, rejected = section_of(draft, op, file, notes)
            reading.sections.append(section)
            reading.rows_rejected += rejected
    reading.problems = notes.finish()
    return reading


def _is_something(draft: Draft) -> bool:
    return bool(
        draft.rows or draft.devices or draft.settings or draft.failure or draft.banner_op or draft.average
    )


def recognises(text: str, name: str) -> int:
    """How sure it is that this is such a log, by its beginning: 0 to 100."""
    if text.lstrip()[:1] == "{":
        return 0  # JSON of theirs, which has a reader of its own
    if "nccl-tests version" in text or "rccl-tests" in text or "Collective test starting" in text:
        return 95
    if "algbw" in text and "busbw" in text and ("size" in text or "bytes" in text) and "time" in text:
        return 90
    if ("nThread" in text and "nGpus" in text) or "Avg bus bandwidth" in text:
        return 90
    if any(True for _ in looks_like_rows(text)):
        return 60
    # A long log may be debug output for as far as this beginning goes.
    return 30 if "NCCL INFO" in text or "_perf" in text else 5 if "nccl" in text.lower() else 0


NCCL_TESTS = Importer(
    "nccl-tests",
    "what nccl-tests and rccl-tests print, every version, through launchers' prefixes and debug output",
    recognises,
    read,
)
