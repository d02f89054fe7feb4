"""The parts of a point-to-point run that take cells: the ordering matrix and the self-test, arm by arm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ncclbench.cells.cell import CellResult, NotHere
from ncclbench.cells.ordering import run_ordering
from ncclbench.cells.semantics import run_semantics
from ncclbench.environment.gpu import count_gpus
from ncclbench.plan.model import Arm
from ncclbench.store.lines import Line
from ncclbench.store.p2p import ArmFound, LeftOut, OrderingCell, SemanticsCheck
from ncclbench.supervise.p2p import P2pPlan
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.backends import find_backend
from ncclbench.tables.p2p import IN_CELLS

Keep = Callable[[Sequence[Line]], None]

# Under a launcher the supervisors of other ranks wait 600 s for rank 0's (supervise.session). From then on
# neither a cell nor a further deadline begins, which leaves room for the longest of both and for the page.
UNDER_LAUNCHER_S = 480.0

_RANKS = 2


class Cells:
    """The cells of one run, on this host."""

    def __init__(
        self,
        plan: P2pPlan,
        keep: Keep,
        tell: Callable[[str], None],
        signals: EndSignals,
        known: Sequence[str],
        limit_s: float | None = None,
    ) -> None:
        """Nothing is started.

        Args:
            keep: gets lines as they come; ``tell`` where the measurement is.
            known: ids of arms of which the run already says what they are, or why they cannot be had.
            limit_s: for all cells together; None for none.
        """
        self._plan = plan
        self._keep = keep
        self._tell = tell
        self._signals = signals
        self._known = set(known)
        self._until = None if limit_s is None else time.monotonic() + limit_s

    def run(self, arms: Sequence[Arm]) -> None:
        """All that was asked for, on the arms that can be had.

        Raises:
            MeasurementError: the ranks of a cell could not be started.
            Interrupted: an ending signal came. No process is left in any case.
        """
        for part in (part for part in IN_CELLS if part in self._plan.parts):
            for arm in arms:
                try:
                    self._part(part, arm)
                except NotHere as reason:
                    self._keep([LeftOut(part=part, arm=arm.id, reason=str(reason))])

    def _part(self, part: str, arm: Arm) -> None:
        plan = self._plan
        device = device_of(arm)
        gpus = count_gpus()
        if device == "cuda" and gpus < _RANKS and not (gpus and plan.share_gpu):
            raise NotHere(f"its cells take {_RANKS} GPUs on one host, and {gpus} can be seen (--share-gpu)")
        if part == "ordering":
            run_ordering(
                plan.orders,
                arm,
                plan.sizes,
                plan.deadline_s,
                plan.share_gpu,
                lambda cell, result: self._ordered(arm, cell, result),
                self._signals,
                self._before,
            )
        else:
            run_semantics(
                arm,
                device,
                plan.share_gpu,
                lambda check, result: self._asked(arm, check, result),
                self._signals,
                before=self._before,
            )

    def _before(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise NotHere(
                f"no time was left: under a launcher, where others wait, cells have {UNDER_LAUNCHER_S:.0f} s "
                "(take fewer sizes or --orders, or run it on one host)"
            )

    def _ordered(self, arm: Arm, cell: OrderingCell, result: CellResult) -> None:
        self._keep([*self._found(arm, result), cell])
        self._tell(f"{cell.order} on {arm.id}, {cell.nbytes} bytes: {cell.outcome}")

    def _asked(self, arm: Arm, check: SemanticsCheck, result: CellResult | None) -> None:
        self._keep([*self._found(arm, result), check])
        self._tell(f"{check.check} on {arm.id}: {check.outcome}")

    def _found(self, arm: Arm, result: CellResult | None) -> list[ArmFound]:
        """What the arm is, where this is the first to tell."""
        if arm.id in self._known or result is None or result.reason is not None:
            return []
        self._known.add(arm.id)
        return [ArmFound(arm=arm.id, implementation=result.implementation, device=result.device, reason=None)]


def device_of(arm: Arm) -> str:
    """Where the arm's tensors live, told without a call of CUDA."""
    wanted = find_backend(arm.backend).device
    return wanted if wanted != "any" else "cuda" if count_gpus() else "cpu"
