"""A whole measurement: the run folder, one launch or one per epoch, and how it ended."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ncclbench.environment.health import health_entry
from ncclbench.environment.preflight import findings
from ncclbench.errors import MeasurementError, NcclbenchError, RequestError
from ncclbench.plan.model import Plan
from ncclbench.plan.orders import Orders
from ncclbench.plan.schedule import visit_order
from ncclbench.stats.settings import arm_words
from ncclbench.store import calibrations
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import ColdLine, StatusLine, StopLine, encode_line, encode_unit
from ncclbench.store.model import Run, Unit
from ncclbench.store.writer import SampleWriter
from ncclbench.supervise.attempts import begin_attempt, end_attempt
from ncclbench.supervise.events import Listener
from ncclbench.supervise.evidence import run_path
from ncclbench.supervise.launch import Assignment, Job, launch
from ncclbench.supervise.settings import check_same, read_settings, why_left_out
from ncclbench.supervise.slots import Slot, flush_streams
from ncclbench.supervise.teams import SharedEpoch
from ncclbench.worker import protocol

if TYPE_CHECKING:
    from ncclbench.compare.steering import Steering

# How long rank 0 may take, after the last sample, to write everything and say how it ended.
_ENDING_S = 600.0


class Session:
    """Rank 0's side of a measurement: writes what the workers measure and tells the listener.

    Use as a context around ``measure``; on every way out run.json says how it ended.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        folder: RunFolder,
        meta: dict[str, Any],
        former: Run | None,
        listener: Listener,
        meanwhile: Callable[[], None],
        flight_recorder: bool = False,
    ) -> None:
        """A measurement that has not begun.

        Args:
            former: the run as it stands when it is resumed, else None.
            meanwhile: what to do while workers start and nothing is timed yet.
            flight_recorder: keep the ranks' flight recorders where a launch fails.
        """
        self._job = job
        self._plan = plan
        self._folder = folder
        self._meta = meta
        self._listener = listener
        self._meanwhile = meanwhile
        self._flight = run_path(folder.path) if flight_recorder else None
        self._cases = {case.key: case for case in plan.planned}
        self._attempt = len(meta["attempts"])
        self._batches: dict[str, int] = {}
        if former is not None:
            self._batches = {case: units[0].k for (case, _), units in former.units.items()}
        self._former = former
        self._epochs_in_launch = 0
        self._team = 0
        self._left_out: dict[str, str] = {}
        self._epoch: SharedEpoch | None = None
        self._samples: SampleWriter | None = None
        self._told_start = False
        self._told_settled: set[tuple[str, str]] = set()
        self._refusal: dict[str, Any] | None = None
        self._health_before: list[dict[str, Any]] | None = None

    def measure(self) -> None:
        """Measure what is not yet there.

        Raises:
            RequestError: preflight forbids it, or no arm can be had.
            Interrupted, MeasurementError: what was measured is kept.
        """
        begin_attempt(self._folder, self._meta, self._job.launcher)
        try:
            with self._folder.samples() as self._samples:
                self._read_settings()
                if len(self._plan.teams) > 1:
                    self._take_turns()
                else:
                    self._launch()
                    # With an epoch to a launch, as long as a case wants another.
                    while self._one_epoch and self._epochs_in_launch and self._steering.is_open:
                        self._launch()
                    self._refuse_nothing_available()
        except NcclbenchError as error:
            self._end(error)
            raise
        self._end(None)

    @cached_property
    def _steering(self) -> Steering:
        # Imported when first asked, after the workers were forked: it brings scipy.
        from ncclbench.compare.steering import Steering

        return Steering(self._plan, self._former)

    @property
    def _one_epoch(self) -> bool:
        """Whether every epoch has processes of its own."""
        return self._plan.epoch_kind == "process"

    def _read_settings(self) -> None:
        """What is in force of the arms' settings; an arm of which one is not would be another arm's twin."""
        found = read_settings(self._job, self._plan, self._flight)
        arms = self._meta.setdefault("arms", {})
        if self._former is not None:
            check_same(found, arms, {arm for _, arm in self._former.units})
        for arm, said in found.items():
            arms[arm] = {**arms.get(arm, {}), "settings": said["settings"], "algorithms": said["algorithms"]}
            self._listener.note(arm_words(arm, said))
        self._left_out = why_left_out(found)
        for arm, reason in self._left_out.items():
            self._arm_ready(protocol.ArmReady(arm, None, None, reason))

    def _take_turns(self) -> None:
        """Epoch after epoch a launch for each team; over the epochs each is first equally often."""
        teams = self._plan.teams
        while (orders := self._steering.next_orders()) is not None:
            self._epoch = SharedEpoch(orders)
            for team in visit_order(len(teams), self._plan.seed, orders.epoch, "teams", 1):
                self._team = team
                if self._steering.taken_by([arm.id for arm in teams[self._team]]):
                    self._launch()
            self._refuse_nothing_available()
            for key, units, seconds in self._epoch.measured():
                self._conclude(key, orders.epoch, units, seconds, b"")

    def _launch(self) -> None:
        self._epochs_in_launch = 0
        assignment = Assignment(
            number=next(self._job.launches),
            plan=self._plan,
            batches=self._batches,
            attempt=self._attempt,
            timeout_s=self._plan.timeout_s,
            flight=self._flight,
            team=self._team,
            left_out=tuple(self._left_out),
        )
        if self._job.nranks > 1 and self._job.seat is not None:
            self._job.meeting.publish(f"assignment/{assignment.number}", assignment.to_json())
        launch(self._job, assignment, self._answer, self._folder.path, self._meanwhile)
        if self._refusal is not None:
            raise RequestError(f"{self._refusal['what']}: {self._refusal['mend']}")

    def _answer(self, slot: Slot, message: Any) -> None:
        _reply(slot, self._take(message))

    def _take(self, message: Any) -> Any:
        """Deal with a message; what the worker is to do, where it asks."""
        match message:
            case protocol.Described():
                return self._described(message)
            case protocol.Ready():
                return self._next_orders()
            case protocol.ArmReady():
                self._arm_ready(message)
            case protocol.Settled():
                self._settled(message)
            case protocol.Cold():
                self._cold(message)
            case protocol.Measured():
                self._measured(message)
            case protocol.Health():
                self._health(message)
            case protocol.FenceQuality():
                self._meta["fence"] = {
                    "kind": message.kind,
                    "median_us": message.median_us,
                    "p95_us": message.p95_us,
                    "clock_error_us": message.clock_error_us,
                }
        return True

    def _next_orders(self) -> Orders | None:
        if (self._one_epoch or self._epoch is not None) and self._epochs_in_launch:
            return None
        if self._epoch is None:
            orders = self._steering.next_orders()
        else:
            arms = [arm.id for arm in self._plan.teams[self._team]]
            orders = self._epoch.orders_for(self._steering.taken_by(arms))
        self._epochs_in_launch += orders is not None
        return orders

    def _described(self, message: protocol.Described) -> bool:
        environment = message.environment
        found = findings(
            environment,
            nranks=self._job.nranks,
            backends=[arm.backend for arm in self._plan.arms],
            share_gpu=self._plan.share_gpu,
        )
        # Of another Python its arms' settings tell what is different.
        if self._plan.teams[self._team][0].environment is None or "environment" not in self._meta:
            self._meta["environment"] = environment
            self._meta["preflight"] = found
            self._meta["calibration"] = self._calibration(environment)
            self._folder.write_meta(self._meta)
        if not self._told_start:
            self._told_start = True
            self._listener.started(self._folder.path, self._plan, environment, found)
        self._refusal = next((entry for entry in found if entry["severity"] == "error"), None)
        return self._refusal is None

    def _health(self, message: protocol.Health) -> None:
        """Keep what GPUs and NICs said before the first launch of this attempt and after its last."""
        if message.before and self._health_before is not None:
            return
        if message.before:
            self._health_before = message.readings
        before = self._health_before or message.readings
        after = None if message.before else message.readings
        entry = health_entry(self._attempt, self._meta["environment"], before, after)
        former = [each for each in self._meta.get("health", ()) if each["attempt"] != self._attempt]
        self._meta["health"] = [*former, entry]

    def _calibration(self, environment: dict[str, Any]) -> dict[str, Any] | None:
        """What is known of how well this machine tells equal arms from different ones."""
        plan = self._plan
        backend = next(arm.backend for arm in plan.arms if arm.id == plan.base_arm)
        return calibrations.find(environment, plan.nranks, backend, self._listener.note)

    def _arm_ready(self, message: protocol.ArmReady) -> None:
        arms = self._meta.setdefault("arms", {})
        arms[message.arm] = {
            **arms.get(message.arm, {}),
            "implementation": message.implementation,
            "device": message.device,
            "status": "ok" if message.reason is None else "unavailable",
            "reason": message.reason,
        }
        self._folder.write_meta(self._meta)
        if message.reason is not None:
            self._settle(message.arm, "unavailable", dict.fromkeys(self._cases, message.reason))

    def _settled(self, message: protocol.Settled) -> None:
        self._settle(message.arm, "skipped", message.reasons)

    def _settle(self, arm: str, status: str, reasons: dict[str, str]) -> None:
        # Workers that are started anew find it anew.
        fresh = {case: reason for case, reason in reasons.items() if (case, arm) not in self._told_settled}
        self._told_settled |= {(case, arm) for case in fresh}
        lines = b"".join(
            encode_line(StatusLine(case, arm, status, reason))  # type: ignore[arg-type]
            for case, reason in fresh.items()
        )
        self._writer.append(lines)
        for case, reason in fresh.items():
            self._steering.close(case, arm)
            self._listener.settled(case, arm, status, reason)

    def _cold(self, message: protocol.Cold) -> None:
        self._writer.append(
            b"".join(
                encode_line(
                    ColdLine(
                        message.arm,
                        message.epoch,
                        self._attempt,
                        rank,
                        init_us,
                        first_op_us,
                        message.topology,
                    )
                )
                for rank, (init_us, first_op_us) in enumerate(
                    zip(message.init_us, message.first_op_us, strict=True)
                )
            )
        )

    def _measured(self, message: protocol.Measured) -> None:
        self._batches.setdefault(message.case, message.units[0].k)
        if self._epoch is None:
            lines = b"".join(map(encode_unit, message.units))
            self._conclude(message.case, message.epoch, message.units, message.seconds, lines)
        else:
            placed = self._epoch.add(message.case, message.units, message.seconds)
            self._writer.append(b"".join(map(encode_unit, placed)))

    def _conclude(self, key: str, epoch: int, units: Sequence[Unit], seconds: float, lines: bytes) -> None:
        """A case in an epoch is measured on all its arms; ``lines`` of it are still to be written."""
        stop = self._steering.take(key, units, seconds)
        if stop is not None:
            # With its last epoch in one write: neither is there without the other.
            lines += encode_line(StopLine(key, stop.epochs, stop.why, stop.half_width))
        self._writer.append(lines)
        case = self._cases[key]
        self._listener.measured(case, epoch, units, seconds)
        if stop is not None:
            self._listener.stopped(case, stop)

    @property
    def _writer(self) -> SampleWriter:
        if self._samples is None:
            raise RuntimeError("samples are written inside measure() only")
        return self._samples

    def _refuse_nothing_available(self) -> None:
        arms = self._meta.get("arms", {})
        if arms and all(arm["status"] != "ok" for arm in arms.values()):
            reasons = "; ".join(f"{name} {arm['reason']}" for name, arm in arms.items())
            raise RequestError(f"nothing can be measured here: {reasons} (--backends gloo runs anywhere)")

    def _end(self, ended_by: NcclbenchError | None) -> None:
        for entry in self._meta.get("health", ())[-1:]:
            for problem in entry["problems"] if entry["attempt"] == self._attempt else ():
                self._listener.note(problem)
        end_attempt(self._folder, self._meta, ended_by)


def follow(job: Job) -> int:
    """A rank other than 0: run the launches that rank 0 tells of; returns the exit code of all ranks.

    Raises:
        Interrupted: an ending signal came to this process.
    """
    number = 0
    failed: MeasurementError | None = None
    while failed is None:
        told = _next_word(job, number)
        if "exit" in told:
            return int(told["exit"])
        try:
            launch(job, Assignment.from_json(told), lambda slot, message: None, None)
        except MeasurementError as error:
            failed = error
        number += 1
    return int(job.meeting.read("exit", _ENDING_S))


def _next_word(job: Job, number: int) -> dict[str, Any]:
    """Rank 0's next launch, or how the run has ended."""
    deadline = time.monotonic() + _ENDING_S
    while time.monotonic() < deadline:
        if job.meeting.known(f"assignment/{number}"):
            return dict(job.meeting.read(f"assignment/{number}", 1.0))
        if job.meeting.known("exit"):
            return {"exit": job.meeting.read("exit", 1.0)}
        job.signals.check()
        time.sleep(job.meeting.pause_s(0.05))
    raise MeasurementError(f"rank {job.meeting.rank} waited {_ENDING_S:.0f} s for rank 0 to go on")


def end_together(job: Job, code: int) -> None:
    """Last of all: rank 0 tells the code that every rank ends with; then the last barrier.

    Under a launcher it does not return: it ends the process at once, because a launcher that sees one
    rank end badly kills those that are still tidying up.
    """
    if job.leads:
        with contextlib.suppress(RuntimeError):
            job.meeting.publish("exit", code)
    job.meeting.leave_together()
    if job.seat is not None:
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        flush_streams()
        os._exit(code)


def _reply(slot: Slot, answer: Any) -> None:
    """Answer a worker that may have died meanwhile; its end is noticed elsewhere."""
    if slot.pipe is not None:
        with contextlib.suppress(OSError):
            slot.pipe.send(answer)
