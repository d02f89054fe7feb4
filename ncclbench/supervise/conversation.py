"""A launch whose workers do stage after stage, each ordered by what the former ones have found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from ncclbench.errors import RequestError
from ncclbench.supervise.launch import Assignment, Job, launch
from ncclbench.supervise.slots import Slot
from ncclbench.worker import protocol

Answer = TypeVar("Answer")

# Yields what the workers are to do next, is sent what they found, and returns what came of it.
Orders = Generator[dict[str, Any], Any, Answer]

# Told of the environment of every rank before anything is measured; a line where that forbids it.
Consent = Callable[[dict[str, Any]], str | None]


class Conversation(Generic[Answer]):
    """Rank 0's side of a program; the other supervisors follow it as they follow a sweep."""

    def __init__(
        self,
        job: Job,
        program: protocol.Program,
        timeout_s: float,
        consent: Consent,
        flight: str | None = None,
    ) -> None:
        """A conversation that has not begun.

        Args:
            timeout_s: after so long without progress a rank is called hung.
            flight: as in ``Assignment``.
        """
        self._job = job
        self._program = program
        self._timeout_s = timeout_s
        self._consent = consent
        self._flight = flight
        self._orders: Orders[Answer]
        self._found: Any = None
        self._answers: list[Answer] = []
        self._refusal: str | None = None

    def hold(self, orders: Callable[[dict[str, Any]], Orders[Answer]]) -> Answer:
        """Go through all stages.

        Args:
            orders: of the environment.

        Raises:
            RequestError: the environment forbids it, or the arm cannot be had.
            Interrupted, MeasurementError: a signal came, or a rank died or hung.
        """
        self._make_orders = orders
        number = next(self._job.launches)
        assignment = Assignment(
            number=number,
            plan=None,
            batches={},
            attempt=0,
            timeout_s=self._timeout_s,
            program=self._program,
            flight=self._flight,
        )
        if self._job.seat is not None:
            self._job.meeting.publish(f"assignment/{number}", assignment.to_json())
        launch(self._job, assignment, self._answer, None)
        if self._refusal is not None:
            raise RequestError(self._refusal)
        return self._answers[0]

    def _answer(self, slot: Slot, message: Any) -> None:
        reply = self._take(message)
        if slot.pipe is not None:
            with contextlib.suppress(OSError):  # it may have died meanwhile, which is noticed elsewhere
                slot.pipe.send(reply)

    def _take(self, message: Any) -> Any:
        match message:
            case protocol.Described():
                self._refusal = self._consent(message.environment)
                if self._refusal is None:
                    self._orders = self._make_orders(message.environment)
                return self._refusal is None
            case protocol.ArmReady(reason=str() as reason):
                self._refusal = f"{message.arm} cannot be had here: {reason} (--backends gloo runs anywhere)"
            case protocol.Found():
                self._found = message.data
            case protocol.Ready():
                return self._next()
        return True

    def _next(self) -> dict[str, Any] | None:
        found, self._found = self._found, None
        try:
            return self._orders.send(found)
        except StopIteration as end:
            self._answers.append(end.value)
            return None
