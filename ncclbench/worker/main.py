"""A worker: one rank, from the fork to the last sample. Runs in a process of its own."""

from __future__ import annotations

import os
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from ncclbench.environment.collect import collect, merge
from ncclbench.plan.memory import PATTERN_BYTES
from ncclbench.plan.model import Arm, Case, Plan
from ncclbench.plan.schedule import creation_order, split_iterations, visit_order
from ncclbench.store.model import Unit
from ncclbench.tables.backends import find_backend
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE, Gate, Place
from ncclbench.worker.buffers import Pool
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.device import CpuDevice, Device
from ncclbench.worker.fence import Fence, make_fence
from ncclbench.worker.groups import (
    ArmGroup,
    close_group,
    device_kind,
    open_group,
    prepare_environment,
    why_unavailable,
)
from ncclbench.worker.patterns import Pattern
from ncclbench.worker.probe import first_line, probe
from ncclbench.worker.protocol import WorkerTask
from ncclbench.worker.visit import CaseRunner, Visit

# The supervisor's deadline must come first: it can name the rank, the libraries' timeouts cannot.
_LIBRARY_TIMEOUT_FACTOR = 1.5
_LIBRARY_TIMEOUT_EXTRA_S = 15.0

_FENCE_SAMPLES = 40


def run_worker(task: WorkerTask, store: Any, pipe: Connection, place: Place, gate: Gate | None) -> None:
    """Do the task; tell the supervisor how it ended.

    Args:
        store: a torch store that all workers of this launch share and nobody else uses.
        pipe: to the supervisor.
        place: this worker's progress.
        gate: where one supervisor has forked all ranks.
    """
    try:
        Worker(task, store, pipe, place, gate).run()
        pipe.send(protocol.Done())
    except Exception as error:  # everything a backend may raise must reach the supervisor as words
        pipe.send(protocol.Raised(first_line(error), type(error).__name__, traceback.format_exc()))


class _Stopped(Exception):
    """The supervisor has said not to go on."""


class Worker:
    """One rank's part in a run."""

    def __init__(
        self, task: WorkerTask, store: Any, pipe: Connection, place: Place, gate: Gate | None
    ) -> None:
        self._task = task
        self._pipe = pipe
        self._place = place
        self._gate = gate
        self._library_timeout_s = task.timeout_s * _LIBRARY_TIMEOUT_FACTOR + _LIBRARY_TIMEOUT_EXTRA_S
        plan = task.plan
        prepare_environment(task.one_host, plan is not None and plan.share_gpu, _ranks_per_gpu(task))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // task.local_ranks))
        place.step()
        self._control = ControlPlane(store, task.rank, task.nranks, self._library_timeout_s)
        place.step()
        self._devices: dict[str, Device] = {}
        self._pools: dict[str, Pool] = {}
        self._patterns: dict[tuple[str, str | None, str, bool], Pattern] = {}
        self._runners: dict[tuple[str, str], CaseRunner] = {}
        self._unsettled = 0

    def run(self) -> None:
        """Describe the environment; with a plan and the supervisor's consent, measure."""
        kinds = {} if self._task.plan is None else {arm.id: _kind_of(arm) for arm in self._task.plan.arms}
        device_name = "cuda" if "cuda" in kinds.values() or self._wants_cuda() else "cpu"
        hosts = self._describe(device_name)
        if self._task.plan is None:
            return
        if not self._ask_supervisor():
            return
        self._control.synchronise_clocks(hosts)
        fence = make_fence(self._gate, self._control)
        self._judge(fence)
        self._measure(self._task.plan, fence)

    def _wants_cuda(self) -> bool:
        return self._task.plan is None and torch.cuda.is_available()

    def _describe(self, device_name: str) -> list[int]:
        """Tell rank 0 about this rank; returns which ranks share a host, by number."""
        device = "cpu"
        if device_name == "cuda" and torch.cuda.device_count() > 0:
            device = f"cuda:{self._device('cuda').torch_device.index}"
        mine = collect(self._task.rank, self._task.local_rank, device)
        everybody = self._control.gather(mine)
        hosts: list[int] = []
        if everybody is not None:
            environment = merge(everybody)
            hosts = [entry["host"] for entry in environment["ranks"]]
            self._pipe.send(protocol.Described(environment))
        return list(self._control.share(hosts))

    def _ask_supervisor(self) -> bool:
        """Whether rank 0's supervisor wants the measurement to go on; the same on every rank."""
        return bool(self._control.share(self._pipe.recv() if self._task.rank == 0 else None))

    def _tell(self, message: Any) -> None:
        """Rank 0: tell the supervisor, which answers when it has dealt with it (see ``_settle``)."""
        if self._task.rank == 0:
            self._pipe.send(message)
            self._unsettled += 1

    def _judge(self, fence: Fence) -> None:
        """Measure how far apart ranks leave the fence."""
        left = np.zeros(_FENCE_SAMPLES, dtype=np.int64)
        for index in range(_FENCE_SAMPLES):
            fence()
            left[index] = time.perf_counter_ns() + self._control.clock_offset_ns
        everybody = self._control.gather_array(left)
        if everybody is not None:
            skew_us = np.ptp(np.stack(everybody), axis=0) / 1e3
            self._tell(
                protocol.FenceQuality(
                    fence.kind,
                    float(np.median(skew_us)),
                    float(np.quantile(skew_us, 0.95)),
                    self._control.clock_error_ns / 1e3,
                )
            )

    def _device(self, kind: str) -> Device:
        if kind not in self._devices:
            if kind == "cuda":
                from ncclbench.worker.cuda import CudaDevice, device_index

                self._devices[kind] = CudaDevice(
                    device_index(self._task.local_rank, torch.cuda.device_count())
                )
            else:
                self._devices[kind] = CpuDevice()
        return self._devices[kind]

    def _measure(self, plan: Plan, fence: Fence) -> None:
        self._fence = fence
        ready = self._ready_arms(plan)
        if not ready:
            return
        devices = {arm.id: self._device(_kind_of(arm)) for arm in ready}
        for device in devices.values():
            if device.kind not in self._pools:
                nbytes = max(1, plan.bytes_per_rank - PATTERN_BYTES)
                self._pools[device.kind] = Pool(nbytes, device.torch_device)
                self._place.step()
        refused: dict[str, dict[str, str]] = {}
        for arm in ready:
            refused[arm.id] = self._probe(arm, plan, devices[arm.id])
        spent_s: dict[str, float] = {}
        for epoch in self._task.epochs:
            self._epoch(epoch, plan, ready, devices, refused, spent_s)
        self._settle()
        self._control.close()

    def _ready_arms(self, plan: Plan) -> list[Arm]:
        """The arms that can be built on every rank; what each one is, or why it is not there, is told."""
        ready = []
        for arm in plan.arms:
            reason = why_unavailable(arm)
            implementation = None
            if reason is None:
                try:
                    group = open_group(arm, self._device(_kind_of(arm)), self._library_timeout_s)
                    implementation = group.implementation
                except Exception as error:  # which types a missing backend raises differs by version
                    reason = first_line(error)
                self._place.step()
            failed = self._control.maximum(int(reason is not None))[0]
            if failed:
                reasons = self._control.gather(reason)
                reason = self._control.share(next(text for text in reasons if text) if reasons else None)
                implementation = None
            elif implementation is not None:
                close_group(group)
                ready.append(arm)
            kind = _kind_of(arm) if implementation is not None else None
            self._tell(protocol.ArmReady(arm.id, kind, implementation, reason))
        return ready

    def _probe(self, arm: Arm, plan: Plan, device: Device) -> dict[str, str]:
        """Cases that the arm does not take, with the reason."""

        def runner(case: Case) -> CaseRunner:
            return self._runner(case, plan, device)

        self._place.enter(NOWHERE, plan.arms.index(arm), NOWHERE)
        cases = plan.planned
        refused = probe(arm, cases, runner, self._control, device, self._library_timeout_s, self._place.step)
        if refused:
            self._tell(protocol.Settled(arm.id, refused))
        return refused

    def _runner(self, case: Case, plan: Plan, device: Device) -> CaseRunner:
        def patterns(timed: bool) -> Pattern:
            timed = timed and case.redop == "prod"
            key = (case.dtype, case.redop, device.kind, timed)
            if key not in self._patterns:
                self._patterns[key] = Pattern(
                    case.dtype, case.redop, case.nranks, plan.seed, device.torch_device, timed
                )
            return self._patterns[key]

        pool = self._pools[device.kind]
        k = self._task.batches.get(case.key)
        return CaseRunner(case, plan, self._control, self._fence, device, pool, patterns, k)

    def _epoch(
        self,
        epoch: int,
        plan: Plan,
        ready: list[Arm],
        devices: dict[str, Device],
        refused: dict[str, dict[str, str]],
        spent_s: dict[str, float],
    ) -> None:
        groups: dict[str, ArmGroup] = {}
        for index in creation_order(len(plan.arms), plan.seed, epoch):
            arm = plan.arms[index]
            if arm in ready:
                self._place.enter(NOWHERE, index, epoch)
                groups[arm.id] = open_group(arm, devices[arm.id], self._library_timeout_s)
                self._tell_cold(arm, epoch, groups[arm.id])
        for number, case in enumerate(plan.planned):
            arms = [arm for arm in ready if case.key not in refused[arm.id]]
            done = [(case.key, arm.id, epoch) in self._task.done for arm in arms]
            if not arms or all(done) or self._over_budget(case, plan, spent_s):
                continue
            before = time.monotonic()
            self._case(number, case, epoch, plan, arms, groups, devices)
            spent_s[case.key] = spent_s.get(case.key, 0.0) + time.monotonic() - before
        self._place.enter(NOWHERE, NOWHERE, epoch)
        for group in groups.values():
            close_group(group)
            self._place.step()

    def _over_budget(self, case: Case, plan: Plan, spent_s: dict[str, float]) -> bool:
        """Whether the case has had its time; rank 0 decides, after at least one epoch."""
        if plan.time_budget_s is None or case.key not in spent_s:
            return False
        return bool(self._control.share(spent_s[case.key] >= plan.time_budget_s))

    def _tell_cold(self, arm: Arm, epoch: int, group: ArmGroup) -> None:
        costs = self._control.gather_array(
            np.array([round(group.init_us * 1e3), round(group.first_op_us * 1e3)], dtype=np.int64)
        )
        if costs is not None:
            init_us = [float(cost[0]) / 1e3 for cost in costs]
            first_op_us = [float(cost[1]) / 1e3 for cost in costs]
            self._tell(protocol.Cold(arm.id, epoch, init_us, first_op_us))

    def _case(
        self,
        number: int,
        case: Case,
        epoch: int,
        plan: Plan,
        arms: list[Arm],
        groups: dict[str, ArmGroup],
        devices: dict[str, Device],
    ) -> None:
        """All visits of one case in one epoch, then everybody's samples to rank 0 and to disk."""
        order = visit_order(len(arms), plan.seed, epoch, case.key)
        per_arm = order.count(0)
        operations = split_iterations(plan.iters_in_epoch(epoch), per_arm)
        visits: dict[str, list[Visit]] = {arm.id: [] for arm in arms}
        k: int | None = None
        for index in order:
            arm = arms[index]
            self._place.enter(number, plan.arms.index(arm), epoch)
            runner = self._case_runner(case, plan, devices[arm.id])
            runner.k = runner.k or k
            nth = len(visits[arm.id])
            visits[arm.id].append(
                runner.visit(groups[arm.id].group, operations[nth], nth == 0, self._place.step, self._settle)
            )
            k = runner.k
        turns = {
            arm.id: tuple(turn for turn, index in enumerate(order) if arms[index] is arm) for arm in arms
        }
        units = self._gather_units(case, epoch, arms, devices, visits, turns, plan)
        self._tell(protocol.Measured(case.key, epoch, units))

    def _settle(self) -> None:
        """Wait until the supervisor has done with all it was told, so that it works beside no clock.

        Other ranks wait for rank 0 in the next fence.
        """
        while self._unsettled:
            self._pipe.recv()
            self._unsettled -= 1

    def _case_runner(self, case: Case, plan: Plan, device: Device) -> CaseRunner:
        key = (case.key, device.kind)
        if key not in self._runners:
            self._runners[key] = self._runner(case, plan, device)
        return self._runners[key]

    def _gather_units(
        self,
        case: Case,
        epoch: int,
        arms: list[Arm],
        devices: dict[str, Device],
        visits: dict[str, list[Visit]],
        turns: dict[str, tuple[int, ...]],
        plan: Plan,
    ) -> list[Unit]:
        """Rank 0: one unit per arm with every rank's samples; elsewhere an empty list."""
        packed = [_pack(visits[arm.id], self._control.clock_offset_ns) for arm in arms]
        everybody = self._control.gather_array(np.concatenate(packed))
        units: list[Unit] = []
        if everybody is None:
            return units
        cuts = np.cumsum([len(mine) for mine in packed])[:-1]
        of_arms = np.split(np.stack(everybody), cuts, axis=1)
        unpacked = [(parts[:, 0], parts[:, 1:].reshape(len(parts), 4, -1)) for parts in of_arms]
        first_ns = min(int(times[:, 0].min()) for _, times in unpacked)
        for arm, (wrong, times_ns) in zip(arms, unpacked, strict=True):
            times_ns[:, 0] -= first_ns
            starts, launches, on_device, totals = times_ns.transpose(1, 0, 2) / 1e3
            units.append(
                Unit(
                    case=case.key,
                    arm=arm.id,
                    epoch=epoch,
                    attempt=self._task.attempt,
                    k=visits[arm.id][0].k,
                    start_us=starts,
                    launch_us=launches,
                    device_us=on_device if devices[arm.id].has_device_clock else None,
                    total_us=totals,
                    visits=tuple(len(visit.samples.start) for visit in visits[arm.id]),
                    turns=turns[arm.id],
                    wrong=tuple(int(count) for count in wrong) if plan.check and case.nbytes else None,
                )
            )
        return units


def _pack(visits: list[Visit], clock_offset_ns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One rank's samples of one arm as one array: wrong elements, then start, launch, device, total."""
    rows = []
    for visit in visits:
        samples = visit.samples
        on_device = samples.device if samples.device is not None else np.zeros_like(samples.start)
        rows.append(np.stack([samples.start + clock_offset_ns, samples.launch, on_device, samples.total]))
    wrong = sum(visit.wrong for visit in visits)
    return np.concatenate([[wrong], np.concatenate(rows, axis=1).ravel()]).astype(np.int64)


def _kind_of(arm: Arm) -> str:
    return device_kind(find_backend(arm.backend))


def _ranks_per_gpu(task: WorkerTask) -> int:
    from ncclbench.environment.gpu import count_gpus

    gpus = count_gpus()
    return max(1, task.local_ranks // gpus) if gpus else 1
