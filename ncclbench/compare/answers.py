"""What a decision is: an answer in one sentence, and the lines that it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

# Of an acceptance "pass", "fail" and "unclear"; of a migration "for", "against" and "open".
Word = Literal["pass", "fail", "unclear", "for", "against", "open"]

# The worst first.
ORDER: dict[str, int] = {"fail": 0, "against": 0, "unclear": 1, "open": 1, "pass": 2, "for": 2}

# Reasons that an answer names; the lines have all.
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One thing that was looked at, and what it says.

    Attributes:
        subject: what it is about: a host, "data", "all_reduce against nccl-legacy".
        verdict: for which side it counts.
        sentence: why, with the numbers.
        step: name of the step that it rests on; None where it is of several or of none.
        evidence: key of what was looked at: "hosts", "speed", "data" ...
        settle: the command that would settle it; None where nothing is open.
    """

    subject: str
    verdict: Word
    sentence: str
    step: str | None
    evidence: str
    settle: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer.

    Attributes:
        name: in DECISIONS; ``title`` its heading.
        answer: one sentence without a full stop.
        ok: True and False where it is decided; None where it is unclear.
        lines: what it rests on, the worst first.
        hosts: names of the hosts that were measured, in their order.
        wrong: somewhere data were wrong, which no option turns into a good answer.
    """

    name: str
    title: str
    answer: str
    ok: bool | None
    lines: tuple[DecisionLine, ...]
    hosts: tuple[str, ...]
    wrong: bool = False

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return asdict(self)


def in_order(lines: Iterable[DecisionLine]) -> tuple[DecisionLine, ...]:
    """The worst first, else as they came."""
    return tuple(sorted(lines, key=lambda line: ORDER[line.verdict]))


def reasons(said: Sequence[str]) -> str:
    """The first few sentences, each once, and how many more there are."""
    own = list(dict.fromkeys(said))
    more = f"; and {len(own) - _MOST_REASONS} more" if len(own) > _MOST_REASONS else ""
    return "; ".join(own[:_MOST_REASONS]) + more


def some(words: Sequence[str], most: int = 4) -> str:
    """Words in a list, each once, cut after ``most``: "a, b and 3 more"."""
    own = list(dict.fromkeys(words))
    return f"{', '.join(own[:most])}{f' and {len(own) - most} more' if len(own) > most else ''}"
