"""What a backend really supports: asked of a group, not believed from a table.

Each combination of operation, dtype and operator is tried once on a small size, on groups made for
nothing else: after a refused operation a gloo group raises the same error again at its next barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ncclbench.plan.model import Arm, Case
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.device import Device
from ncclbench.worker.groups import ArmGroup, close_group, open_group

# Elements per rank of the size tried: enough for every operation's smallest split.
_ELEMENTS_PER_RANK = 4


class Tried(Protocol):
    """What runs a case once on a group, and raises what the backend raises."""

    def try_once(self, group: Any) -> None: ...


def small_case(case: Case) -> Case:
    """The case at the size that is tried; equal for cases that differ in size, mode or topology only."""
    if not COLLECTIVES[case.op].has_data:
        return replace(case, mode="isolated", topology="world")
    elements = _ELEMENTS_PER_RANK * case.nranks
    nbytes = elements * DTYPES[case.dtype].itemsize
    return replace(case, nbytes=nbytes, count=elements, mode="isolated", topology="world")


def probe(
    arm: Arm,
    cases: list[Case],
    runner: Callable[[Case], Tried],
    control: ControlPlane,
    device: Device,
    timeout_s: float,
    step: Callable[[], None],
) -> dict[str, str]:
    """Try every kind of case once on the arm.

    Returns:
        Case key to the reason why the arm does not take the case, in the backend's own words, the
        same on every rank.
    """
    refused: dict[str, str] = {}
    answers: dict[str, str | None] = {}
    group: ArmGroup | None = None
    for case in cases:
        small = small_case(case)
        if small.key not in answers:
            step()
            if group is None:
                group = open_group(arm, device, timeout_s, measure_first=False)
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
