"""``--cases-from``: the calls of a job, as its flight recorders have them, as the cases to measure."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncclbench.cli import values
from ncclbench.cli.declaring import SeveralCommand, several_option
from ncclbench.cli.options import selection_from
from ncclbench.errors import RequestError
from ncclbench.plan.build import Selection
from ncclbench.terminal.streams import one_line, show
from ncclbench.units import parse_bytes

if TYPE_CHECKING:
    from ncclbench.flight.selecting import Job

# What says sizes that are not the job's.
_CONTRADICT = ("--sizes", "--step-factor", "--step-bytes")


class CasesCommand(SeveralCommand):
    """A command with ``--cases-from``, which takes all words up to the next option."""

    several = ("--cases-from",)


cases_option = several_option(
    "--cases-from",
    "What is measured",
    "DUMP...",
    "The calls of a job, from its flight recorder dumps: their sizes, types and groups.",
    values.path,
)


@dataclass(frozen=True, slots=True)
class Cases:
    """What is to be measured, and where it came from.

    Attributes:
        selections: for ``build_plan``.
        came_from: what run.json has of it; empty where it came from options alone.
        lines: for people: what was taken of the dumps, and what was not.
    """

    selections: tuple[Selection, ...]
    came_from: dict[str, Any]
    lines: tuple[str, ...] = ()

    def tell(self) -> None:
        """Say on standard error what was taken, and what was not."""
        for line in self.lines:
            show(f"# {one_line(line)}\n", sys.stderr)


def cases_of(params: Mapping[str, Any], typed: Collection[str], nranks: int) -> Cases:
    """The cases asked for by ``selection_options``, with ``--cases-from`` or without.

    With it --ops, -d, -b and -e choose among the job's calls, and --topologies says where they are measured.

    Args:
        typed: options that stood on the command line, by their long names.
        nranks: world size here.

    Raises:
        RequestError: the sizes make no range, the dumps hold no such call, or options contradict them.
    """
    if not params["cases_from"]:
        return Cases((selection_from(params),), {})
    beside = [name for name in _CONTRADICT if name in typed]
    if beside:
        raise RequestError(
            f"--cases-from takes sizes from the dumps: leave {', '.join(beside)} away; -b and -e choose "
            "among them"
        )
    from ncclbench.flight.selecting import Filter, summary, take

    job = _job(tuple(params["cases_from"]))
    wanted = Filter(
        params["ops"] if "--ops" in typed else None,
        params["dtypes"] if "--dtypes" in typed else None,
        _bound(params["min_bytes"], "-b/--min-bytes"),
        _bound(params["max_bytes"], "-e/--max-bytes"),
        params["topologies"] if "--topologies" in typed else None,
    )
    form = selection_from({**params, "sizes": "1", "min_bytes": None, "max_bytes": None})
    taken = take(job, wanted, form, nranks)
    lines = (f"cases: {summary(taken, job)}", *(f"left out: {text}" for text in taken.left))
    return Cases(taken.selections, {"cases_from": taken.meta}, lines)


@lru_cache(maxsize=1)
def _job(paths: Sequence[str]) -> Job:
    """Read once, though a plan is made anew where hosts turn out to be others."""
    from ncclbench.flight.selecting import read_job

    return read_job([Path(path) for path in paths])


def _bound(text: str | None, name: str) -> int | None:
    return None if text is None else parse_bytes(text, name)
