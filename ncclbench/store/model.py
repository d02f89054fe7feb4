"""What is kept of a run: units of samples, what other tools printed, and the run as readers see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.model import Plan
from ncclbench.store.bounds import Count, Index, Time, Word
from ncclbench.store.drills import ContractOutcome, DrillTrial
from ncclbench.store.groups import GroupsResult
from ncclbench.store.overlaps import OverlapResult
from ncclbench.store.p2p import P2pResult
from ncclbench.store.printed import Printed
from ncclbench.store.probes import Probe
from ncclbench.store.transfers import TransferResult

Result = OverlapResult | P2pResult | TransferResult | GroupsResult

RUN_SCHEMA = 1

Times = NDArray[np.float64]


class UnitHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank's GPU said between the blocks of a unit; small, for there is one per unit and rank.

    Attributes:
        over_us: time that it covers: since the reading before.
        read_us: what reading it took.
        readings: how many there were; counters are summed over them.
        visits: visits to any arm that it covers; more than its readings where some were left out.
        reasons: why the GPU was held back at a reading; being idle or set so is not among them.
        throttled_us: time spent held back, by reason; 0 of one that was active while its counter stood still.
        sm_clock_mhz: the lowest seen; ``temperature_c``, ``power_w``: the highest.
        pcie_generation, pcie_width: of the link, the lowest seen below what GPU and slot can do; None
            where it was never below.
        nvlinks_up: the fewest NVLinks that were up; None for a GPU without.
    """

    over_us: Time
    read_us: Time
    readings: Count = 1
    visits: Count = 1
    reasons: tuple[Word, ...] = ()
    throttled_us: dict[Word, Time] = {}
    sm_clock_mhz: Index | None = None
    temperature_c: Index | None = None
    power_w: Time | None = None
    pcie_generation: Index | None = None
    pcie_width: Index | None = None
    nvlinks_up: Index | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """What is measured, kept and resumed as one: a case on an arm in an epoch, over all ranks.

    Attributes:
        case: key of the case.
        arm: id of the arm.
        epoch: counted from 0.
        attempt: which start of the run measured it; more than one after ``--resume``.
        k: operations in a sample: 1 in isolated mode, the batch otherwise.
        start_us: shape (nranks, n): when each sample began, on one clock, since the first sample of the case
            in this epoch on any rank and arm.
        launch_us: shape (nranks, n): host time of the call(s) until they returned, per sample.
        device_us: shape (nranks, n), or None on the CPU: device time per sample.
        total_us: shape (nranks, n): host time with the synchronize, per sample.
        visits: samples in each visit to the arm, summing to n.
        turns: for each visit, its place among the visits to all arms of the case in this epoch.
        wrong: wrong elements per rank in the checked passes; None when not checked.
        delay_us: per rank, what was added to each operation on purpose; None where nothing was.
        health: per rank, what its GPU said meanwhile; None where nothing was read: not of this rank, or
            (in place of all) not at all, as on the CPU.
    """

    case: str
    arm: str
    epoch: int
    attempt: int
    k: int
    start_us: Times
    launch_us: Times
    device_us: Times | None
    total_us: Times
    visits: tuple[int, ...]
    turns: tuple[int, ...]
    wrong: tuple[int, ...] | None
    delay_us: tuple[float, ...] | None = None
    health: tuple[UnitHealth | None, ...] | None = None

    @property
    def clock(self) -> str:
        """Which of the times counts: "device" on CUDA, else "total"."""
        return "total" if self.device_us is None else "device"

    @property
    def rank_time_us(self) -> Times:
        """Shape (nranks, n): time of one operation on each rank."""
        return (self.total_us if self.device_us is None else self.device_us) / self.k

    @property
    def time_us(self) -> Times:
        """Shape (n,): what a training step waits for, the maximum over ranks, per operation."""
        slowest: Times = self.rank_time_us.max(axis=0)
        return slowest

    @property
    def undelayed_us(self) -> Times:
        """Shape (n,): ``time_us`` as it would be without what was added on purpose."""
        if self.delay_us is None:
            return self.time_us
        slowest: Times = (self.rank_time_us - np.array(self.delay_us)[:, np.newaxis]).max(axis=0)
        return slowest


@dataclass(frozen=True, slots=True)
class Stop:
    """Why no epoch was added to a case.

    Attributes:
        epochs: how many it had then.
        why: "precision" (it was reached), "budget" (the time was spent) or "epochs" (there were no more).
        half_width: of the 95 % interval of what verdicts compare, as a fraction; with several arms the
            widest ratio's; None where it cannot be said.
    """

    epochs: int
    why: Literal["precision", "budget", "epochs"]
    half_width: float | None

    def is_within(self, precision: float) -> bool:
        """Whether the interval is as narrow as asked for; one that ended by its budget may be, too."""
        return self.half_width is not None and self.half_width <= precision


@dataclass(slots=True)
class Run:
    """A run folder as read.

    Attributes:
        folder: where it lies.
        meta: run.json as it stands.
        plan: the plan in it.
        units: by (case key, arm id), in order of epoch; complete units only.
        statuses: by (case key, arm id): (status, reason) where it is not simply measured.
        stops: by case key, where a case got all the epochs it was to get.
        cold: one entry per arm, epoch and rank: costs before the first timed operation, in microseconds.
        printed: what another tool printed, in the order of its output; a run has either these or units.
        probes: the single tests of a search for slow parts, in the order in which they were made.
        trials: the trials of a drill, in the order in which they were made; ``contract``: its contract cases.
        results: what runs of kinds "overlap", "p2p", "transport" and "groups" measured, in that order.
        problems: what a reader should know: torn lines, incomplete units.
    """

    folder: Path
    meta: dict[str, Any]
    plan: Plan
    units: dict[tuple[str, str], list[Unit]] = field(default_factory=dict)
    statuses: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    stops: dict[str, Stop] = field(default_factory=dict)
    cold: list[dict[str, Any]] = field(default_factory=list)
    printed: list[Printed] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    trials: list[DrillTrial] = field(default_factory=list)
    contract: list[ContractOutcome] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def results_by_arm(self) -> list[Result]:
        """The results in the order in which their arms were asked for: they were measured in turns."""
        places = {arm.id: place for place, arm in enumerate(self.plan.arms)}

        def place(line: Result) -> int:
            arm = getattr(line, "arm", None)
            return -1 if arm is None else places.get(arm, len(places))

        return sorted(self.results, key=place)

    @property
    def is_imported(self) -> bool:
        """Whether another tool measured it, so that only means are known."""
        return self.meta.get("kind") == "import"

    @property
    def is_search(self) -> bool:
        """Whether it looked for slow parts: single tests of ranks and links, and no cases."""
        return self.meta.get("kind") in ("matrix", "suspects")

    @property
    def has_cases(self) -> bool:
        """Whether it is of a sweep, or imported: cases, arms and their times."""
        return self.meta.get("kind", "sweep") in ("sweep", "import")

    @property
    def is_drill(self) -> bool:
        """Whether ranks were made to fail: trials and contract cases, and no cases of a sweep."""
        return self.meta.get("kind") == "drill"
