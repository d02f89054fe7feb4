"""The self-test: every question to torch asked in processes of its own, under a deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncclbench.cells import checks_memory, checks_time, checks_work
from ncclbench.cells.cell import CellResult, run_cell
from ncclbench.cells.question import Check
from ncclbench.cells.rank import CellTask
from ncclbench.faults.shortening import shortened
from ncclbench.plan.model import Arm
from ncclbench.store.p2p import SemanticsCheck
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.semantics import SEMANTICS, Question

# By name in SEMANTICS.
CHECKS: dict[str, Check] = {**checks_time.CHECKS, **checks_work.CHECKS, **checks_memory.CHECKS}


def run_semantics(
    arm: Arm,
    device: str,
    share_gpu: bool,
    keep: Callable[[SemanticsCheck, CellResult | None], None],
    signals: EndSignals,
    names: Sequence[str] = tuple(SEMANTICS),
    before: Callable[[], None] = lambda: None,
) -> None:
    """Ask every question.

    Args:
        device: kind of device on which the arm's tensors live.
        keep: gets each answer as it is there, with the cell where there was one.
        names: in SEMANTICS.
        before: called before each, and may end it all by raising.

    Raises:
        MeasurementError: the ranks of a check could not be started.
        Interrupted: an ending signal came.
    """
    for name in names:
        question, check = SEMANTICS[name], CHECKS[name]
        if device not in question.devices:
            keep(_not_here(name, arm, f"{arm.id}: {question.elsewhere}"), None)
            continue
        before()
        result = run_cell(CellTask(arm, 2, check.timeout_s, share_gpu), check.work, check.deadline_s, signals)
        keep(_answered(question, check, arm, result), result)


def _answered(question: Question, check: Check, arm: Arm, result: CellResult) -> SemanticsCheck:
    if result.reason is not None:
        return _not_here(question.name, arm, f"{arm.id} cannot be had here: {result.reason}")
    left = result.leftover_processes
    if result.outcome != "completed":
        said = [f"rank {rank}: {shortened(error)}" for rank, error in sorted(result.errors.items())]
        said += [
            f"rank {rank} had not ended after {result.seconds:.0f} s" for rank in sorted(result.standing)
        ]
        text = "; ".join(said)[:2000]
        return SemanticsCheck(
            check=question.name, arm=arm.id, outcome="otherwise", said=text, leftover_processes=left
        )
    told = check.judge(result.values, result)
    return SemanticsCheck(
        check=question.name,
        arm=arm.id,
        outcome=told.outcome,
        said=told.said[:2000],
        value=told.value,
        leftover_processes=left,
    )


def _not_here(name: str, arm: Arm, said: str) -> SemanticsCheck:
    return SemanticsCheck(check=name, arm=arm.id, outcome="not-here", said=said[:2000])
