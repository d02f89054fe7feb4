"""What a person sees of a decision: the answer first, then what it rests on, in one table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from operator import itemgetter

from ncclbench.compare.answers import Decision, DecisionLine
from ncclbench.terminal.columns import table
from ncclbench.terminal.streams import one_line

# A sentence is told over several lines rather than beyond the edge of a terminal.
_LINE = 76
_COLUMNS = tuple((name, itemgetter(name)) for name in ("of", "counts", "step", "why"))
_COLOURS = {True: "bold", False: "red", None: "yellow"}


def decision_lines(decision: Decision) -> list[str]:
    """The answer, then a line for each thing that was looked at, the worst first, with its step.

    What would settle an open question stands below the table, each command once.
    """
    lines = [one_line(f"{decision.title}: {decision.answer}")]
    if decision.lines:
        rows = [row for line in decision.lines for row in _rows(line)]
        lines += ["#", *table("what it rests on", _COLUMNS, rows, left=("counts", "step", "why"))]
    settle = dict.fromkeys(line.settle for line in decision.lines if line.settle)
    if settle:
        lines += ["#", "# to settle what is open:"]
        lines += [f"  {one_line(command)}" for command in settle]
    return lines


def decision_colour(decision: Decision) -> str:
    """Of the answer, as ``terminal.streams.coloured`` has them."""
    return _COLOURS[decision.ok]


def _rows(line: DecisionLine) -> Sequence[dict[str, str]]:
    told = textwrap.wrap(one_line(line.sentence), _LINE) or [""]
    first = {"of": line.subject, "counts": line.verdict, "step": line.step or "", "why": told[0]}
    return [first, *({"of": "", "counts": "", "step": "", "why": text} for text in told[1:])]
