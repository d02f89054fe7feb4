"""The orchestrator of a trial: no rank, holds the stamps, starts and ends all processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar

from ncclbench.environ import variables
from ncclbench.faults.model import MARKER, TrialRequest
from ncclbench.faults.stamps import Seat, Stamps
from ncclbench.faults.talk import Answer, Order, Prepare, Raised, RankTask
from ncclbench.supervise.slots import Exit, Slot, Slots
from ncclbench.supervise.store_process import StoreProcess
from ncclbench.tables.faults import FAULTS, Stroke
from ncclbench.worker.board import Board

Kind = TypeVar("Kind")

_STORE_S = 30.0
# For a rank to be up: a cold replacement imports torch, perhaps from a slow disk.
START_S = 120.0


class Broken(Exception):
    """The trial cannot go on; the text is its outcome."""


class Orchestrator:
    """The processes of one trial. Use as a context: nothing outlives it.

    Attributes:
        gone: how each rank's process ended, by rank, where it has.
    """

    def __init__(self, request: TrialRequest) -> None:
        self._request = request
        self._plan = request.plan
        self._signals = request.signals
        self._slots = Slots()
        self._of_rank: dict[int, Slot] = {}
        self._inbox: dict[int, list[Answer]] = {}
        self.gone: dict[int, Exit] = {}

    def __enter__(self) -> Orchestrator:
        plan = self._plan
        self._store = StoreProcess("127.0.0.1", 0, _STORE_S)
        self._stamps = Stamps(plan.nranks + 1)
        self._seats = {rank: self._stamps.seat(rank) for rank in range(plan.nranks)}
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._slots.__exit__(*exc_info)
        self._seats.clear()
        self._stamps.close()
        self._store.end()

    def seat(self, rank: int) -> Seat:
        """The stamps of a rank; once a replacement was started, the replacement's for the victim."""
        return self._seats[rank]

    def pids(self) -> list[int]:
        """Of every process that was started."""
        return [slot.pid for slot in self._slots.slots]

    def start_ranks(self) -> None:
        """Fork all ranks, and a warm spare beside them."""
        plan = self._plan
        self._start(range(plan.nranks), self._run)
        if plan.spare == "warm":
            self._start([plan.nranks], self._run)

    def start_replacement(self) -> None:
        """Let a process for the victim's place come to where it could join; it answers Ready."""
        plan = self._plan
        victim, place = plan.victim, plan.nranks
        if plan.spare == "cold":
            self._start([place], self._become)
        slot = self._of_rank.pop(place)
        self._of_rank[victim] = slot
        self._inbox[victim] = self._inbox.pop(place)
        self.gone.pop(victim, None)
        if place in self.gone:  # a spare that did not live until it was wanted
            self.gone[victim] = self.gone.pop(place)
        self._seats[victim] = self._stamps.seat(place)
        self.order([victim], Prepare())

    def _start(self, places: Iterable[int], run: Any) -> None:
        places = list(places)

        def work(number: int, pipe: Connection) -> None:
            run(places[number], pipe)

        self._slots.start(places, Board(len(places)), work)
        for slot in self._slots.slots[-len(places) :]:
            self._of_rank[slot.rank] = slot
            self._inbox[slot.rank] = []

    def _task(self, place: int) -> RankTask:
        plan = self._plan
        is_replacement = place == plan.nranks
        return RankTask(
            rank=plan.victim if is_replacement else place,
            seat=place,
            nranks=plan.nranks,
            strategy=self._request.strategy,
            backend=plan.backend,
            fault=plan.fault,
            victim=plan.victim,
            step=plan.step,
            nbytes=plan.nbytes,
            compute_s=plan.compute_s,
            slow_factor=plan.slow_factor,
            timeout_s=plan.timeout_s,
            store=self._store.address,
            prefix=self._request.token,
            is_replacement=is_replacement,
            records=self._request.flight is not None and not is_replacement,
            share_gpu=plan.share_gpu,
            token=self._request.token,
            error_handling=plan.error_handling,
        )

    def _run(self, place: int, pipe: Connection) -> NoReturn:
        # Imported in the rank: the orchestrator needs nothing of it.
        from ncclbench.faults.rank import run_rank

        run_rank(self._task(place), pipe, self._stamps.seat(place))

    def _become(self, place: int, pipe: Connection) -> NoReturn:
        from ncclbench.faults.replacement import become

        become(self._task(place), pipe, self._stamps, {**variables(), MARKER: self._request.token})

    def order(self, ranks: Iterable[int], order: Order) -> None:
        """Give an order; one whose process has ended does not hear it, which is noticed elsewhere."""
        for rank in ranks:
            pipe = self._of_rank[rank].pipe
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.send(order)

    def hear(self, timeout_s: float) -> None:
        """Take what ranks say into their inboxes, waiting up to ``timeout_s`` for something.

        Raises:
            Interrupted: an ending signal has come.
        """
        happenings = self._slots.happenings(timeout_s, self._signals.wakeup)
        self._signals.check()
        ranks = {slot.pid: rank for rank, slot in self._of_rank.items()}
        for happening in happenings:
            rank = ranks.get(happening.slot.pid)
            if rank is None:
                continue  # a victim whose place is taken
            if isinstance(happening.message, Exit):
                self.gone[rank] = happening.message
            else:
                self._inbox[rank].append(happening.message)

    def gather(
        self, ranks: Collection[int], kind: type[Kind], within_s: float, doing: str
    ) -> dict[int, Kind]:
        """One answer of that kind of each rank.

        Args:
            doing: what they do, for the outcome.

        Raises:
            Broken: one of them has ended, was ended by an exception, or does not answer in time.
            Interrupted: an ending signal has come.
        """
        deadline = time.monotonic() + within_s
        answers: dict[int, Kind] = {}
        while True:
            for rank in ranks:
                if rank not in answers:
                    found = self.take(rank, kind)
                    if found is not None:
                        answers[rank] = found
            if len(answers) == len(ranks):
                return answers
            self.refuse_ended([rank for rank in ranks if rank not in answers], doing)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                missing = ", ".join(self._name(rank) for rank in ranks if rank not in answers)
                raise Broken(f"{missing} did not finish within {within_s:.0f} s {doing}")
            self.hear(min(left_s, 0.5))

    def take(self, rank: int, kind: type[Kind]) -> Kind | None:
        """The oldest answer of that kind that has come from a rank."""
        for answer in self._inbox[rank]:
            if isinstance(answer, kind):
                self._inbox[rank].remove(answer)
                return answer
        return None

    def has_told(self, rank: int, kind: type[Any]) -> bool:
        """Whether an answer of that kind has come from a rank and was not taken yet."""
        return any(isinstance(answer, kind) for answer in self._inbox[rank])

    def refuse_ended(self, ranks: Iterable[int], doing: str) -> None:
        """Refuse to go on where one of the ranks has ended.

        Raises:
            Broken: it has, or was ended by an exception.
        """
        for rank in ranks:
            raised = self.take(rank, Raised)
            if raised is not None:
                raise Broken(f"{self._name(rank)} {doing}: {raised.text}")
            if rank in self.gone:
                words = self._of_rank[rank].last_words()
                raise Broken(f"{self._name(rank)} {self.gone[rank]} {doing}: {words}")

    def _name(self, rank: int) -> str:
        """In words; a replacement has the number of the rank whose place it takes."""
        is_replacement = self._of_rank[rank].rank == self._plan.nranks
        return f"the replacement of rank {rank}" if is_replacement else f"rank {rank}"

    def strike(self, victim: int, step: int) -> None:
        """Let the plan's fault fall on a rank."""
        plan = self._plan
        if victim not in self.gone:
            pid = self._of_rank[victim].pid
            with contextlib.suppress(ProcessLookupError):
                FAULTS[plan.fault].harm(Stroke(pid, victim, step, plan.compute_s, plan.slow_factor))

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank's process."""
        if rank not in self.gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._of_rank[rank].pid, number)
