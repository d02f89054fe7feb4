"""Weights from a trainer to its generators: every way in turn, as rank 0's supervisor asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ncclbench.plan.model import Arm
from ncclbench.tables.transfers import TRANSFERS, Transfer
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.device import Device
from ncclbench.worker.groups import ArmGroup, close_group, open_group, why_unavailable
from ncclbench.worker.one_sided import OneSided, why_not
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.transfer_ways import ONE_SIDED_WAYS, Given, Shared, Taken, Way
from ncclbench.worker.two_sided import TRAINER
from ncclbench.worker.weights import Weights

# What a rank reports of a repetition. The trainer: when it began, when it was free, when its weights might
# change again. A generator: when it was held up first, when it held every byte; then, where it computed: how
# long a step took before the trainer began and after, how many there were, how many saw torn weights.
BEGAN_NS, FREE_NS, FROZEN_NS = range(3)
HELD_NS, DONE_NS, QUIET_NS, BUSY_NS, STEPS, TORN = range(6)
_FIELDS = 6

# A generator's step between two looks, and how many at least it makes before the trainer begins.
_STEP_S = 1e-3
_QUIET_STEPS = 8
_SIDE = {"cpu": 128, "cuda": 1024}


def run(bench: Bench, request: dict[str, Any]) -> None:
    """Make the weights, then what is asked for until no more is.

    Args:
        request: ``arms``: id and backend of each, all on one kind of device; ``ways``: names in TRANSFERS;
            ``sizes``: bytes of each tensor; ``seed``; ``stages``: names of the stages, in the order in which
            progress counts them.
    """
    names = list(request["stages"])
    bench.place.enter(names.index("opening"), 0, NOWHERE)
    transport = _Transport(bench, request)
    stages: dict[str, Callable[[dict[str, Any]], Any]] = {
        "opening": transport.open,
        "groups": transport.renew,
        "moving": transport.move,
    }
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(names.index(order["stage"]), 0, order.get("turn", NOWHERE))
        # Only now: there is another order once what was found is written, whatever a library does when it is
        # torn down. After the last one nothing is.
        transport.end_visit()
        bench.tell(order["stage"], stages[order["stage"]](order))


class _Transport:
    """One rank's part."""

    def __init__(self, bench: Bench, request: dict[str, Any]) -> None:
        self._bench = bench
        self._arms = {entry[0]: Arm(*entry) for entry in request["arms"]}
        self._ways = [TRANSFERS[name] for name in request["ways"]]
        self._sizes = request["sizes"]
        self._seed = int(request["seed"])
        # Of the weights' bytes, and of stamps, which small messages use up as well.
        self._version = self._mark = 0
        # Of the visit: the most bytes that were wrong when the weights were said to be there.
        self._early = 0
        self._groups: dict[str, ArmGroup] = {}
        # By name of the transport; and of a visit alone.
        self._sides: dict[str, OneSided] = {}
        self._open: OneSided | None = None

    # --- opening

    def open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Make the weights and try every way: by way and arm, why it cannot be had; None where it can.

        Returns:
            ``device``, ``refused``: lists of (way, arm or None, reason or None), and ``clock_error_us``.
        """
        bench = self._bench
        self._meet = bench.fence()
        reasons = {name: bench.control.first_reason(why_unavailable(arm)) for name, arm in self._arms.items()}
        usable = [arm for name, arm in self._arms.items() if reasons[name] is None]
        self._device: Device = bench.device(usable[0]) if usable else bench.devices.get("cpu")
        self._weights = Weights(self._sizes, self._seed, self._device, bench.place.step)
        self._work = _Work(self._device)
        refused: list[tuple[str, str | None, str | None]] = []
        for name, arm in self._arms.items():
            reasons[name] = reasons[name] or self._try_group(arm)
        for way in self._ways:
            if way.transport is None:
                refused += [(way.name, name, reasons[name]) for name in self._arms]
            else:
                refused.append((way.name, None, self._try_side(way, len(set(bench.hosts)) == 1)))
            bench.place.step()
        return {
            "device": self._device.kind,
            "refused": refused,
            "clock_error_us": bench.control.clock_error_ns / 1e3,
        }

    def _try_group(self, arm: Arm) -> str | None:
        """Why the arm's group cannot be had, the same on every rank."""
        reason = None
        try:
            close_group(open_group(arm, self._device, self._bench.timeout_s))
        except Exception as error:  # which types a missing backend raises differs by version
            reason = first_line(error)
        self._bench.place.step()
        return self._bench.control.first_reason(reason)

    def _try_side(self, way: Transfer, one_host: bool) -> str | None:
        """Connect the way's transport, once for all ways that take it; why it cannot be had."""
        bench, name = self._bench, str(way.transport)
        reason = bench.control.first_reason(why_not(way, self._device.kind, one_host))
        if reason is not None or name in self._sides:
            return reason
        side, reason = self._connect(name)
        if side is not None and way.has_threads:
            bench.control.maximum(0)
            side.close()
        elif side is not None:
            self._sides[name] = side
        return reason

    def _connect(self, name: str) -> tuple[OneSided | None, str | None]:
        """Endpoints of a transport on every rank; or the reason why not, the same on every rank."""
        bench = self._bench
        side, reason = None, None
        try:
            side = OneSided(name, bench.rank, bench.nranks, self._weights.tensors, bench.timeout_s)
        except Exception as error:  # whatever a library raises
            reason = _why(error)
        reason = bench.control.first_reason(reason)
        if side is None or reason is not None:
            return None, reason
        everybody = bench.control.share(bench.control.gather(side.descriptors))
        try:
            side.meet(everybody)
        except Exception as error:
            reason = _why(error)
        reason = bench.control.first_reason(reason)
        bench.place.step()
        return (side if reason is None else None), reason

    def renew(self, order: dict[str, Any]) -> None:
        """Fresh groups for an epoch, in the order given."""
        for group in self._groups.values():
            close_group(group)
        self._groups = {}
        for name in order["arms"]:
            self._groups[name] = open_group(self._arms[name], self._device, self._bench.timeout_s)
            self._bench.place.step()

    # --- visits

    def _way(self, order: dict[str, Any]) -> Way:
        """What this rank does in the way.

        Raises:
            RuntimeError: its transport cannot be connected again.
        """
        way, bench = TRANSFERS[order["way"]], self._bench
        if way.transport is None:
            group = self._groups[order["arm"]].group
            return Shared(way.verb, group, self._weights, self._device, bench.rank, bench.nranks)
        side = self._sides.get(way.transport)
        if side is None:
            side, reason = self._connect(way.transport)
            if side is None:
                raise RuntimeError(f"{way.name} could be had before, and now: {reason}")
            self._open = side
        return ONE_SIDED_WAYS[way.verb](side, self._device.now_ns, bench.timeout_s)

    def end_visit(self) -> None:
        """Close what was opened for the visit before."""
        if self._open is not None:
            self._bench.control.maximum(0)
            self._open.close()
            self._open = None

    def move(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """One visit to a way: repetitions that wait, others that compute, a check of every byte, messages.

        Args:
            order: ``way``, ``arm``; ``warmup``: untimed repetitions; ``repetitions``: timed ones;
                ``messages``: bytes of small messages; ``pings``: how many of each, after ``warmup_pings``
                untimed ones.

        Returns:
            on rank 0: ``still`` and ``computing`` (None where generators cannot compute meanwhile), each of
            shape (nranks, repetitions, 6), ``wrong``, bytes over all generators, and ``messages``, of shape
            (nranks, messages, pings, 6).
        """
        bench = self._bench
        way = self._way(order)
        self._early = 0
        for _ in range(order["warmup"]):
            self._still(way)
        still = np.stack([self._still(way) for _ in range(order["repetitions"])])
        computing = None
        if way.computes:
            computing = np.stack([self._computing(way) for _ in range(order["repetitions"])])
        wrong = 0 if bench.rank == TRAINER else max(self._early, self._weights.wrong(self._version))
        counts = bench.gather(np.array([float(wrong)]))
        still_of, computing_of = bench.gather(still), None if computing is None else bench.gather(computing)
        messages = bench.gather(self._messages(way, order)) if order["messages"] else None
        if counts is None:
            return None
        wrong_of = int(counts.sum())
        return {"still": still_of, "computing": computing_of, "wrong": wrong_of, "messages": messages}

    def _next(self) -> int:
        """The trainer holds the next version; returns its stamp, on all ranks at about the same moment."""
        self._version += 1
        if self._bench.rank == TRAINER:
            self._weights.become(self._version)
        return self._next_mark()

    def _next_mark(self) -> int:
        self._mark += 1
        self._bench.place.step()
        # Whoever waits for the trainer sleeps; the fence, which may spin, is for the last moment.
        self._bench.control.maximum(0)
        self._meet()
        return self._mark

    def _still(self, way: Way) -> NDArray[np.float64]:
        """One repetition in which generators do nothing else."""
        mark = self._next()
        if self._bench.rank == TRAINER:
            return self._fields(way.give(mark))
        return self._fields(self._seen(way.take(mark)))

    def _seen(self, taken: Taken) -> Taken:
        """What was taken, once it was looked at: bytes that come later than they are said to must not pass.

        Outside the clock, and at some bytes only; all are compared at the end of the visit.
        """
        self._early = max(self._early, self._weights.wrong_samples(self._version))
        return taken

    def _computing(self, way: Way) -> NDArray[np.float64]:
        """One in which each generator computes, and looks for the weights after every step."""
        mark = self._next()
        if self._bench.rank == TRAINER:
            # A random part of a step longer, so that it never begins at the same place in one.
            random = np.random.default_rng((self._seed, mark))
            time.sleep((_QUIET_STEPS + random.random() * 2) * _STEP_S)
            given = way.give(mark)
            self._bench.control.share(given.began_ns)
            return self._fields(given)
        taken, ends, torn = self._compute_until(way, mark)
        began = self._bench.control.share(None) - self._bench.control.clock_offset_ns
        fields = self._fields(taken)
        lengths = np.diff(ends)
        quiet, busy = lengths[ends[1:] <= began], lengths[ends[:-1] >= began]
        fields[QUIET_NS] = quiet.mean() if quiet.size else np.nan
        fields[BUSY_NS] = busy.mean() if busy.size else np.nan
        fields[STEPS], fields[TORN] = len(lengths), torn
        return fields

    def _compute_until(self, way: Way, mark: int) -> tuple[Taken, NDArray[np.int64], int]:
        """Step after step until the weights are there: when steps ended, and how many saw torn weights."""
        now = self._device.now_ns
        deadline = time.monotonic() + self._bench.timeout_s
        ends, torn = [now()], 0
        while True:
            self._work()
            ends.append(now())
            torn += self._weights.is_torn()
            taken = way.look(mark)
            if taken is not None:
                return self._seen(taken), np.array(ends), torn
            if time.monotonic() > deadline:
                raise TimeoutError(f"version {mark} did not come in {self._bench.timeout_s:g} s")

    def _fields(self, found: Given | Taken | None) -> NDArray[np.float64]:
        """As they are gathered, on rank 0's clock."""
        fields = np.full(_FIELDS, np.nan)
        offset = self._bench.control.clock_offset_ns
        match found:
            case Given():
                fields[BEGAN_NS] = found.began_ns + offset
                fields[FREE_NS], fields[FROZEN_NS] = found.free_ns + offset, found.frozen_ns + offset
            case Taken():
                fields[HELD_NS], fields[DONE_NS] = found.began_ns + offset, found.done_ns + offset
        return fields

    def _messages(self, way: Way, order: dict[str, Any]) -> NDArray[np.float64]:
        """Shape (messages, pings, 6): small messages to one generator, and what this rank saw of each."""
        found = []
        for nbytes in order["messages"]:
            pings = order["warmup_pings"] + order["pings"]
            own = [self._fields(way.ping(nbytes, self._next_mark())) for _ in range(pings)]
            found.append(np.stack(own[order["warmup_pings"] :]))
        return np.stack(found)


class _Work:
    """What a generator computes in a step: about a millisecond of matrix products."""

    def __init__(self, device: Device) -> None:
        self._device = device
        side = _SIDE[device.kind]
        self._a = torch.rand(side, side, device=device.torch_device)
        self._out = torch.empty_like(self._a)
        self._products = 1
        for _ in range(3):
            self()
        began = device.now_ns()
        for _ in range(16):
            self()
        taken_ns = (device.now_ns() - began) / 16
        self._products = max(1, round(_STEP_S * 1e9 / taken_ns))

    def __call__(self) -> None:
        for _ in range(self._products):
            torch.mm(self._a, self._a, out=self._out)
        self._device.synchronize()


def _why(error: Exception) -> str:
    """A transport's reason; torch wraps what a factory raises."""
    cause = error.__cause__
    return first_line(error) if cause is None else f"{first_line(error)}: {first_line(cause)}"
