"""The process groups of the arms of a point-to-point run: one each, made anew when asked for."""

from __future__ import annotations

from typing import Any

from ncclbench.plan.model import Arm
from ncclbench.worker.groups import ArmGroup, close_group, kind_of, open_group, why_unavailable
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs.bench import Bench


class Groups:
    """The groups that the arms have now.

    Attributes:
        arms: all that were asked for, also those that cannot be had.
    """

    def __init__(self, bench: Bench, arms: list[Arm]) -> None:
        self.arms = arms
        self._bench = bench
        self._groups: dict[int, ArmGroup] = {}

    def run(self, order: dict[str, Any]) -> dict[int, list[str | None]]:
        """Fresh groups for an epoch, in the order given.

        Args:
            order: ``arms``: indices, in the order of making them.

        Returns:
            by index: implementation, kind of device, and why the arm cannot be had.
        """
        self.close()
        return {index: self._describe(index) for index in order["arms"]}

    def _describe(self, index: int) -> list[str | None]:
        arm = self.arms[index]
        reason = why_unavailable(arm)
        if reason is None:
            try:
                self._groups[index] = self.make(index, measure_first=True)
            except Exception as error:  # which types a missing backend raises differs by version
                reason = first_line(error)
            self._bench.place.step()
        reason = self._bench.control.first_reason(reason)
        if reason is not None:
            self._groups.pop(index, None)
            return [None, None, reason]
        return [self._groups[index].implementation, kind_of(arm), None]

    def make(self, index: int, measure_first: bool) -> ArmGroup:
        """A group of the arm that nobody else has; ``measure_first``: with its first collective."""
        arm = self.arms[index]
        return open_group(arm, self._bench.device(arm), self._bench.timeout_s, measure_first)

    def get(self, index: int) -> Any:
        """The arm's group of this epoch."""
        return self._groups[index].group

    def close(self) -> None:
        """End all groups, in the same order on every rank."""
        for index in sorted(self._groups):
            close_group(self._groups.pop(index))
