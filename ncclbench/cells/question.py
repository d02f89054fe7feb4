"""What a check of the self-test is made of: what its ranks do, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ncclbench.cells.cell import CellResult
from ncclbench.cells.rank import CellRank

# By rank what its work returned.
Values = Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was seen.

    Attributes:
        outcome: as in ``store.p2p.SemanticsCheck``.
        said: one sentence with its numbers; ``value``: the number itself.
    """

    outcome: Literal["as-documented", "otherwise", "unanswered"]
    said: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check: a cell of two ranks.

    Attributes:
        work: what each rank does; returns plain data.
        judge: of what both returned and the cell itself to the answer; asked only where both returned.
        deadline_s: for all of it.
        timeout_s: that torch is given; short where a check waits for torch to give up.
    """

    work: Callable[[CellRank], Any]
    judge: Callable[[Values, CellResult], Answer]
    deadline_s: float = 20.0
    timeout_s: float = 60.0


def answer(as_documented: bool, said: str, value: float | None = None) -> Answer:
    """An answer whose outcome is yes or no."""
    return Answer("as-documented" if as_documented else "otherwise", said, value)
