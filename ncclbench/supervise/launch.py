"""One launch: workers forked into this host's slots, watched until they are done."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ncclbench.environ import variables
from ncclbench.plan.environments import Environments
from ncclbench.plan.model import Arm, Plan
from ncclbench.plan.packed import packed_plan, unpacked_plan
from ncclbench.supervise.blame import stage, where
from ncclbench.supervise.capture import Recorders, clear_dumps
from ncclbench.supervise.evidence import FlightEvidence
from ncclbench.supervise.launcher import Seat
from ncclbench.supervise.rendezvous import Rendezvous, meet_alone, meet_others
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Slot, Slots
from ncclbench.supervise.watch import Watch
from ncclbench.tables.backends import find_backend
from ncclbench.tables.settings import ENVIRONMENT_MARK
from ncclbench.tables.topologies import Placement
from ncclbench.worker.board import NOWHERE, Board
from ncclbench.worker.protocol import Program, WorkerTask


@dataclass(frozen=True, slots=True)
class Job:
    """Where this supervisor stands in the job.

    Attributes:
        seat: from a launcher; None where this one supervises every rank itself.
        nranks: world size.
        local_ranks: ranks on this host.
        meeting: the store.
        signals: ending signals that have come.
        launches: numbers of the launches to come, so that one job can make several measurements.
        environments: in which workers of some arms are started, by name, as this command was told.
    """

    seat: Seat | None
    nranks: int
    local_ranks: int
    meeting: Rendezvous
    signals: EndSignals
    launches: Iterator[int] = field(default_factory=itertools.count)
    environments: Environments = field(default_factory=dict)

    @property
    def leads(self) -> bool:
        """Whether this supervisor writes the run and talks to the user."""
        return self.seat is None or self.seat.rank == 0

    def placement(self) -> Placement:
        """Which rank is on which host; on rank 0 alone, after ``meet_everybody``."""
        return Placement((0,) * self.nranks) if self.seat is None else self.meeting.placement()

    def meet_everybody(self) -> None:
        """Rank 0: wait for the other supervisors; where there are others, before anything else.

        Raises:
            RequestError: some did not come, or have other versions.
            Interrupted: an ending signal came meanwhile.
        """
        if self.seat is not None:
            self.meeting.meet_everybody(self.signals)

    @property
    def launcher(self) -> str:
        """What placed the ranks."""
        return self.seat.launcher if self.seat is not None else "none"


def join(
    seat: Seat | None, nranks: int, signals: EndSignals, environments: Environments | None = None
) -> Job:
    """Meet the other supervisors, or nobody where one supervises every rank.

    Raises:
        RequestError: the others cannot be met.
    """
    if seat is None:
        return Job(None, nranks, nranks, meet_alone(), signals, environments=environments or {})
    meeting = meet_others(seat, variables(), signals)
    return Job(seat, seat.world_size, seat.local_size, meeting, signals, environments=environments or {})


@dataclass(frozen=True, slots=True)
class Assignment:
    """What all workers of one launch do; plain data, so that rank 0 can tell the other supervisors.

    Attributes:
        number: counts the launches of this job.
        plan: what to measure; None measures nothing of the kind.
        program: what else to do; with neither the environment is described and nothing more.
        batches: case key to operations per sample, where already fixed.
        attempt: number of this start of the run.
        timeout_s: seconds that one operation may take.
        flight: the run folder, for the dumps of the flight recorders where the launch fails; None asks for
            none.
        team: which of the plan's teams is launched.
        left_out: ids of arms of it that are not measured.
    """

    number: int
    plan: Plan | None
    batches: Mapping[str, int]
    attempt: int
    timeout_s: float
    program: Program | None = None
    flight: str | None = None
    team: int = 0
    left_out: tuple[str, ...] = ()

    def where(self, at: tuple[int, int, int]) -> str:
        """Words for a worker's place, as its progress tells it."""
        words = where(self.plan, at) if self.program is None else stage(self.program.request, at)
        label = self.arms[0].environment if self.arms and set(at) == {NOWHERE} else None
        return words if label is None else f"{words} with {ENVIRONMENT_MARK}{label}"

    @property
    def arms(self) -> tuple[Arm, ...]:
        """What the workers measure; they can share a process."""
        if self.plan is not None:
            return self.plan.teams[self.team]
        request = self.program.request if self.program is not None else {}
        arms = request.get("arms") or [request[key] for key in ("arm",) if key in request]
        return tuple(Arm(*arm) for arm in arms)

    @property
    def backends(self) -> list[str]:
        """torch's names of the backends that are measured."""
        return [find_backend(arm.backend).torch_name for arm in self.arms]

    def to_json(self) -> dict[str, Any]:
        """For the store."""
        return {
            "number": self.number,
            "plan": None if self.plan is None else packed_plan(self.plan),
            "batches": dict(self.batches),
            "attempt": self.attempt,
            "timeout_s": self.timeout_s,
            "program": None if self.program is None else [self.program.name, self.program.request],
            "flight": self.flight,
            "team": self.team,
            "left_out": list(self.left_out),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Assignment:
        """Inverse of ``to_json``."""
        return cls(
            number=fields["number"],
            plan=None if fields["plan"] is None else unpacked_plan(fields["plan"]),
            batches=fields["batches"],
            attempt=fields["attempt"],
            timeout_s=fields["timeout_s"],
            program=None if fields["program"] is None else Program(*fields["program"]),
            flight=fields["flight"],
            team=fields["team"],
            left_out=tuple(fields["left_out"]),
        )


def launch(
    job: Job,
    assignment: Assignment,
    answer: Callable[[Slot, Any], None],
    log_folder: Path | None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Fork this host's workers, pass their messages to ``answer``, and return when they are done.

    ``meanwhile`` runs while the workers start and nothing is timed yet.

    Raises:
        Interrupted, MeasurementError: see ``Watch.run``; no worker is left in any case.
    """
    ranks = range(job.nranks) if job.seat is None else [job.seat.rank]
    first_local = 0 if job.seat is None else job.seat.local_rank
    board = Board(len(ranks))
    # Of a program that names no arm: nothing beside what is there.
    arm = next(iter(assignment.arms), None)
    environment = None if arm is None or arm.environment is None else job.environments[arm.environment]

    def work(slot: int, pipe: Connection) -> None:
        task = WorkerTask(
            rank=ranks[slot],
            local_rank=first_local + slot,
            local_ranks=job.local_ranks,
            nranks=job.nranks,
            one_host=job.local_ranks == job.nranks,
            plan=assignment.plan,
            program=assignment.program,
            batches=dict(assignment.batches),
            attempt=assignment.attempt,
            timeout_s=assignment.timeout_s,
            team=assignment.team,
            left_out=assignment.left_out,
            variables={} if arm is None else arm.variables,
        )
        # The gate is for workers of one supervisor; those of several meet over the control plane.
        has_gate = job.seat is None
        where = job.meeting.store_of(assignment.number)
        line = None if recorders is None else recorders.line
        if environment is not None:
            from ncclbench.supervise.elsewhere import Elsewhere, start_elsewhere

            start_elsewhere(environment, Elsewhere(task, where, pipe, board, slot, has_gate, line))
        # Imported in the worker: the supervisor itself needs nothing of it.
        from ncclbench.worker.main import run_worker

        gate = board.gate(slot) if has_gate else None
        run_worker(task, where.connect(), pipe, board.place(slot), gate, line)

    with contextlib.ExitStack() as stack:
        recorders, flight = None, None
        if job.leads and log_folder is not None:
            # Also where none are kept this time: those of an earlier attempt say nothing of this one.
            clear_dumps(log_folder)
        if assignment.flight is not None:
            run = Path(assignment.flight)
            recorders = stack.enter_context(Recorders(assignment.backends))
            flight = FlightEvidence(recorders, job.meeting, run, job.nranks, job.leads)
        slots = stack.enter_context(Slots())
        slots.start(ranks, board, work)
        meanwhile()
        Watch(
            slots,
            job.meeting,
            job.signals,
            assignment.where,
            assignment.timeout_s,
            answer,
            log_folder,
            flight,
        ).run()
