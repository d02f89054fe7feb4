"""The part of a run of ``groups`` that takes cells: orders of calling of ranks in two groups, arm by arm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ncclbench.cells.cell import CellResult, NotHere
from ncclbench.cells.crossing import MOST_RANKS, run_crossing
from ncclbench.cells.run import UNDER_LAUNCHER_S, device_of
from ncclbench.environment.gpu import count_gpus
from ncclbench.plan.model import Arm
from ncclbench.store.groups import CrossedCell
from ncclbench.store.lines import Line
from ncclbench.store.p2p import ArmFound, LeftOut
from ncclbench.supervise.grouping import GroupsPlan
from ncclbench.supervise.signals import EndSignals

Keep = Callable[[Sequence[Line]], None]
PART = "crossed"


def run_crossed(
    plan: GroupsPlan,
    arms: Sequence[Arm],
    keep: Keep,
    tell: Callable[[str], None],
    signals: EndSignals,
    known: Sequence[str],
    limit_s: float | None = None,
) -> None:
    """All orders on the arms that can be had, on this host.

    Args:
        keep: gets lines as they come; ``tell`` where the measurement is.
        known: ids of arms of which the run already says what they are.
        limit_s: for all of it; None for none.

    Raises:
        MeasurementError: the ranks of a cell could not be started.
        Interrupted: an ending signal came. No process is left in any case.
    """
    told = set(known)
    until = None if limit_s is None else time.monotonic() + limit_s

    def before() -> None:
        if until is not None and time.monotonic() > until:
            raise NotHere(
                f"no time was left: the other ranks of the launcher wait {UNDER_LAUNCHER_S:.0f} s for it "
                "(take fewer sizes or --orders, or run it on one host)"
            )

    for arm in arms:

        def one(cell: CrossedCell, result: CellResult, arm: Arm = arm) -> None:
            lines: list[Line] = [cell]
            if arm.id not in told:
                told.add(arm.id)
                found = (result.implementation, result.device)
                lines.insert(0, ArmFound(arm=arm.id, implementation=found[0], device=found[1], reason=None))
            keep(lines)
            tell(f"{cell.order} on {arm.id}, {cell.nbytes} bytes: {cell.outcome}")

        try:
            _check(plan, arm)
            run_crossing(
                plan.orders,
                arm,
                plan.cuts,
                plan.nranks,
                plan.sizes,
                plan.deadline_s,
                plan.share_gpu,
                one,
                signals,
                before,
            )
        except NotHere as reason:
            keep([LeftOut(part=PART, arm=arm.id, reason=str(reason))])


def _check(plan: GroupsPlan, arm: Arm) -> None:
    """Whether the cells can be had on this host.

    Raises:
        NotHere: they cannot.
    """
    nranks = plan.nranks
    if nranks > MOST_RANKS:
        raise NotHere(
            f"its cells are processes on one host, at most {MOST_RANKS}, and there are {nranks} ranks"
        )
    if not any(len(ranks) > 1 for groups in plan.cuts.values() for ranks in groups):
        raise NotHere("no group has two ranks")
    gpus = count_gpus()
    if device_of(arm) == "cuda" and gpus < nranks and not (gpus and plan.share_gpu):
        raise NotHere(
            f"its cells take {nranks} GPUs on one host, and {gpus} can be seen (--share-gpu lets ranks share)"
        )
