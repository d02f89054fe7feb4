"""The self-test: every question to torch asked in processes of its own, under a deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncclbench.cells import checks_memory, checks_time, checks_work
from ncclbench.cells.cell import CellResult, run_cell
from ncclbench.cells.question import Answer, Check
from ncclbench.cells.rank import CellTask
from ncclbench.faults.shortening import shortened
from ncclbench.plan.model import Arm
from ncclbench.store.p2p import SemanticsCheck
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.semantics import SEMANTICS, Question

# Of what is said, as lines of a run have it.
_LONGEST = 2000

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
        before: as in ``run_cell``.

    Raises:
        MeasurementError: the ranks of a check could not be started.
        Interrupted: an ending signal came.
    """
    for name in names:
        question, check = SEMANTICS[name], CHECKS[name]
        if device not in question.devices:
            keep(_not_here(name, arm, f"{arm.id}: {question.elsewhere}"), None)
            continue
        task = CellTask(arm, 2, check.timeout_s, share_gpu)
        result = run_cell(task, check.work, check.deadline_s, signals, before)
        keep(_answered(question, check, arm, result), result)


def _answered(question: Question, check: Check, arm: Arm, result: CellResult) -> SemanticsCheck:
    if result.reason is not None:
        return _not_here(question.name, arm, f"{arm.id} cannot be had here: {result.reason}")
    if result.outcome == "completed":
        told = check.judge(result.values, result)
    else:
        # Killed from outside, as by the kernel when memory is short, or too slow: no doing of torch's.
        told = Answer("unanswered" if result.disturbed else "otherwise", _broken_off(result))
    return SemanticsCheck(
        check=question.name,
        arm=arm.id,
        outcome=told.outcome,
        said=told.said[:_LONGEST],
        value=told.value,
        leftover_processes=result.leftover_processes,
    )


def _broken_off(result: CellResult) -> str:
    """Of each rank that did not come to its end, how far it came."""
    said = {rank: f"rank {rank}: {shortened(error)}" for rank, error in result.errors.items()}
    said |= {rank: f"rank {rank} had not ended after {result.seconds:.0f} s" for rank in result.standing}
    return "; ".join(text for _, text in sorted(said.items()))


def _not_here(name: str, arm: Arm, said: str) -> SemanticsCheck:
    return SemanticsCheck(check=name, arm=arm.id, outcome="not-here", said=said[:_LONGEST])
