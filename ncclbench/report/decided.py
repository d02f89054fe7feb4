"""What the page of a preset shows: the decision, and each step with the way to its own page."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.compare.answers import Decision


@dataclass(frozen=True, slots=True)
class DecidedStep:
    """One step.

    Attributes:
        name: as in the preset.
        href: its page, relative to this one; "" where there is none.
        status: how it ended; ``said`` its last line or why it was not run.
        seconds: wall-clock time; 0 where it has not run.
        command: as one would type it.
    """

    name: str
    href: str
    status: str
    said: str
    seconds: float
    command: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A preset that was run.

    Attributes:
        preset: its name.
        label: what the page is called.
        decision: None where the preset asks no question.
    """

    preset: str
    label: str
    decision: Decision | None
    steps: tuple[DecidedStep, ...]
