"""What a backend really supports: asked of a group, not believed from a table.

Each combination of operation, dtype and operator is tried once on a small size, on groups made for
nothing else: after a refused operation a gloo group raises the same error again at its next barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ncclbench.plan.model import Case
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.topologies import WORLD
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.groups import ArmGroup, close_group

# Elements per rank of the size tried: enough for every operation's smallest split.
_ELEMENTS_PER_RANK = 4


class Tried(Protocol):
    """What runs a case once on a group, and raises what the backend raises."""

    def try_once(self, group: Any) -> None: ...


def small_case(case: Case, nranks: int) -> Case:
    """The case as it is tried, on all ranks; equal for cases that differ in size, mode or topology only."""
    tried = replace(case, mode="isolated", topology=WORLD.name, nranks=nranks)
    if not COLLECTIVES[case.op].has_data:
        return tried
    elements = _ELEMENTS_PER_RANK * nranks
    return replace(tried, nbytes=elements * DTYPES[case.dtype].itemsize, count=elements)


def probe(
    cases: list[Case],
    runner: Callable[[Case], Tried],
    control: ControlPlane,
    open_arm: Callable[[], ArmGroup],
    step: Callable[[], None],
) -> dict[str, str]:
    """Try every kind of case once on an arm.

    Args:
        open_arm: makes a group of the arm's over all ranks.

    Returns:
        Case key to the reason why the arm does not take the case, in the backend's own words, the
        same on every rank.
    """
    refused: dict[str, str] = {}
    answers: dict[str, str | None] = {}
    group: ArmGroup | None = None
    for case in cases:
        small = small_case(case, control.nranks)
        if small.key not in answers:
            step()
            if group is None:
                group = open_arm()
            answers[small.key] = _try(small, runner(small), group, control)
            if answers[small.key] is not None:
                close_group(group)
                group = None
        reason = answers[small.key]
        if reason is not None:
            refused[case.key] = reason
    if group is not None:
        close_group(group)
    return refused


def _try(case: Case, runner: Tried, group: ArmGroup, control: ControlPlane) -> str | None:
    """The reason of the first rank that refused, None where none did; the same on every rank."""
    reason = None
    try:
        runner.try_once(group.group)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
        reason = first_line(error)
    return control.first_reason(reason)


def first_line(error: BaseException) -> str:
    """An exception in one line, without torch's source positions and C++ frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text[:300]
