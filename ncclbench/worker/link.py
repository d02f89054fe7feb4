"""A worker's line to its supervisor."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any


class Link:
    """Rank 0 speaks for all workers; the others only listen to it over the control plane.

    The supervisor answers every message when it has dealt with it, so that a worker can wait until
    nobody works beside its clock.
    """

    def __init__(self, pipe: Connection, speaks: bool) -> None:
        self._pipe = pipe
        self._speaks = speaks
        self._unanswered = 0

    def tell(self, message: Any) -> None:
        """Rank 0: tell the supervisor, without waiting."""
        if self._speaks:
            self._pipe.send(message)
            self._unanswered += 1

    def answer(self) -> Any:
        """Rank 0: the supervisor's answer to the oldest message without one; None elsewhere."""
        if not self._speaks:
            return None
        self._unanswered -= 1
        return self._pipe.recv()

    def ask(self, message: Any) -> Any:
        """Rank 0: the answer to this very message; None elsewhere."""
        self.settle()
        self.tell(message)
        return self.answer()

    def settle(self) -> None:
        """Wait for all answers; other ranks wait for rank 0 in the next fence."""
        while self._unanswered:
            self.answer()
