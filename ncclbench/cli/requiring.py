"""``--require`` for every command that ends with rows: the options, the judgement, and how it is told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import Decorated, Decorator, SectionOption, option, under
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.terminal.streams import coloured, one_line

if TYPE_CHECKING:
    from ncclbench.hardware.judging import Judged
    from ncclbench.store.model import Run

_SECTION = "How it answers"
_COLOURS = {"fail": "red", "unclear": "yellow", "pass": "bold"}

Answer = Literal["pass", "fail"]


def require_options(function: Decorated) -> Decorated:
    """A decorator that adds ``--require``, which may be repeated, and ``--unclear``."""
    unclear = under(
        _SECTION,
        option(
            "--unclear",
            metavar="pass|fail",
            default="fail",
            parse=values.one_of(("pass", "fail")),
            help="What a requirement counts as of which the intervals cannot tell.",
        ),
    )
    decorated: Decorated = _require(unclear(function))
    return decorated


_require: Decorator[Any] = click.option(
    "--require",
    cls=SectionOption,
    section=_SECTION,
    metavar="BOUND",
    multiple=True,
    callback=lambda ctx, parameter, typed: [parse_requirement(text) for text in typed],
    help="End with 1 where not met: 90%peak, 'all_reduce@1G>=450GB/s', 'all_reduce@8<=20us'; repeatable.",
)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows held against what was required of them.

    Attributes:
        judged: one for each requirement, in the order typed; empty where nothing was asked.
        answer: of all together; None where nothing was asked.
        exit_zero: a bad answer does not end with 1.
    """

    judged: Sequence[Judged]
    answer: Answer | None
    exit_zero: bool

    @property
    def fails(self) -> bool:
        """Whether the answer is bad."""
        return self.answer == "fail"

    @property
    def code(self) -> int:
        """The exit code that the requirements alone ask for."""
        return EXIT_BAD_ANSWER if self.fails and not self.exit_zero else EXIT_OK

    @property
    def message(self) -> str:
        """All in a few words for ``message``; "" where nothing was asked."""
        if self.answer is None:
            return ""
        counts = {
            answer: sum(each.answer == answer for each in self.judged)
            for answer in ("pass", "fail", "unclear")
        }
        words = ", ".join(f"{count} {answer}" for answer, count in counts.items() if count)
        return f"requirements {self.answer.upper()} ({words})"

    def lines(self, stream: TextIO | None) -> list[str]:
        """For the terminal, the answers first in each line."""
        return [
            f"{coloured(f'{each.answer.upper()}:', _COLOURS[each.answer], stream)} "
            f"{one_line(f'{each.requirement}: {each.message}')}"
            for each in self.judged
        ]

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` gains: ``requirements``, and ``require`` as compare's ``gate``."""
        return {"requirements": [each.to_json() for each in self.judged], "require": self.answer}


def hold(runs: Sequence[tuple[Run, Sequence[Mapping[str, Any]]]], params: Mapping[str, Any]) -> Held:
    """The rows of each run held against ``params["require"]``: every run must meet every requirement.

    Args:
        runs: each with its rows, as ``stats.rows.run_rows`` gives them.
        params: of the command: ``require``, ``unclear`` and, where it has that, ``exit_zero``.
    """
    from ncclbench.hardware.judging import judge_requirements, overall, worst
    from ncclbench.hardware.machine import machine_of

    requirements, exit_zero = params["require"], bool(params.get("exit_zero"))
    if not requirements:
        return Held((), None, exit_zero)
    of_runs = []
    for run, rows in runs:
        files = [str(file.get("file")) for file in (run.meta.get("imported") or {}).get("files") or ()]
        each = judge_requirements(rows, machine_of(run), requirements, files)
        if len(runs) > 1:
            each = [
                replace(one, message=f"{os.path.basename(os.path.realpath(run.folder))}: {one.message}")
                for one in each
            ]
        of_runs.append(each)
    judged = [worst(each) for each in zip(*of_runs, strict=True)]
    return Held(judged, overall(judged, params["unclear"]), exit_zero)
