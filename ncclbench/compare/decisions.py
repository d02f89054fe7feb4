"""DECISIONS: the questions that a preset can end in, and what answers each from what its steps found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclbench.compare import acceptance, migration
from ncclbench.compare.answers import Decision, DecisionLine
from ncclbench.compare.found import Found, find
from ncclbench.errors import RequestError
from ncclbench.names import lookup
from ncclbench.store.files import PRESET_FILE
from ncclbench.store.preset import StoredStep

__all__ = ["DECISIONS", "Decider", "Decision", "DecisionLine", "decide"]


@dataclass(frozen=True, slots=True)
class Decider:
    """One question.

    Attributes:
        name: as a preset names it.
        title: heading of its answer.
        decide: the answer from what the steps found.
    """

    name: str
    title: str
    decide: Callable[[Found], Decision]


_ENTRIES = (
    Decider(acceptance.NAME, acceptance.TITLE, acceptance.decide),
    Decider(migration.NAME, migration.TITLE, migration.decide),
)

DECISIONS: dict[str, Decider] = {entry.name: entry for entry in _ENTRIES}


def decide(name: str, folder: Path, steps: Sequence[StoredStep]) -> Decision:
    """The answer to a question from the run folders of a preset's steps.

    Args:
        name: in DECISIONS.
        folder: that of preset.json, in which the steps' folders lie.
        steps: as preset.json has them; one that was not run, or cannot be read, leaves the answer unclear.

    Raises:
        RequestError: there is no such question.
    """
    try:
        decider = lookup(DECISIONS, "decision", name[:60])
    except RequestError as error:
        raise RequestError(f"{folder / PRESET_FILE} is no preset that can be read: {error}") from None
    return decider.decide(find(folder, steps))
