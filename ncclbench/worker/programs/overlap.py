"""Overlap of communication and compute: fresh groups for each epoch, then case by case what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ncclbench.kernels import KINDS, Kernel, Shape, make_kernel, why_unavailable, with_length
from ncclbench.plan.memory import pool_bytes
from ncclbench.plan.model import Case, Plan
from ncclbench.plan.schedule import creation_order, part_orders
from ncclbench.store.overlaps import PARTS
from ncclbench.units import format_seconds
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.buffers import Pool
from ncclbench.worker.groups import ArmGroup, close_group, open_group
from ncclbench.worker.operation import Operation
from ncclbench.worker.overlapped import Block, Overlapped
from ncclbench.worker.patterns import Patterns
from ncclbench.worker.probe import probe
from ncclbench.worker.programs.bench import Bench


def run(bench: Bench, request: dict[str, Any]) -> None:
    """One order after the other until no more come.

    Args:
        request: ``plan``: a plan whose cases and arms the orders refer to by number; ``stages``: "probing",
            "opening" and "measuring", in the order in which progress counts them.
    """
    overlap = _Overlap(bench, Plan.from_json(request["plan"]))
    names = list(request["stages"])
    stages: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
        "probing": overlap.probe,
        "opening": overlap.open,
        "measuring": overlap.measure,
    }
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(names.index(order["stage"]), 0, order.get("epoch", NOWHERE))
        found = stages[order["stage"]](order)
        if found is None:  # an arm cannot be had, which the supervisor knows
            return
        bench.tell(order["stage"], found)
    overlap.close()


class _Overlap:
    """One rank's part in it."""

    def __init__(self, bench: Bench, plan: Plan) -> None:
        self._bench = bench
        self._plan = plan
        # Arms share their buffers, so all are on one device.
        self._device = bench.device(plan.arms[0])
        self._fence = bench.fence()
        nbytes = pool_bytes(plan)
        self._pool = Pool(nbytes, self._device.torch_device)
        self._patterns = Patterns(plan.seed)
        self._operations: dict[str, Operation] = {}
        self._kernels: dict[tuple[str, int | None], Kernel] = {}
        self._groups: dict[str, ArmGroup] = {}

    def probe(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """What an arm takes, and what the device computes with.

        Args:
            order: ``arm``: number of the arm.

        Returns:
            ``refused``: reasons by case key; ``kernels``: why there are none, or None;
            ``multiprocessors``: of the GPU, None on a CPU. None where the arm cannot be had.
        """
        bench, arm = self._bench, self._plan.arms[order["arm"]]
        group = bench.open(arm)
        if group is None:
            return None
        close_group(group)
        refused = probe(
            self._plan.planned,
            self._made,
            bench.control,
            lambda: open_group(arm, self._device, bench.timeout_s, measure_first=False),
            bench.place.step,
        )
        return {
            "refused": refused,
            "kernels": bench.control.first_reason(why_unavailable(self._device.kind)),
            "multiprocessors": self._multiprocessors(),
        }

    def open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Fresh groups for every arm; order: ``epoch``."""
        self.close()
        for index in creation_order(len(self._plan.arms), self._plan.seed, order["epoch"]):
            arm = self._plan.arms[index]
            self._bench.place.step()
            self._groups[arm.id] = open_group(arm, self._device, self._bench.timeout_s)
        return {}

    def close(self) -> None:
        """End the groups there are."""
        for group in self._groups.values():
            self._bench.place.step()
            close_group(group)
        self._groups.clear()

    def measure(self, order: dict[str, Any]) -> dict[str, Any]:
        """One case in one epoch.

        Args:
            order: ``arm``, ``case``: numbers; ``compute``, ``free_sms``, ``mode``: as in OverlapCase;
                ``length`` of the kernel, None where it has not been calibrated; ``ratio``: how long it
                should take, times the communication; ``epoch``; ``repetitions``.

        Returns:
            ``reason``: of the first rank on which it could not be, and no more; else None. ``length``,
            ``order`` and ``implementation`` as in OverlapTimes; on rank 0 ``found``, shape (nranks,
            len(PARTS) + 4, repetitions): as ``Block.times_us``, then ``wrong`` and ``compute_wrong``.
        """
        bench, arm, case = self._bench, self._plan.arms[order["arm"]], self._plan.planned[order["case"]]
        group = self._groups[arm.id]
        side = Overlapped(
            self._operation(case), group.group, self._device, self._fence, bench.control, bench.place.step
        )
        wrong = side.warm_up()
        kernel = self._kernel(order["compute"], order["free_sms"])
        if order["length"] is None:
            comm_us = side.comm_us()
            compute_us = order["ratio"] * comm_us
            reason = too_long(comm_us, compute_us, self._plan.timeout_s)
            if reason is not None:
                return {"reason": reason}
            kernel = side.calibrated(kernel, compute_us)
        else:
            kernel = with_length(kernel, order["length"])
        self._kernels[order["compute"], order["free_sms"]] = kernel
        key = f"{case.key}/{arm.id}/{order['compute']}/{order['free_sms']}/{order['mode']}"
        parts = part_orders(PARTS, self._plan.seed, order["epoch"], key, order["repetitions"])
        bench.link.settle()
        block = (side.graph if order["mode"] == "graph" else side.eager)(kernel, parts)
        return {
            "reason": block if isinstance(block, str) else None,
            "length": kernel.shape.length,
            "order": parts,
            "implementation": group.implementation,
            "found": None if isinstance(block, str) else bench.gather(_packed(block, wrong)),
        }

    def _operation(self, case: Case) -> Operation:
        """The case's operation: kept over epochs, as its slots take turns."""
        if case.key not in self._operations:
            self._operations[case.key] = self._made(case)
        return self._operations[case.key]

    def _made(self, case: Case) -> Operation:
        patterns = self._patterns.of(case, self._device.torch_device)
        return Operation(case, self._plan.seed, self._bench.rank, self._device, self._pool, patterns)

    def _kernel(self, kind: str, free_sms: int | None) -> Kernel:
        """The kernel, compiled; the one that was used last, which alone may be launched or made anew."""
        if (kind, free_sms) not in self._kernels:
            multiprocessors = self._multiprocessors()
            shape = None
            if multiprocessors is not None and free_sms:
                usual = KINDS[kind].defaults["cuda"]
                shape = Shape(multiprocessors - free_sms, usual.threads, usual.length)
            on_gpu = self._device.torch_device if self._device.kind == "cuda" else None
            kernel = make_kernel(kind, self._device.kind, shape, torch_device=on_gpu, seed=self._plan.seed)
            self._bench.place.step()
            kernel.compile()
            self._bench.place.step()
            self._kernels[kind, free_sms] = kernel
        return self._kernels[kind, free_sms]

    def _multiprocessors(self) -> int | None:
        if self._device.kind != "cuda":
            return None
        # Not imported for a CPU.
        from ncclbench.kernels.cuda import multiprocessors

        count: int = multiprocessors(self._device.torch_device)
        return count


def too_long(comm_us: float, compute_us: float, timeout_s: float) -> str | None:
    """Why one after the other would be taken for a hang, the same on every rank; None where not.

    Progress is told between parts only, and a kernel that is being calibrated may last longer than wanted.
    """
    seconds = (comm_us + compute_us) / 1e6
    if 2 * seconds <= timeout_s:
        return None
    return (
        f"communication takes {format_seconds(comm_us / 1e6)} and compute would take "
        f"{format_seconds(compute_us / 1e6)}, too near to --timeout {format_seconds(timeout_s)}: "
        f"give --timeout {math.ceil(4 * seconds)}s, a smaller --compute-ratio or smaller sizes"
    )


def _packed(block: Block, wrong: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    told = np.full((2, block.times_us.shape[1]), [[wrong + block.wrong], [block.compute_wrong]], dtype=float)
    return np.concatenate([block.times_us, told])
