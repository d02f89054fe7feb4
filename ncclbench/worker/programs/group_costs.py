"""What so many groups cost: made, used, and destroyed, in processes that have made none before."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.plan.model import Arm
from ncclbench.plan.pairs import Round, tournament
from ncclbench.tables.groups import MOMENTS
from ncclbench.worker.communicators import NcclLog, communicators
from ncclbench.worker.compat import check_splits, implementation_of, split_group_of
from ncclbench.worker.cuts import Part, place_in
from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.footprint import Footprint, begin_peak, footprint, raise_open_files, settled
from ncclbench.worker.groups import open_group, why_unavailable
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs.bench import Bench

# Of first messages: in a group of thousands the first rounds show what a peer costs.
MOST_ROUNDS = 16

# Rows of the times that are gathered; those of the first messages follow, one per round.
NEW, FIRST, LATER, DESTROY, SUSPEND, RESUME = range(6)
_ROWS = 6


def _nothing() -> None:
    """Of a rank without a group, and of a torch without suspend."""


class Costs:
    """One rank's part in it, once in its life."""

    def __init__(self, bench: Bench, fence: Fence, arms: list[Arm]) -> None:
        self._bench = bench
        self._fence = fence
        self._arms = arms

    def run(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Make so many groups, use each, end each.

        Args:
            order: ``arm``: its index; ``way``: name in MAKINGS; ``kind``: name of the cut, ``cut``: its
                groups; ``groups``: how many each rank is in.

        Returns:
            on rank 0: ``reason`` why it cannot be, and whether the whole arm is ``missing``; where it can:
            ``implementation``, ``device``, ``times`` (shape (6 + rounds, groups), the slowest rank's,
            microseconds), ``suspends``, ``peers``, ``readings`` (by rank, in the order of MOMENTS),
            ``communicators`` (by rank) and ``counted``. None on other ranks.
        """
        bench, arm = self._bench, self._arms[order["arm"]]
        raise_open_files()
        reason = bench.control.first_reason(why_unavailable(arm))
        if reason is not None:
            return {"reason": reason, "missing": True}
        device = bench.device(arm)
        log = NcclLog() if device.kind == "cuda" else None
        cut = tuple(tuple(ranks) for ranks in order["cut"])
        part = place_in(order["kind"], cut, bench.rank, bench.nranks)
        cell = _Cell(bench, self._fence, arm, device, part, log)
        try:
            make = cell.maker(order["way"])
        except Exception as error:  # which types a missing backend raises differs by version
            make, reason = None, first_line(error)
        reason = bench.control.first_reason(reason)
        if reason is not None or make is None:
            return {"reason": reason, "missing": order["way"] == "new_group"}
        return cell.measured(order["way"], make, order["groups"])


class _Cell:
    """The groups of one rank, and what was read of it."""

    def __init__(
        self, bench: Bench, fence: Fence, arm: Arm, device: Device, part: Part, log: NcclLog | None
    ) -> None:
        self._bench = bench
        self._fence = fence
        self._arm = arm
        self._device = device
        self._part = part
        self._log = log
        self._groups: list[Any] = []
        # Touches the device: its context is none of the groups' cost.
        self._one = torch.ones(1, device=device.torch_device)
        self._device.synchronize()
        size = len(part.ranks)
        self._rounds: list[Round] = list(islice(tournament(size), MOST_ROUNDS)) if size > 1 else []

    def maker(self, way: str) -> Callable[[], Any]:
        """What makes one group of this rank; on the way its parent is made, where it takes one.

        Raises:
            Exception: the group cannot be split, or whatever the backend raises.
        """
        arm, device, timeout_s = self._arm, self._device, self._bench.timeout_s
        if way == "new_group":
            return lambda: open_group(arm, device, timeout_s, measure_first=False, part=self._part).group
        parent = open_group(arm, device, timeout_s)
        cut = self._part.groups or (self._part.ranks,)
        check_splits(parent.group, device.torch_device)
        return lambda: split_group_of(parent.group, cut, timeout_s)

    def measured(self, way: str, make: Callable[[], Any], count: int) -> dict[str, Any] | None:
        """All of it; None on ranks other than 0."""
        bench = self._bench
        rounds = self._most(len(self._rounds))
        times = np.zeros((_ROWS + rounds, count))
        gc.collect()
        begin_peak()
        made_before = None if self._log is None else self._log.made()
        readings = [footprint(self._device.torch_device)]
        reason = self._make_all(make, times[NEW])
        reason = bench.control.first_reason(reason)
        if reason is not None:
            return {"reason": reason, "missing": way == "new_group" and not self._groups}
        implementation = self._implementation()
        readings.append(self._reading())
        for row in (FIRST, LATER):
            self._each(times[row], self._collective)
        for number in range(rounds):
            pairs = self._rounds[number] if number < len(self._rounds) else ()
            self._each(times[_ROWS + number], partial(self._message, pairs))
        readings.append(self._reading())
        made = made_before, None if self._log is None else self._log.made()
        backends = self._backends()
        count_of, counted = communicators(backends, made, (readings[0], readings[-1]), self._met())
        del backends
        suspends = self._suspend(times)
        for index in range(count):
            times[DESTROY, index] = self._timed(lambda: self._end(self._groups[0]))
            del self._groups[0]
        gc.collect()
        readings.append(settled(self._device.torch_device, readings[0]))
        return self._told(times, readings, implementation, suspends, count_of, counted)

    def _make_all(self, make: Callable[[], Any], times: NDArray[np.float64]) -> str | None:
        """A rank that raises makes the others wait for it: whether all can was asked before."""
        try:
            for index in range(len(times)):
                times[index] = self._timed(lambda: self._groups.append(make()))
        except Exception as error:  # which types a missing backend raises differs by version
            return first_line(error)
        return None

    def _timed(self, act: Callable[[], Any]) -> float:
        """Microseconds on this rank, from the fence until the device has done it."""
        self._bench.place.step()
        self._fence()
        began = self._device.now_ns()
        act()
        self._device.synchronize()
        return (self._device.now_ns() - began) / 1e3

    def _each(self, times: NDArray[np.float64], act: Callable[[Any], None]) -> None:
        for index, group in enumerate(self._groups):
            times[index] = self._timed(partial(act, group))

    @property
    def _is_member(self) -> bool:
        return self._part.number is not None

    def _collective(self, group: Any) -> None:
        if self._is_member:
            dist.all_reduce(self._one, op=dist.ReduceOp.MAX, group=group)

    def _message(self, pairs: Round, group: Any) -> None:
        """The lower rank of each pair sends; nobody waits for two at once."""
        if not self._is_member:
            return
        for low, high in pairs:
            if self._part.rank == low:
                dist.send(self._one, group=group, group_dst=high)
            elif self._part.rank == high:
                dist.recv(self._one, group=group, group_src=low)

    def _met(self) -> int:
        return sum(self._part.rank in pair for pairs in self._rounds for pair in pairs)

    def _most(self, value: int) -> int:
        """Over all ranks: a rank in no group goes through as many rounds."""
        (most,) = self._bench.control.maximum(value)
        return most

    def _backends(self) -> list[Any]:
        where = self._device.torch_device
        return [group._get_backend(where) for group in self._groups] if self._is_member else []

    def _implementation(self) -> str:
        """Of the groups, told by the first rank that is in one."""
        mine = implementation_of(self._groups[0], self._device.torch_device) if self._is_member else None
        told = self._bench.control.gather(mine)
        return next((text for text in told or () if text), "")

    def _reading(self) -> Footprint:
        gc.collect()
        return footprint(self._device.torch_device, self._backends())

    def _suspend(self, times: NDArray[np.float64]) -> bool:
        """Give up and take again what each group's communicators hold, where the backend can."""
        backends = self._backends()
        for index in range(len(self._groups)):
            backend = backends[index] if self._is_member else None
            reason = None
            try:
                times[SUSPEND, index] = self._timed(getattr(backend, "suspend", _nothing))
            except RuntimeError as error:  # a backend without
                reason = first_line(error)
            if self._bench.control.first_reason(reason) is not None:
                return False
            times[RESUME, index] = self._timed(getattr(backend, "resume", _nothing))
        return any(hasattr(backend, "suspend") for backend in backends)

    def _end(self, group: Any) -> None:
        if self._is_member or group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)

    def _told(
        self,
        times: NDArray[np.float64],
        readings: list[Footprint],
        implementation: str,
        suspends: bool,
        count: int | None,
        counted: str,
    ) -> dict[str, Any] | None:
        gathered = self._bench.gather(times)
        everybody = self._bench.control.gather((readings, count, suspends, counted))
        if gathered is None or everybody is None:
            return None
        counts = [entry[1] for entry in everybody]
        return {
            "reason": None,
            "implementation": implementation,
            "device": self._device.kind,
            "times": gathered.max(axis=0),
            "suspends": any(entry[2] for entry in everybody),
            "peers": times.shape[0] - _ROWS,
            "readings": [[entry[0][moment] for entry in everybody] for moment in range(len(MOMENTS))],
            "communicators": None if None in counts else counts,
            "counted": next((entry[3] for entry in everybody if entry[1]), counted),
        }
