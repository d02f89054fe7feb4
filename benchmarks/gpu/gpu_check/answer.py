"""The answer: one table, and a file that can be sent back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_check.judging import UNAVAILABLE, WORKS, WRONG
from gpu_check.machine import scrubbed

_REASON_WIDTH = 110
# Of what a check that is wrong has printed.
_TAIL_CHARACTERS = 6000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Attributes:
        name: of the check, with its number of ranks where it has several.
        verdict, reason: what came of it, one line; seconds: how long it took.
        command: the last one that ran; out, err: the end of what it printed, of one that is wrong.
    """

    name: str
    verdict: str
    seconds: float
    reason: str
    command: str = ""
    out: str = ""
    err: str = ""


def text_of(line: Line, width: int) -> str:
    """As a line of the table."""
    reason = " ".join(line.reason.split())
    if len(reason) > _REASON_WIDTH:
        reason = f"{reason[: _REASON_WIDTH - 3]}..."
    return f"{line.name:<{width}}  {line.verdict:<11}  {line.seconds:6.1f} s  {reason}".rstrip()


def summary(lines: Sequence[Line]) -> str:
    """How many of each."""
    counts = Counter(line.verdict for line in lines)
    return ", ".join(f"{counts[word]} {word}" for word in (WORKS, WRONG, UNAVAILABLE))


def tail(text: str) -> str:
    """The end of what was printed."""
    return text[-_TAIL_CHARACTERS:]


def write(path: Path, machine: dict[str, Any], lines: Sequence[Line], place: str) -> None:
    """JSON, or text where the file's name ends in .txt."""
    if path.suffix == ".txt":
        width = max((len(line.name) for line in lines), default=0)
        parts = [place, summary(lines), "", *(text_of(line, width) for line in lines), ""]
        for line in lines:
            if line.verdict == WRONG:
                parts += [f"== {line.name}: {line.command}", line.reason, line.out, line.err]
        parts += ["", json.dumps(machine, indent=1)]
        path.write_text(scrubbed("\n".join(parts)) + "\n", encoding="utf-8")
        return
    document = {
        "schema": 1,
        "place": place,
        "summary": summary(lines),
        "machine": machine,
        "checks": [asdict(line) for line in lines],
    }
    path.write_text(scrubbed(json.dumps(document, indent=1)) + "\n", encoding="utf-8")
