"""Panel: what was required of the runs, and whether they meet it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ncclbench.hardware.judging import (
    LARGE_BYTES,
    MEASURED,
    ONE_EPOCH,
    PRINTED,
    REPEATABLE,
    REPEATABLE_SMALL,
    Answer,
    Judged,
)
from ncclbench.hardware.reference import percent
from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.units import format_bytes

# The worst first.
_ORDER: tuple[Answer, ...] = ("fail", "unclear", "pass")
_TONES = {"pass": "good", "unclear": "warn", "fail": "bad"}
_WORDS = {"pass": "met", "unclear": "unclear", "fail": "not met"}
# What the deciding rows rest on, with what makes such a row hold.
_BASES = (
    (
        {MEASURED, ONE_EPOCH},
        "A measured row holds where its whole 95 % interval is on the right side of the bound.",
    ),
    (
        {PRINTED},
        f"A printed mean has no interval. It holds where it is {percent(REPEATABLE)} on the right side of "
        f"the bound (below {format_bytes(LARGE_BYTES)}: {percent(REPEATABLE_SMALL)}), and is unclear nearer "
        "to it, since another run prints another mean.",
    ),
)


def build(report: Report) -> Content | None:
    """A line per requirement, above everything else; nothing where nothing was asked."""
    judged = report.requirements
    if not judged:
        return None
    counts = Counter(each.answer for each in judged)
    worst = next(answer for answer in _ORDER if counts[answer])
    if len(judged) == 1:
        headline = f"Requirement {_WORDS[worst]}"
    elif worst == "pass":
        headline = f"All {len(judged)} requirements met"
    else:
        said = [f"{counts[answer]} {_WORDS[answer]}" for answer in _ORDER if counts[answer]]
        headline = f"{len(judged)} requirements: {', '.join(said)}"
    bases = {each.basis for each in judged}
    return {
        "tone": _TONES[worst],
        "headline": headline,
        "lines": [_line(each) for each in judged],
        "bases": [text for of, text in _BASES if bases & of],
    }


PANEL = Panel(
    name="requirements",
    order=-14,
    title="Requirements",
    description="Every row it speaks of must hold.",
    build=build,
    template="requirements.html",
)


def _line(judged: Judged) -> dict[str, Any]:
    return {
        "requirement": judged.requirement,
        "answer": judged.answer,
        "word": _WORDS[judged.answer],
        "message": judged.message,
        "rows": judged.rows,
    }
