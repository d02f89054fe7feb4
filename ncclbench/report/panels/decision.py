"""Panel: the answer that a preset ends in, the lines that it rests on, and its steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel

if TYPE_CHECKING:
    from ncclbench.report.decided import DecidedStep

_TONES = {True: "good", False: "bad", None: "warn"}
# Of a line and of a step, the class that colours it.
_OF_LINE = {"against": "fail", "open": "unclear", "for": "pass"}
_OF_STEP = {"done": "", "not run": "unavailable"}


def build(report: Report) -> Content | None:
    """Only on the page of a preset."""
    if report.decided is None:
        return None
    decided = report.decided
    decision = decided.decision
    links = {step.name: step.href for step in decided.steps}
    answer = decision.answer if decision else f"{decided.preset}: see its steps"
    headline, _, because = answer.partition(", because ")
    return {
        "title": decided.preset,
        "tone": "" if decision is None else _TONES[decision.ok],
        "headline": _upper(headline),
        "because": because and f"Because {because}.",
        "counts": [] if decision is None else _counts([line.verdict for line in decision.lines]),
        "lines": []
        if decision is None
        else [
            {
                "subject": line.subject,
                "verdict": line.verdict,
                "row": _OF_LINE.get(line.verdict, line.verdict),
                "sentence": line.sentence,
                "settle": line.settle or "",
                "step": line.step or "",
                "href": links.get(line.step or "", ""),
            }
            for line in decision.lines
        ],
        "steps": [_step(step) for step in decided.steps],
    }


PANEL = Panel(
    name="decision",
    order=-20,
    title="Answer",
    description="",
    build=build,
    template="decision.html",
)


def _step(step: DecidedStep) -> dict[str, str]:
    return {
        "name": step.name,
        "href": step.href,
        "status": step.status,
        "row": _OF_STEP.get(step.status, "failed"),
        "seconds": f"{step.seconds:,.0f} s" if step.seconds else "–",
        "said": step.said,
        "command": step.command,
    }


def _counts(words: list[str]) -> list[str]:
    return [f"{count} {word}" for word, count in Counter(words).items()]


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
