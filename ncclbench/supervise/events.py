"""What a running measurement tells whoever shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ncclbench.plan.model import Case, Plan
from ncclbench.store.model import Stop, Unit


class Listener(Protocol):
    """Called by the supervisor of rank 0, never while anything is being timed."""

    def started(
        self, folder: Path, plan: Plan, environment: dict[str, Any], preflight: Sequence[dict[str, Any]]
    ) -> None:
        """Workers are up, the environment of every rank is known; ``preflight`` as in run.json."""

    def settled(self, case: str, arm: str, status: str, reason: str) -> None:
        """A case will not be measured on an arm: "skipped", "unavailable" or "failed", and why."""

    def measured(self, case: Case, epoch: int, units: Sequence[Unit], seconds: float) -> None:
        """One case in one epoch is measured on all arms that take it, and safely on disk."""

    def stopped(self, case: Case, stop: Stop) -> None:
        """A case gets no more epochs."""

    def note(self, text: str) -> None:
        """One line worth reading."""

    def ended(self) -> None:
        """Nothing more will come; called once on every way out."""


class Silent:
    """A listener that shows nothing: for ranks other than 0 and for tests."""

    def started(
        self, folder: Path, plan: Plan, environment: dict[str, Any], preflight: Sequence[dict[str, Any]]
    ) -> None: ...

    def settled(self, case: str, arm: str, status: str, reason: str) -> None: ...

    def measured(self, case: Case, epoch: int, units: Sequence[Unit], seconds: float) -> None: ...

    def stopped(self, case: Case, stop: Stop) -> None: ...

    def note(self, text: str) -> None: ...

    def ended(self) -> None: ...
