"""The ranks of one contract case, told what to do and waited for with a deadline."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ncclbench.errors import MeasurementError
from ncclbench.faults.contract_rank import Answer, Order
from ncclbench.faults.shortening import shortened
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Happening, Slots

_TICK_S = 0.2
# An answer that comes so much after torch's timeout is late.
_LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """How an order ended on one rank.

    Attributes:
        kind: "ok", "error": it raised; "hung": no answer until the deadline; "ended": the process did.
        text: in words.
        seconds: what it took; of one that hung until it was given up.
        at_s: when that was, of the monotonic clock.
        value: what it returned.
        is_late: it was told, but long after the timeout that it gave.
    """

    kind: Literal["ok", "error", "hung", "ended"]
    text: str
    seconds: float
    at_s: float
    value: Any = None
    is_late: bool = False


class Stage:
    """The ranks, by number, and the uuids that are still fresh.

    Attributes:
        nranks: how many there are, dead ones included.
        deadline_s: of every order; a rank that takes longer is called hung.
    """

    def __init__(self, slots: Slots, signals: EndSignals, timeout_s: float, deadline_s: float) -> None:
        """``timeout_s``: that the ranks give to torch."""
        self.nranks = len(slots.slots)
        self._slots = slots
        self._signals = signals
        self._timeout_s = timeout_s
        self.deadline_s = deadline_s
        self._uuids = itertools.count(1)
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[int, float]] = {}
        self._told: dict[int, Told] = {}

    # --- orders

    def tell(self, rank: int, action: str, **given: Any) -> None:
        """Give an order; ``await_all`` waits for what comes of it."""
        number = next(self._numbers)
        self._open[rank] = (number, time.monotonic())
        self._told.pop(rank, None)
        pipe = self._slots.slots[rank].pipe
        if pipe is not None:
            with contextlib.suppress(OSError):  # it has ended, which the wait finds out
                pipe.send(Order(number, action, given))

    def await_all(self, ranks: Iterable[int]) -> dict[int, Told]:
        """What came of each rank's last order, at the latest after the deadline.

        Raises:
            Interrupted: an ending signal came.
        """
        wanted = list(ranks)
        self.take_until(lambda: not any(rank in self._open for rank in wanted), self.deadline_s)
        for rank in wanted:
            if rank in self._open:
                _, since = self._open.pop(rank)
                now = time.monotonic()
                text = f"hung until the deadline of {self.deadline_s:g} s"
                self._told[rank] = Told("hung", text, now - since, now)
        return {rank: self._told[rank] for rank in wanted}

    def ask(self, ranks: Iterable[int], action: str, **given: Any) -> dict[int, Told]:
        """Give all of them the same order and wait for what comes of it."""
        wanted = list(ranks)
        for rank in wanted:
            self.tell(rank, action, **given)
        return self.await_all(wanted)

    def must(self, ranks: Iterable[int], action: str, **given: Any) -> dict[int, Any]:
        """As ``ask``, for what has to work before the case begins; returns the values by rank.

        Raises:
            MeasurementError: it did not.
        """
        told = self.ask(ranks, action, **given)
        for rank, one in told.items():
            if one.kind != "ok":
                raise MeasurementError(f"{action} failed on rank {rank} before the case began: {one.text}")
        return {rank: one.value for rank, one in told.items()}

    def take_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Take answers until ``done()`` or for ``limit_s``; returns whether it was done."""
        deadline = time.monotonic() + limit_s
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            for happening in self._slots.happenings(min(_TICK_S, left_s), self._signals.wakeup):
                self._take(happening)
            self._signals.check()
        return True

    def let_run(self, seconds: float) -> None:
        """Leave the ranks to themselves for so long."""
        self.take_until(lambda: False, seconds)

    def _take(self, happening: Happening) -> None:
        rank, message = happening.slot.rank, happening.message
        number, since = self._open.get(rank, (0, 0.0))
        if isinstance(message, Exit) and number:
            del self._open[rank]
            now = time.monotonic()
            self._told[rank] = Told("ended", str(message), now - since, now)
        elif isinstance(message, Answer) and message.number == number:
            del self._open[rank]
            if message.error is None:
                self._told[rank] = Told("ok", "ok", message.seconds, message.at_s, message.value)
            else:
                self._told[rank] = self._raised(message)

    def _raised(self, answer: Answer) -> Told:
        """The error's first sentence without places; how late it came, where that is later than promised."""
        text = shortened(str(answer.error))
        is_late = answer.seconds > self._timeout_s + _LATE_S
        if is_late:
            text += f"; after {answer.seconds:.1f} s, though its timeout was {self._timeout_s:g} s"
        return Told("error", text, answer.seconds, answer.at_s, is_late=is_late)

    # --- faults

    def kill(self, *ranks: int) -> None:
        """SIGKILL, and wait until they are gone."""
        for rank in ranks:
            os.kill(self._slots.slots[rank].pid, signal.SIGKILL)
        gone = self._slots.slots
        self.take_until(lambda: all(gone[rank].exit is not None for rank in ranks), self.deadline_s)

    def stop(self, rank: int) -> None:
        """SIGSTOP: it stays, and does nothing."""
        os.kill(self._slots.slots[rank].pid, signal.SIGSTOP)

    def wake(self, rank: int) -> None:
        """SIGCONT."""
        os.kill(self._slots.slots[rank].pid, signal.SIGCONT)

    # --- membership

    def fresh_uuid(self) -> int:
        """One that nobody has used."""
        return next(self._uuids)

    def handles(self, ranks: Iterable[int]) -> list[str]:
        """Handles as they are now, in the order of ``ranks``."""
        return list(self.must(ranks, "handle").values())

    def begin(self) -> list[str]:
        """All ranks join and form their first group; returns the handles that they have in it.

        Raises:
            MeasurementError: that failed.
        """
        everybody = range(self.nranks)
        first = list(self.must(everybody, "join").values())
        self.must(everybody, "reconfigure", uuid=self.fresh_uuid(), handles=first)
        if self.sum_faults(everybody):
            raise MeasurementError("the first sums of a fresh group are wrong")
        return self.handles(everybody)

    def sum_faults(self, ranks: Iterable[int]) -> dict[int, str]:
        """What is wrong with an all_reduce over these ranks, by rank; empty where nothing is.

        Rank r gives 2**r, so the sum tells exactly who took part.
        """
        members = list(ranks)
        for rank in members:
            self.tell(rank, "reduce", number=1 << rank)
        expected = float(sum(1 << rank for rank in members))
        return {
            rank: one.text if one.kind != "ok" else f"the sum is {one.value:g}, not {expected:g}"
            for rank, one in self.await_all(members).items()
            if one.kind != "ok" or one.value != expected
        }

    def recovers(self, ranks: Sequence[int]) -> bool:
        """Whether these ranks form a group with fresh handles and a fresh uuid, and their sums are right."""
        told = self.ask(ranks, "handle")
        if any(one.kind != "ok" for one in told.values()):
            return False
        handles = [told[rank].value for rank in ranks]
        joined = self.ask(ranks, "reconfigure", uuid=self.fresh_uuid(), handles=handles)
        return all(one.kind == "ok" for one in joined.values()) and not self.sum_faults(ranks)


def agree(told: Mapping[int, Told]) -> bool:
    """Whether all ranks were told the same in time: all that it went well, or all that it did not."""
    same = {one.kind for one in told.values()} in ({"ok"}, {"error"})
    return same and not any(one.is_late for one in told.values())
