"""What a preset of several steps shows: a heading before each, a line after it, and a list at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ncclbench.store.files import META_FILE
from ncclbench.store.preset import StepStatus, StoredStep
from ncclbench.terminal.columns import aligned, headed
from ncclbench.terminal.streams import coloured, one_line
from ncclbench.units import format_seconds

_COLOURS: dict[StepStatus, str] = {
    "bad": "red",
    "wrong request": "red",
    "failed": "red",
    "interrupted": "yellow",
    "not run": "yellow",
}


def heading(step: StoredStep, number: int, count: int, stream: TextIO | None) -> str:
    """Before a step: where it stands and its whole command."""
    title = coloured(f"# step {number} of {count}: {step.name}", "bold", stream)
    return f"{title}\n#   {one_line(shlex.join(step.command))}"


def result(step: StoredStep, stream: TextIO | None) -> str:
    """After it, on one line."""
    took = f" in {format_seconds(step.seconds)}" if step.seconds else ""
    said = ": ".join(filter(None, [step.reason, step.message]))
    return f"{step.name}: {_word(step, stream)}{took}{': ' if said else ''}{one_line(said)}"


def step_lines(steps: Sequence[StoredStep], folder: Path, stream: TextIO | None) -> list[str]:
    """All steps: how each ended and where its run is."""
    cells = [["step", "status", "time", "run"]]
    for step in steps:
        took = format_seconds(step.seconds) if step.seconds else "-"
        where = str(folder / step.folder) if (folder / step.folder / META_FILE).is_file() else "-"
        cells.append([step.name, step.status, took, one_line(where)])
    head, *lines = headed(aligned(cells, left=(0, 1, 3)))
    colours = [_COLOURS.get(step.status) for step in steps]
    return [
        head,
        *(
            line if colour is None else coloured(line, colour, stream)
            for line, colour in zip(lines, colours, strict=True)
        ),
    ]


def _word(step: StoredStep, stream: TextIO | None) -> str:
    colour = _COLOURS.get(step.status)
    return step.status if colour is None else coloured(step.status, colour, stream)
