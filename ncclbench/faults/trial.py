"""One trial from start to end, for all strategies in which the orchestrator starts the ranks itself.

The course: all ranks form a group, measure its bandwidth and step. The fault falls. Whoever lives notices,
the orchestrator decides who is left, they form a group without the victim, step, and measure again. Only
then a replacement is asked for; once it is ready all pause at the same step, form a group with it, step and
measure for the last time.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from ncclbench.errors import MeasurementError
from ncclbench.faults.model import LEAST_RATIO, DrillPlan, Spared, TrialRequest
from ncclbench.faults.orchestrator import START_S, Broken, Orchestrator
from ncclbench.faults.signs import await_sign, busy_words, mistaken, told_alike
from ncclbench.faults.talk import (
    Burst,
    End,
    Fail,
    Form,
    Formed,
    Measured,
    Pause,
    Raised,
    Ready,
    Stage,
    Step,
    Stopped,
)
from ncclbench.store.drills import PHASES, DrillTrial
from ncclbench.supervise.capture import RankDump, write_dumps
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import STRATEGIES

# In a new group before anything is measured: what is left of forming it has passed by then.
_SETTLING_STEPS = 5
# How many the pace of the job is taken from.
_PACED_STEPS = 25
# Beyond the group's timeout, for ranks to say what came of it.
_GRACE_S = 5.0
# How often the orchestrator looks at the victim's steps.
_LOOK_S = 0.0005
# What is told sooner did not wait for any timeout.
_AT_ONCE_MS = 1000.0
# How long a trial of "slow" goes on where nobody does anything.
_SLOW_S = 1.0


def run_trial(request: TrialRequest) -> DrillTrial:
    """Make one trial with processes of its own; see ``faults.model.RunTrial``.

    Raises:
        MeasurementError: the ranks did not come as far as the fault.
        Interrupted: an ending signal has come.
    """
    with Orchestrator(request) as ranks:
        trial = _Trial(request, ranks)
        try:
            trial.prepare()
        except Broken as broken:
            raise MeasurementError(f"{request.strategy}: {broken}, before any fault") from None
        try:
            trial.recover()
        except Broken as broken:
            trial.outcome = str(broken)
        trial.keep_dumps()
        return trial.told()


class _Trial:
    def __init__(self, request: TrialRequest, ranks: Orchestrator) -> None:
        self._request = request
        self._plan: DrillPlan = request.plan
        self._ranks = ranks
        self._phases = STRATEGIES[request.strategy].phases_of(request.plan.fault)
        self._uuid = 0
        self._everybody = tuple(range(self._plan.nranks))
        # The fault is written by the victim into its seat, which later is the replacement's.
        self._victim_seat = ranks.seat(self._plan.victim)
        self._survivor_seats = {rank: ranks.seat(rank) for rank in self._plan.survivors}
        self._fault_ns = 0
        self._fault_step = 0
        self._decision_ns: int | None = None
        self._asked_ns: int | None = None
        self._handles: dict[int, str] = {}
        self._stopped: Mapping[int, Stopped] = {}
        self._bandwidth_GBs: dict[Stage, float] = {}
        self._steps_per_s: dict[Stage | Literal["slow"], float] = {}
        self._is_spared = False
        self.outcome: str | None = None

    @property
    def _limit_s(self) -> float:
        return self._plan.timeout_s + _GRACE_S

    def prepare(self) -> None:
        """Bring all ranks as far as the fault, and let it fall.

        Raises:
            Broken: a rank failed before.
        """
        plan, ranks = self._plan, self._ranks
        ranks.start_ranks()
        self._take_handles(ranks.gather(self._everybody, Ready, START_S, "while starting"))
        self._form(self._everybody, "start")
        self._measure(self._everybody, "start")
        before = self._victim_seat.steps
        ranks.order(self._everybody, Step(None))
        if FAULTS[plan.fault].cause == "victim":
            self._await(lambda: self._victim_seat.at_ns("fault") is not None)
            self._fault_ns = self._victim_seat.at_ns("fault") or 0
            self._fault_step = self._victim_seat.steps
            return
        self._await(lambda: self._victim_seat.steps >= before + plan.step)
        self._fault_ns = time.monotonic_ns()
        ranks.strike(plan.victim, self._fault_step)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for something that comes with the victim's steps."""
        limit_s = self._plan.timeout_s
        while not condition():
            self._ranks.hear(_LOOK_S)
            if condition():
                return
            self._ranks.refuse_ended(self._everybody, "while stepping")
            if self._victim_seat.silent_s > limit_s:
                raise Broken(f"rank {self._plan.victim} did not step for {limit_s:.0f} s{busy_words()}")

    def recover(self) -> None:
        """Go through the phases of the strategy.

        Raises:
            Broken: it ended before the last of them.
        """
        if not STRATEGIES[self._request.strategy].detaches:
            self._do_nothing()
            return
        survivors, victim = self._plan.survivors, self._plan.victim
        sign = await_sign(self._request, self._ranks)
        if not FAULTS[self._plan.fault].ends:
            self._slow_pace()
        if isinstance(sign, Spared):
            self._leave_alone(sign)
            return
        if sign.rank != victim:
            raise Broken(mistaken(sign, victim))
        self._detach(survivors, victim)
        self._form(survivors, "n_minus_1")
        self._measure(survivors, "n_minus_1")
        if "rejoin" in self._phases:
            self._replace(survivors, victim)
        else:
            self._ranks.order(survivors, End())

    def _detach(self, survivors: tuple[int, ...], victim: int) -> None:
        """From the sign of the fault to the decision who is left."""
        ranks = self._ranks
        if not FAULTS[self._plan.fault].ends:
            # Nothing is broken, so that all, the slow one among them, can leave at the same step.
            self._pause(self._everybody)
            ranks.order([victim], End())
        else:
            ranks.order(survivors, Fail(victim))
            # What does not move now must not move later, either.
            ranks.signal(victim, signal.SIGKILL)
            stopped = ranks.gather(survivors, Stopped, self._limit_s, "after the fault")
            self._take_handles(stopped)
            self._stopped = stopped
        self._decision_ns = time.monotonic_ns()

    def _slow_pace(self) -> None:
        """Steps in a second from the fault until now."""
        slow_s = (time.monotonic_ns() - self._fault_ns) / 1e9
        self._steps_per_s["slow"] = (self._victim_seat.steps - self._fault_step) / slow_s

    def _leave_alone(self, spared: Spared) -> None:
        """Nobody is detached, as it should be where the victim is not slow enough for that.

        Raises:
            Broken: the victim is slow enough, and was not seen.
        """
        if spared.rank is None and self._plan.slow_factor >= LEAST_RATIO:
            raise Broken(f"the policy did not find rank {self._plan.victim}: {spared.words}{busy_words()}")
        self._is_spared = True
        self.outcome = f"the policy left all as they are: {spared.words}"

    def _replace(self, survivors: tuple[int, ...], victim: int) -> None:
        """From a group that works without the victim to one with its replacement."""
        ranks = self._ranks
        ranks.order(survivors, Step(None))
        self._asked_ns = time.monotonic_ns()
        ranks.start_replacement()
        self._take_handles(ranks.gather([victim], Ready, START_S, "while starting as the replacement"))
        self._pause(survivors)
        # New ranks come last: nccl2 can grow a communicator only then.
        members = (*survivors, victim)
        self._form(members, "n")
        self._measure(members, "n")
        ranks.order(members, End())

    def _pause(self, members: Collection[int]) -> None:
        """Let all members leave their steps at the same one; they tell their handles."""
        self._ranks.order([next(iter(members))], Pause())
        stopped = self._ranks.gather(members, Stopped, self._limit_s, "before the pause")
        for rank, answer in stopped.items():
            if answer.why != "paused":
                raise Broken(f"rank {rank} left its steps before the pause: {answer.text}")
        self._take_handles(stopped)

    def _take_handles(self, answers: Mapping[int, Ready | Stopped]) -> None:
        self._handles |= {rank: answer.handle for rank, answer in answers.items()}

    def _form(self, members: tuple[int, ...], stage: Stage) -> None:
        """Make the group and its first checked operation."""
        self._uuid += 1
        handles = tuple(self._handles[rank] for rank in members)
        self._ranks.order(members, Form(self._uuid, members, handles, stage))
        doing = f"while forming a group of {len(members)}"
        formed = self._ranks.gather(members, Formed, 2 * self._limit_s, doing)
        wrong = [rank for rank, answer in formed.items() if not answer.correct]
        if wrong:
            raise Broken(f"the first sums in the group of {len(members)} are wrong on rank {wrong[0]}")

    def _measure(self, members: tuple[int, ...], stage: Stage) -> None:
        """The pace of the job, then the bandwidth: the slowest rank's."""
        ranks = self._ranks
        self._step(members, _SETTLING_STEPS)
        self._steps_per_s[stage] = _PACED_STEPS / self._step(members, _PACED_STEPS)
        ranks.order(members, Burst())
        answers = ranks.gather(members, Measured, self._limit_s, "while measuring")
        slowest_s = max(answer.seconds for answer in answers.values())
        factor = COLLECTIVES["all_reduce"].busbw_factor(len(members))
        self._bandwidth_GBs[stage] = self._plan.nbytes * factor / slowest_s / 1e9

    def _step(self, members: tuple[int, ...], count: int) -> float:
        """So many steps; seconds that the slowest rank took."""
        self._ranks.order(members, Step(count))
        answers = self._ranks.gather(members, Stopped, self._limit_s, "while stepping")
        for rank, answer in answers.items():
            if answer.why != "counted":
                raise Broken(f"rank {rank} left its steps: {answer.text}")
        return max(answer.seconds for answer in answers.values())

    def _do_nothing(self) -> None:
        """Look at who is told by torch, and what it says."""
        plan, ranks = self._plan, self._ranks
        limit_s = self._limit_s if self._phases else _SLOW_S
        deadline = time.monotonic() + limit_s
        told: dict[int, Stopped | Raised] = {}
        while time.monotonic() < deadline and len(told) < len(plan.survivors):
            ranks.hear(_LOOK_S)
            for rank in plan.survivors:
                answer = ranks.take(rank, Stopped) or ranks.take(rank, Raised)
                if answer is not None:
                    told[rank] = answer
        if not self._phases and not told:
            self._slow_pace()
            self.outcome = f"nobody is told: all go at the pace of rank {plan.victim}"
            return
        self.outcome = told_alike(
            {rank: self._torch_said(rank, told.get(rank), limit_s) for rank in plan.survivors}
        )

    def _torch_said(self, rank: int, answer: Stopped | Raised | None, limit_s: float) -> str:
        since_ms = self._since_ms(self._survivor_seats[rank].at_ns("notice"))
        if answer is None or since_ms is None:
            return f"still waited after {limit_s:.0f} s"
        # notices_ms has when exactly; here trials that went alike are to read alike.
        since_s = round(since_ms / 1e3)
        when = "at once" if since_ms < _AT_ONCE_MS else f"after {since_s} s"
        return f"told {when}: {answer.text}"

    def keep_dumps(self) -> None:
        """Write what the flight recorders held when the survivors noticed; a full disk ends no trial."""
        flight = self._request.flight
        if flight is not None:
            dumps = [
                RankDump(rank, backend, content)
                for rank, answer in self._stopped.items()
                for backend, content in answer.dumps
            ]
            with contextlib.suppress(OSError):
                write_dumps(flight, dumps)

    def told(self) -> DrillTrial:
        """What became of it."""
        plan = self._plan
        found = self._phases_ms()
        phases_ms = {name: found[name] if name in self._phases else None for name in PHASES}
        seats = [*self._survivor_seats.values(), self._ranks.seat(plan.victim)]
        return DrillTrial(
            number=self._request.number,
            fault=plan.fault,
            victim=plan.victim,
            step=plan.step,
            strategy=self._request.strategy,
            phases_ms=phases_ms,
            notices_ms={
                str(rank): self._since_ms(seat.at_ns("notice")) for rank, seat in self._survivor_seats.items()
            },
            correct=not any(seat.wrong_count for seat in seats),
            recovered=self._is_spared or all(phases_ms[name] is not None for name in self._phases),
            outcome=self.outcome,
            before_GBs=self._bandwidth_GBs.get("start"),
            during_GBs=self._bandwidth_GBs.get("n_minus_1"),
            after_GBs=self._bandwidth_GBs.get("n"),
            before_steps_per_s=self._steps_per_s.get("start"),
            slow_steps_per_s=self._steps_per_s.get("slow"),
            during_steps_per_s=self._steps_per_s.get("n_minus_1"),
            after_steps_per_s=self._steps_per_s.get("n"),
            spare=plan.spare,
            replacement_asked_ms=self._since_ms(self._asked_ns),
        )

    def _phases_ms(self) -> dict[str, float | None]:
        survivors = list(self._survivor_seats.values())
        newcomer = self._ranks.seat(self._plan.victim)
        replaced = [] if self._asked_ns is None else [newcomer]
        notices = [seat.at_ns("notice") for seat in survivors]
        noticed = [at_ns for at_ns in notices if at_ns is not None]
        at_ns = {
            "first_notice": min(noticed, default=None),
            "last_notice": _last(notices),
            "decision": self._decision_ns,
            "detach": _last([seat.at_ns("detach") for seat in survivors]),
            "first_good_n_minus_1": _last([seat.at_ns("first_good_n_minus_1") for seat in survivors]),
            "replacement_ready": _last([seat.at_ns("ready") for seat in replaced]),
            "rejoin": _last([seat.at_ns("rejoin") for seat in [*survivors, *replaced]]),
            "first_good_n": _last([seat.at_ns("first_good_n") for seat in [*survivors, *replaced]]),
        }
        return {name: self._since_ms(at) for name, at in at_ns.items()}

    def _since_ms(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else max(0.0, (at_ns - self._fault_ns) / 1e6)


def _last(times_ns: Sequence[int | None]) -> int | None:
    """When the last of all had come to it; None where one has not."""
    known = [at_ns for at_ns in times_ns if at_ns is not None]
    return max(known) if known and len(known) == len(times_ns) else None
