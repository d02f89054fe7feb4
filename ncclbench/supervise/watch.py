"""The watch over one launch of workers: passes their words on, and ends them when one of them fails."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncclbench.errors import MeasurementError
from ncclbench.supervise.blame import (
    WEIGHTS,
    Failure,
    RankState,
    hung,
    left_without_a_word,
    root_cause,
    weight,
)
from ncclbench.supervise.evidence import FlightEvidence
from ncclbench.supervise.rendezvous import Rendezvous
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slot, Slots
from ncclbench.worker import protocol
from ncclbench.writing import write_whole

_TICK_S = 0.2
# A look that comes so much late means that this process did not run, not that the workers hang.
_ABSENT_S = 1.5
# How long after a first failure others are waited for, so that the cause is told from its consequences.
_GRACE_S = 0.4
# How long supervisors are waited for that may still say how their hung worker is.
_STATES_S = 4.0


class Watch:
    """Watches this host's workers until they are done."""

    def __init__(
        self,
        slots: Slots,
        meeting: Rendezvous,
        signals: EndSignals,
        where: Callable[[tuple[int, int, int]], str],
        timeout_s: float,
        answer: Callable[[Slot, Any], None],
        log_folder: Path | None,
        flight: FlightEvidence | None = None,
    ) -> None:
        """``answer`` gets every message that is not about a worker's end; ``where`` has words for places.

        With ``flight`` the recorders are asked when a rank fails or hangs.
        """
        self._slots = slots
        self._meeting = meeting
        self._signals = signals
        self._where = where
        self._timeout_s = timeout_s
        self._answer = answer
        self._log_folder = log_folder
        self._flight = flight
        self._host = socket.gethostname()
        self._failures: list[Failure] = []
        self._done: set[int] = set()
        self._nranks = max(meeting.world_size, len(slots.slots))
        self._others_every_s = meeting.pause_s(_TICK_S)
        self._others_asked = 0.0
        self._watching_since = self._looked = time.monotonic()

    def run(self) -> None:
        """Return when every worker here is done.

        Raises:
            Interrupted: an ending signal came.
            MeasurementError: a rank died, raised or hung, here or elsewhere; it names who.
        """
        while self._slots.running:
            self._take(_TICK_S)
            if self._flight is not None:
                self._flight.settle()
            if self._failures:
                self._fail()
            self._signals.check()
            self._meeting.check_store()
            if self._slots.running and self._idle_s() > self._timeout_s:
                self._hung()
            self._look_at_others()

    def _idle_s(self) -> float:
        """Seconds in which no worker here has moved, as far as this supervisor was there to see it."""
        now = time.monotonic()
        if now - self._looked > _TICK_S + _ABSENT_S:
            # It was stopped itself (Ctrl-Z, a suspended machine): its workers may have been, too.
            self._watching_since = now
        self._looked = now
        idle_s = min(slot.place.idle_s for slot in self._slots.running)
        return min(idle_s, now - self._watching_since)

    def _take(self, timeout_s: float) -> None:
        for happening in self._slots.happenings(timeout_s, self._signals.wakeup):
            slot, message = happening.slot, happening.message
            if isinstance(message, Exit):
                # An interpreter of the user's may end well without ever having been a worker.
                if message.code != 0 or slot.rank not in self._done:
                    killed = message.signal_number is not None
                    said = "" if killed else f" ({slot.last_words()})"
                    self._note(slot, f"{message}{said}", killed)
            elif isinstance(message, protocol.Raised):
                if self._flight is not None:
                    self._flight.hear(slot.rank, message.dumps)
                self._note(slot, f"raised {message.kind}: {message.text}", False)
            elif isinstance(message, protocol.Done):
                self._done.add(slot.rank)
            else:
                self._answer(slot, message)

    def _note(self, slot: Slot, what: str, killed: bool) -> None:
        if any(failure.rank == slot.rank for failure in self._failures):
            return
        text = f"rank {slot.rank} on {self._host} {what} {self._where(slot.place.at)}"
        self._failures.append(Failure(slot.rank, text, killed))

    def _fail(self) -> None:
        """A worker here has failed: hear the others out, tell every supervisor, and end."""
        self._snapshot()
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and self._slots.running:
            self._take(0.05)
        for failure in self._failures:
            self._publish(failure)
        if self._meeting.world_size > 1:
            time.sleep(_GRACE_S)
            self._failures += self._published()
        self._keep_logs()
        raise self._ended(self._cause(self._failures))

    def _cause(self, failures: Sequence[Failure]) -> Failure:
        """What came before the rest; where all that is known is that a peer went, rank 0 finds out which.

        Who is gone with its supervisor, as with its whole host, has told nobody.
        """
        cause, meeting = root_cause(failures), self._meeting
        if meeting.world_size == 1:
            return cause
        with contextlib.suppress(RuntimeError):
            meeting.publish(f"ended/{meeting.rank}", True)
            meeting.count("ended", 1)
            if meeting.rank != 0 or weight(cause) < WEIGHTS - 1:
                return cause
            deadline = time.monotonic() + _STATES_S
            while time.monotonic() < deadline and meeting.count("ended") < meeting.world_size:
                time.sleep(0.1)
            gone = [rank for rank in range(meeting.world_size) if not meeting.known(f"ended/{rank}")]
            return left_without_a_word(gone, meeting.host_of(gone[0]), cause) if gone else cause
        return cause

    def _snapshot(self) -> None:
        """Ask the recorders as long as they tell of the failure and not of what follows from it."""
        if self._flight is not None:
            self._flight.snapshot([slot.rank for slot in self._slots.running])
            self._flight.share()

    def _ended(self, failure: Failure) -> MeasurementError:
        """The end of the launch in words, with what the flight recorders say."""
        return MeasurementError(failure.text if self._flight is None else self._flight.conclude(failure))

    def _publish(self, failure: Failure) -> None:
        if self._meeting.world_size > 1:
            with contextlib.suppress(RuntimeError):
                self._meeting.publish_failure(asdict(failure), weight(failure))

    def _published(self) -> list[Failure]:
        with contextlib.suppress(RuntimeError):
            return [Failure(**entry) for entry in self._meeting.failures(WEIGHTS)]
        return []

    def _look_at_others(self) -> None:
        if self._meeting.world_size == 1 or time.monotonic() - self._others_asked < self._others_every_s:
            return
        self._others_asked = time.monotonic()
        try:
            failed = self._meeting.failed()
        except RuntimeError as error:
            raise self._lost_store() from error
        if failed:
            self._snapshot()
            time.sleep(_GRACE_S)
            self._take(0)
            self._keep_logs()
            raise self._ended(self._cause([*self._published(), *self._failures]))

    def _hung(self) -> None:
        """Nothing has moved for too long: find out who is to blame, as long as the hung still hang."""
        self._meeting.check_store(nothing_moves=True)
        self._snapshot()
        answering = self._slots.answering()
        states = [
            RankState(
                slot.rank,
                self._host,
                slot.place.steps,
                slot.rank in answering,
                self._where(slot.place.at),
            )
            for slot in self._slots.running
        ]
        try:
            failure = self._judged(states)
        except RuntimeError as error:
            raise self._lost_store() from error
        self._keep_logs()
        raise self._ended(failure)

    def _judged(self, mine: list[RankState]) -> Failure:
        """Who is to blame, from the states of all ranks.

        One supervisor looks at all and tells the others: if each did, looks would grow with the square of
        their number. It is rank 0's, and one of the others where that does not answer.
        """
        meeting = self._meeting
        if meeting.world_size == 1:
            return hung(mine, self._nranks, self._timeout_s, meeting.host_of)
        for state in mine:
            meeting.publish(f"hung/{state.rank}", asdict(state))
        meeting.count("hung", len(mine))
        if meeting.rank != 0 and (told := self._verdict(_STATES_S + _GRACE_S)):
            return told
        if meeting.rank != 0 and meeting.count("judges", 1) > 1 and (told := self._verdict(_STATES_S)):
            return told
        deadline = time.monotonic() + (_STATES_S if meeting.rank == 0 else 0.0)
        while time.monotonic() < deadline and meeting.count("hung") < meeting.world_size:
            time.sleep(0.1)
        keys = [f"hung/{rank}" for rank in range(meeting.world_size)]
        states = [RankState(**meeting.read(key, 1.0)) for key in keys if meeting.known(key)]
        failure = hung(states, self._nranks, self._timeout_s, meeting.host_of)
        self._publish(failure)
        return failure

    def _verdict(self, timeout_s: float) -> Failure | None:
        """What another supervisor says of the hang; None where none does in time."""
        deadline = time.monotonic() + timeout_s
        while not self._meeting.failed():
            if time.monotonic() > deadline:
                return None
            time.sleep(self._meeting.pause_s(0.1))
        told = self._published()
        return root_cause(told) if told else None

    def _lost_store(self) -> MeasurementError:
        return MeasurementError(f"rank 0's process is gone: {self._host} lost its store")

    def _keep_logs(self) -> None:
        """Write what the workers have said, stacks included, beside the run."""
        if self._log_folder is None:
            return
        for slot in self._slots.slots:
            text = slot.log_tail()
            if text.strip():
                with contextlib.suppress(OSError):
                    write_whole(self._log_folder / f"worker-{slot.rank}.log", text.encode())
