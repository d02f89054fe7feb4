"""The old way: torchrun ends every process of the job when one has failed, and starts them all again.

A trial is a whole torchrun with ranks of its own. Its ranks write down what they come to; this process only
looks on, and ends all of them. By torch's default the restarted ranks use the store of the first start,
which on gloo they do not survive; so TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is set, unless the environment
already says something: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=0 shows what the default does.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ncclbench
from ncclbench.environ import variables
from ncclbench.errors import MeasurementError
from ncclbench.faults.heir import heir
from ncclbench.faults.keeper import kept_folder
from ncclbench.faults.model import ERROR_HANDLING, MARKER, DrillPlan, TrialRequest
from ncclbench.faults.restarted import RestartRequest, words_file
from ncclbench.faults.shortening import shortened
from ncclbench.store.drills import PHASES, DrillTrial
from ncclbench.supervise.slots import Slot, Slots
from ncclbench.tables.backends import find_backend
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import STRATEGIES
from ncclbench.worker.board import Board
from ncclbench.worker.compat import backend_name
from ncclbench.worker.groups import device_kind

OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

# A start of all ranks, with torch to import; torchrun's patience with a rank that does not heed SIGTERM.
_START_S = 60.0
_TORCHRUN_GRACE_S = 30.0
_LOOK_S = 0.02
# After the last rank's last word torchrun ends by itself; the trial is over all the same.
_LEAVE_S = 5.0

_Word = dict[str, Any]


def limit_s(plan: DrillPlan) -> float:
    """The longest that a trial may take: two starts, the group's timeout, and torchrun's grace."""
    steps_s = (plan.step + 40) * plan.compute_s * (1.0 if FAULTS[plan.fault].ends else plan.slow_factor)
    return 2 * _START_S + 2 * plan.timeout_s + _TORCHRUN_GRACE_S + steps_s


def run_trial(request: TrialRequest) -> DrillTrial:
    """One job under torchrun, with the fault in its first start.

    Raises:
        MeasurementError: the ranks did not get as far as the fault.
        Interrupted: an ending signal came. No process of torchrun is left in any case.
    """
    plan = request.plan
    with kept_folder("ncclbench-restart-") as folder, heir(), Slots() as slots:
        job = _Job(folder, plan)
        slots.start([0], Board(1), lambda slot, pipe: _become_torchrun(request, folder, pipe))
        _look_on(job, slots.slots[0], slots, request)
        return job.trial(request, slots.slots[0])


def _become_torchrun(request: TrialRequest, folder: Path, pipe: Connection) -> None:
    """In the forked child: be torchrun, which so still dies with the orchestrator."""
    plan = request.plan
    backend = find_backend(plan.backend)
    told = RestartRequest(
        torchrun=os.getpid(),
        folder=str(folder),
        backend=backend_name(backend),
        uses_gpu=device_kind(backend) == "cuda",
        share_gpu=plan.share_gpu,
        binds_device=backend.binds_device,
        fault=plan.fault,
        victim=plan.victim,
        step=plan.step,
        nbytes=plan.nbytes,
        compute_s=plan.compute_s,
        slow_factor=plan.slow_factor,
        timeout_s=plan.timeout_s,
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(plan.nranks), "--max-restarts", "1"]
    command += ["-m", "ncclbench.faults.restarted", told.to_text()]
    pipe.close()
    os.execve(sys.executable, command, _environment(request, folder))  # noqa: S606  our own interpreter


def _environment(request: TrialRequest, folder: Path) -> dict[str, str]:
    settings = {OWN_STORE: "1", "OMP_NUM_THREADS": "1"} | dict(variables())
    home = str(Path(ncclbench.__file__).parent.parent)
    settings["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [settings.get("PYTHONPATH")])])
    # torchrun keeps logs and sockets in a folder of its own, which it leaves there.
    settings["TMPDIR"] = str(folder)
    settings[MARKER] = request.token
    settings[ERROR_HANDLING] = request.plan.error_handling
    return settings | dict(STRATEGIES[request.strategy].environment)


def _look_on(job: _Job, torchrun: Slot, slots: Slots, request: TrialRequest) -> None:
    """Until the job is over or takes too long; notes when ranks of the first start end."""
    deadline = time.monotonic() + limit_s(request.plan)
    leave: float | None = None
    try:
        while time.monotonic() < min(deadline, leave or deadline):
            job.wait(torchrun.pidfd if torchrun.exit is None else None, request.signals.wakeup)
            slots.happenings(0, request.signals.wakeup)
            request.signals.check()
            job.read()
            if torchrun.exit is not None:
                return
            if leave is None and job.is_over():
                leave = time.monotonic() + _LEAVE_S
    finally:
        job.close()


@dataclass(slots=True)
class _Job:
    """What is known of the ranks, start by start.

    Attributes:
        words: by start and rank, what each has said, in order.
        ended_ns: by rank, when the process of the first start was gone.
    """

    folder: Path
    plan: DrillPlan
    words: dict[tuple[int, int], list[_Word]] = field(default_factory=dict)
    ended_ns: dict[int, int] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)

    def read(self) -> None:
        """Take what ranks have written; open a descriptor for the end of each process of the first start."""
        for start in (0, 1):
            for rank in range(self.plan.nranks):
                path = words_file(self.folder, start, rank)
                if path.exists():
                    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
                    self.words[start, rank] = [json.loads(line) for line in whole.splitlines()]
        for rank in range(self.plan.nranks):
            started = self.word(0, rank, "started")
            if started is not None and rank not in self.ended_ns and rank not in self._ends:
                try:
                    self._ends[rank] = os.pidfd_open(started["pid"])
                except ProcessLookupError:
                    self.ended_ns[rank] = time.monotonic_ns()

    def wait(self, torchrun: int | None, wakeup: int) -> None:
        """A moment, or less where torchrun or a rank ends or a signal comes."""
        poll = select.poll()
        for descriptor in (*self._ends.values(), wakeup, *([] if torchrun is None else [torchrun])):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(_LOOK_S * 1e3)}
        for rank, descriptor in list(self._ends.items()):
            if descriptor in ready:
                self.ended_ns[rank] = time.monotonic_ns()
                os.close(self._ends.pop(rank))

    def close(self) -> None:
        """Let go of the descriptors."""
        for descriptor in self._ends.values():
            os.close(descriptor)
        self._ends.clear()

    def word(self, start: int, rank: int, what: str) -> _Word | None:
        """The first of that kind; None where the rank has not said it."""
        said = self.words.get((start, rank), [])
        return next((word for word in said if word["what"] == what), None)

    def is_over(self) -> bool:
        """Whether all ranks of the second start have said their last."""
        return all(
            self.word(1, rank, "measured") or self.word(1, rank, "raised") for rank in range(self.plan.nranks)
        )

    def trial(self, request: TrialRequest, torchrun: Slot) -> DrillTrial:
        """What it comes to.

        Raises:
            MeasurementError: there was no fault.
        """
        plan = self.plan
        fault = self.word(0, plan.victim, "fault")
        if fault is None:
            raise MeasurementError(
                f"rank {plan.victim} under torchrun did not reach step {plan.step}: {self._why(0, torchrun)}"
            )
        since_ns = fault["at_ns"]
        phases: dict[str, float | None] = dict.fromkeys(PHASES)
        notices = {
            rank: _after_ms(since_ns, self._notice_ns(rank))
            for rank in plan.survivors
            if FAULTS[plan.fault].ends
        }
        told = [at for at in notices.values() if at is not None]
        if told:
            phases["first_notice"] = min(told)
            phases["last_notice"] = max(told) if len(told) == len(plan.survivors) else None
        for phase, what in (("replacement_ready", "ready"), ("rejoin", "joined"), ("first_good_n", "good")):
            phases[phase] = _after_ms(since_ns, self._last_ns(1, what))
        said = [word for words in self.words.values() for word in words]
        correct = all(word.get("correct", True) and word["what"] != "wrong" for word in said)
        missing = [
            name for name in STRATEGIES[request.strategy].phases_of(plan.fault) if phases[name] is None
        ]
        return DrillTrial(
            number=request.number,
            fault=plan.fault,
            victim=plan.victim,
            step=plan.step,
            strategy=request.strategy,
            phases_ms=phases,
            notices_ms={str(rank): at for rank, at in notices.items()},
            correct=correct,
            recovered=not missing,
            outcome=self._outcome(missing, torchrun),
            before_GBs=self._busbw(0),
            after_GBs=self._busbw(1),
            spare="cold",
        )

    def _notice_ns(self, rank: int) -> int | None:
        """When torch told the rank, or torchrun ended it, whichever came first."""
        raised = self.word(0, rank, "raised")
        times = [raised["at_ns"] if raised else None, self.ended_ns.get(rank)]
        return min((at for at in times if at is not None), default=None)

    def _last_ns(self, start: int, what: str) -> int | None:
        """When the last rank came to it; None unless all did."""
        words = [self.word(start, rank, what) for rank in range(self.plan.nranks)]
        known = [word["at_ns"] for word in words if word is not None]
        return max(known) if len(known) == len(words) else None

    def _busbw(self, start: int) -> float | None:
        words = [self.word(start, rank, "measured") for rank in range(self.plan.nranks)]
        seconds = [word["seconds"] for word in words if word is not None]
        if len(seconds) < len(words):
            return None
        factor = COLLECTIVES["all_reduce"].busbw_factor(self.plan.nranks)
        slowest_s = float(max(seconds))
        return factor * self.plan.nbytes / slowest_s / 1e9

    def _outcome(self, missing: list[str], torchrun: Slot) -> str | None:
        if not FAULTS[self.plan.fault].ends:
            return "torchrun did nothing: it starts ranks again that have ended, not slow ones"
        if not missing:
            return None
        return f"no {missing[0]}: {self._why(1, torchrun)}"

    def _why(self, start: int, torchrun: Slot) -> str:
        """The first error of a rank in that start, else how far torchrun has come."""
        raised: Mapping[int, _Word | None] = {
            rank: self.word(start, rank, "raised") for rank in range(self.plan.nranks)
        }
        known = {rank: word for rank, word in raised.items() if word is not None}
        if known:
            rank = min(known, key=lambda one: int(known[one]["at_ns"]))
            return f"rank {rank} raised {shortened(known[rank]['text'])}"
        if torchrun.exit is not None:
            return f"torchrun {torchrun.exit} ({torchrun.last_words()})"
        return f"torchrun was not done after {limit_s(self.plan):.0f} s"


def _after_ms(since_ns: int, at_ns: int | None) -> float | None:
    return None if at_ns is None else max(0.0, (at_ns - since_ns) / 1e6)
