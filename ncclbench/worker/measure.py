"""A plan carried out on one rank: which arms are there, what they take, and epoch by epoch the cases."""

from __future__ import annotations

import time

import numpy as np

from ncclbench.plan.memory import pool_bytes
from ncclbench.plan.model import Arm, Case, Plan
from ncclbench.plan.orders import Order, Orders
from ncclbench.plan.schedule import creation_order, split_iterations, visit_order, visit_step
from ncclbench.tables.settings import TIER_OF_HOST, TIER_OF_LEADERS
from ncclbench.tables.statistics import DEFAULT_STATISTIC, STATISTICS
from ncclbench.tables.topologies import WORLD
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE, Place
from ncclbench.worker.buffers import Pool
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.cuts import part_of, parts_of
from ncclbench.worker.delay import Delay
from ncclbench.worker.device import Device
from ncclbench.worker.devices import Devices
from ncclbench.worker.fence import Fence
from ncclbench.worker.groups import (
    ArmGroup,
    close_group,
    kind_of,
    open_group,
    open_tiers,
    open_topologies,
    register_window,
    why_unavailable,
)
from ncclbench.worker.link import Link
from ncclbench.worker.patterns import Patterns
from ncclbench.worker.probe import first_line, probe
from ncclbench.worker.protocol import WorkerTask
from ncclbench.worker.readings import Readings, joined
from ncclbench.worker.symmetric import SymmetricMemory
from ncclbench.worker.units import ArmVisits, gather_units
from ncclbench.worker.visit import CaseRunner

_OF_THE_WORLD = "hierarchical is for all ranks at once"


class Measurement:
    """One rank's part in a plan. All ranks walk through it in the same order."""

    def __init__(
        self,
        task: WorkerTask,
        plan: Plan,
        control: ControlPlane,
        fence: Fence,
        devices: Devices,
        link: Link,
        place: Place,
        timeout_s: float,
    ) -> None:
        """``timeout_s``: for the process groups; longer than the supervisor's own deadline."""
        self._task = task
        self._plan = plan
        self._control = control
        self._fence = fence
        self._devices = devices
        self._link = link
        self._place = place
        self._timeout_s = timeout_s
        self._pools: dict[str, Pool] = {}
        self._readings: dict[str, Readings] = {}
        self._patterns = Patterns(plan.seed)
        self._parts = parts_of(plan, control.rank)
        self._runners: dict[tuple[str, str], CaseRunner] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._symmetric: SymmetricMemory | None = None

    def run(self) -> None:
        """Everything: arms, probes, epochs."""
        team = [arm for arm in self._plan.teams[self._task.team] if arm.id not in self._task.left_out]
        ready = [arm for arm in team if self._is_ready(arm)]
        for kind in sorted({kind_of(arm) for arm in ready}):
            # From NCCL's allocator for all arms, where one needs it.
            storage = self._symmetric.storage if kind == "cuda" and self._symmetric is not None else None
            self._pools[kind] = Pool(self._nbytes, self._devices.get(kind).torch_device, storage)
            self._place.step()
            self._readings[kind] = Readings(self._devices.get(kind))
            self._place.step()
        for arm in ready:
            self._refused[arm.id] = self._probe(arm)
        while ready and (orders := self._control.share(self._link.ask(protocol.Ready()))) is not None:
            self._place.step()
            self._epoch(orders, ready)
        self._link.settle()

    @property
    def _nbytes(self) -> int:
        """Of the buffers on a device."""
        return pool_bytes(self._plan)

    def _device(self, arm: Arm) -> Device:
        return self._devices.get(kind_of(arm))

    def _is_ready(self, arm: Arm) -> bool:
        """Whether the arm can be built on every rank; what it is, or why it is not there, is told."""
        group: ArmGroup | None = None
        reason = why_unavailable(arm) or self._why_no_tiers(arm)
        if reason is None:
            try:
                group = self._open(arm)
                if arm.is_symmetric:
                    self._register(group, self._device(arm))
            except Exception as error:  # which types a missing backend raises differs by version
                reason = first_line(error)
            self._place.step()
        reason = self._control.first_reason(reason)
        if reason is not None or group is None:
            self._link.tell(protocol.ArmReady(arm.id, None, None, reason))
            return False
        close_group(group)
        self._link.tell(protocol.ArmReady(arm.id, kind_of(arm), group.implementation, None))
        return True

    def _why_no_tiers(self, arm: Arm) -> str | None:
        """Why a hierarchical arm is none here."""
        if not arm.is_hierarchical:
            return None
        hosts = self._plan.groups[TIER_OF_HOST]
        if len(hosts) == 1:
            return "all ranks are on one host: hierarchical takes two at least"
        return (
            "every host has one rank: there is nothing to reduce within"
            if max(map(len, hosts)) == 1
            else None
        )

    def _register(self, group: ArmGroup, device: Device) -> None:
        """Make the buffers, which the first such arm allocates, symmetric windows of the group."""
        if self._symmetric is None:
            backend = group.group._get_backend(device.torch_device)
            self._symmetric = SymmetricMemory(backend, self._nbytes, device.torch_device)
        register_window(group, self._symmetric, device)

    def _open(self, arm: Arm) -> ArmGroup:
        """The arm on all ranks."""
        device, timeout_s, rank = self._device(arm), self._timeout_s, self._control.rank
        if not arm.is_hierarchical:
            return open_group(arm, device, timeout_s)
        host, leaders = (part_of(self._plan, name, rank) for name in (TIER_OF_HOST, TIER_OF_LEADERS))
        return open_tiers(arm, device, timeout_s, host, leaders)

    def _open_all(self, arm: Arm) -> dict[str, ArmGroup]:
        """The arm in every topology that it takes."""
        if arm.is_hierarchical:
            return {WORLD.name: self._open(arm)}
        opened = open_topologies(arm, self._device(arm), self._timeout_s, self._parts)
        if arm.is_symmetric:
            for group in opened.values():
                self._register(group, self._device(arm))
        return opened

    def _probe(self, arm: Arm) -> dict[str, str]:
        """Cases that the arm does not take, with the reason."""
        device = self._device(arm)
        self._place.enter(NOWHERE, self._plan.arms.index(arm), NOWHERE)
        cases = self._plan.planned
        refused = {}
        if arm.is_hierarchical:
            refused = {case.key: _OF_THE_WORLD for case in cases if case.topology != WORLD.name}
            cases = [case for case in cases if case.key not in refused]
        refused |= probe(
            cases,
            lambda case: self._make_runner(case, device),
            self._control,
            lambda: self._open(arm),
            self._place.step,
        )
        if refused:
            self._link.tell(protocol.Settled(arm.id, refused))
        return refused

    def _make_runner(self, case: Case, device: Device) -> CaseRunner:
        patterns = self._patterns.of(case, device.torch_device)
        k = self._task.batches.get(case.key)
        pool = self._pools[device.kind]
        # Probes are on all ranks, whatever the plan's topologies are.
        part = self._parts.get(case.topology) or part_of(self._plan, case.topology, self._control.rank)
        return CaseRunner(case, self._plan, self._control, self._fence, device, pool, patterns, k, part)

    def _runner(self, case: Case, device: Device) -> CaseRunner:
        """The case's runner on the device: kept over epochs, as its slots take turns."""
        key = (case.key, device.kind)
        if key not in self._runners:
            self._runners[key] = self._make_runner(case, device)
        return self._runners[key]

    def _epoch(self, orders: Orders, ready: list[Arm]) -> None:
        """Fresh groups for every arm, then on them the cases that rank 0's supervisor wants."""
        groups: dict[str, dict[str, ArmGroup]] = {}
        for index in creation_order(len(self._plan.arms), self._plan.seed, orders.epoch):
            arm = self._plan.arms[index]
            if arm in ready:
                self._place.enter(NOWHERE, index, orders.epoch)
                groups[arm.id] = self._open_all(arm)
                for topology, group in groups[arm.id].items():
                    self._tell_cold(arm, topology, orders.epoch, group)
        for order in orders.cases:
            key = self._plan.planned[order.case].key
            arms = [arm for arm in ready if key not in self._refused[arm.id]]
            topology = self._plan.planned[order.case].topology
            self._case(order, orders.epoch, arms, {arm.id: groups[arm.id][topology] for arm in arms})
        self._place.enter(NOWHERE, NOWHERE, orders.epoch)
        for of_arm in groups.values():
            for group in of_arm.values():
                close_group(group)
                self._place.step()

    def _tell_cold(self, arm: Arm, topology: str, epoch: int, group: ArmGroup) -> None:
        costs_ns = self._control.gather_array(
            np.array([round(group.init_us * 1e3), round(group.first_op_us * 1e3)], dtype=np.int64)
        )
        if costs_ns is not None:
            init_us, first_op_us = (np.stack(costs_ns).T / 1e3).tolist()
            self._link.tell(protocol.Cold(arm.id, topology, epoch, init_us, first_op_us))

    def _case(self, order: Order, epoch: int, arms: list[Arm], groups: dict[str, ArmGroup]) -> None:
        """All visits of one case in one epoch, then everybody's samples to rank 0 and to disk."""
        before_s = time.monotonic()
        case = self._plan.planned[order.case]
        turns = visit_order(len(arms), self._plan.seed, epoch, case.key, order.visits)
        operations = split_iterations(order.operations, order.visits)
        step = visit_step(len(arms))
        delay_ns = self._delay_ns(order, arms, groups)
        slowed = self._plan.injection.arm if self._plan.injection is not None else None
        found = [ArmVisits(arm.id, [], [], delay_ns if arm.id == slowed else None) for arm in arms]
        k: int | None = None
        for turn, index in enumerate(turns):
            if turn and turn % (step * len(arms)) == 0 and self._is_over(order, before_s):
                break
            arm, of_arm = arms[index], found[index]
            self._place.enter(order.case, self._plan.arms.index(arm), epoch)
            runner = self._runner(case, self._device(arm))
            runner.k = runner.k or k
            group = groups[arm.id].group
            nth = len(of_arm.visits)
            delay = None
            if delay_ns is not None:
                delay = Delay(delay_ns, of_arm.delay_ns is not None)
            visit = runner.visit(group, operations[nth], nth == 0, self._place.step, self._link.settle, delay)
            self._place.step()
            of_arm.health = joined(of_arm.health, self._readings[kind_of(arm)].after_visit())
            of_arm.visits.append(visit)
            of_arm.turns.append(turn)
            k = runner.k
        checked = self._plan.check > 0 and case.nbytes > 0
        units = gather_units(case, epoch, self._task.attempt, checked, found, self._control)
        self._link.tell(protocol.Measured(case.key, epoch, units, time.monotonic() - before_s))

    def _is_over(self, order: Order, since_s: float) -> bool:
        """Whether the case has had its time in this epoch; rank 0 decides."""
        if order.until_s is None:
            return False
        return bool(self._control.share(time.monotonic() - since_s >= order.until_s))

    def _delay_ns(self, order: Order, arms: list[Arm], groups: dict[str, ArmGroup]) -> int | None:
        """How long this rank is busy behind each operation; None where no arm is slowed. Collective."""
        injection = self._plan.injection
        slowed = next((arm for arm in arms if injection is not None and arm.id == injection.arm), None)
        if injection is None or slowed is None:
            return None
        here = injection.ranks is None or self._control.rank in injection.ranks
        if injection.us is not None:
            return round(injection.us * 1e3) if here else 0
        level_us = order.level_us
        if level_us is None:
            runner = self._runner(self._plan.planned[order.case], self._device(slowed))
            quantile = STATISTICS[self._plan.statistic or DEFAULT_STATISTIC["total"]].quantile
            level_us = runner.level_us(groups[slowed.id].group, quantile, self._place.step, self._link.settle)
        return round((injection.fraction or 0.0) * level_us * 1e3) if here else 0
