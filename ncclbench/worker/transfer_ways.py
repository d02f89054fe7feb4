"""What a trainer and a generator do in each way: give weights, take them, or look for them between steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ncclbench.worker.device import Device
from ncclbench.worker.one_sided import STAMP_PAUSE_S, OneSided, await_word, cell_of
from ncclbench.worker.two_sided import ISSUES, TRAINER
from ncclbench.worker.weights import Weights

# The generator that small messages go to.
RECEIVER = 1


@dataclass(frozen=True, slots=True)
class Given:
    """The trainer's side of a transfer, in nanoseconds of its clock.

    Attributes:
        began_ns: before the first call.
        free_ns: when its thread, or its stream, could do something else.
        frozen_ns: when its weights might change again.
    """

    began_ns: int
    free_ns: int
    frozen_ns: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A generator's side.

    Attributes:
        began_ns: when it was held up first; ``done_ns``: when it held every byte and knew it.
    """

    began_ns: int
    done_ns: int


class Way(Protocol):
    """One way on one rank.

    Attributes:
        computes: whether generators can compute meanwhile.
    """

    computes: bool

    def give(self, version: int) -> Given:
        """The trainer: the weights, which are of that version."""

    def take(self, version: int) -> Taken:
        """A generator that does nothing else."""

    def look(self, version: int) -> Taken | None:
        """A generator between two steps: take that version if it is there, None if it is not yet."""

    def ping(self, nbytes: int, version: int) -> Given | Taken | None:
        """A small message to ``RECEIVER``: what it saw, and what the sender did; None of the others."""


class Shared:
    """Over a process group: both sides call."""

    computes = False

    def __init__(
        self, verb: str, group: Any, weights: Weights, device: Device, rank: int, nranks: int
    ) -> None:
        self._issue = ISSUES[verb]
        self._is_send = verb == "send"
        self._tensors = [weights.flat] if verb.endswith("flat") else weights.tensors
        self._group = group
        self._device = device
        self._rank, self._nranks = rank, nranks
        self._small: dict[int, torch.Tensor] = {}

    def _move(self, tensors: list[torch.Tensor], nranks: int) -> tuple[int, int]:
        now = self._device.now_ns
        began = now()
        for work in self._issue(tensors, self._group, self._rank, nranks):
            work.wait()
        # On CUDA wait() orders streams only; until then neither side's stream can do anything else.
        self._device.synchronize()
        return began, now()

    def give(self, version: int) -> Given:
        """All tensors."""
        began, done = self._move(self._tensors, self._nranks)
        return Given(began, done, done)

    def take(self, version: int) -> Taken:
        """All tensors."""
        return Taken(*self._move(self._tensors, self._nranks))

    def look(self, version: int) -> Taken | None:
        """It cannot: to receive is to wait."""
        raise NotImplementedError("a two-sided way has nothing to look at")

    def ping(self, nbytes: int, version: int) -> Given | Taken | None:
        """A broadcast, in which all take part, or one message."""
        if self._is_send and self._rank > RECEIVER:
            return None
        if nbytes not in self._small:
            self._small[nbytes] = torch.zeros(nbytes, dtype=torch.uint8, device=self._device.torch_device)
        began, done = self._move([self._small[nbytes]], RECEIVER + 1 if self._is_send else self._nranks)
        if self._rank == TRAINER:
            return Given(began, done, done)
        return Taken(began, done) if self._rank == RECEIVER else None


class _OneSidedWay:
    """What writes and reads have in common."""

    computes = True

    def __init__(self, side: OneSided, now_ns: Callable[[], int], timeout_s: float) -> None:
        self._side = side
        self._now_ns = now_ns
        self._timeout_s = timeout_s
        self._stamp = cell_of(side.stamp)
        self._payload = cell_of(side.payload)


class Push(_OneSidedWay):
    """The trainer writes; a generator looks at its own stamp, which is written last."""

    def give(self, version: int) -> Given:
        """All tensors to all generators, then each one's stamp."""
        began = self._now_ns()
        generators = range(1, self._side.nranks)
        self._side.write(generators)
        for generator in generators:
            self._side.tell(generator, version)
        done = self._now_ns()
        return Given(began, done, done)

    def take(self, version: int) -> Taken:
        """Wait for the stamp."""
        began = self._now_ns()
        await_word(self._stamp, version, self._timeout_s, STAMP_PAUSE_S)
        return Taken(began, self._now_ns())

    def look(self, version: int) -> Taken | None:
        """A look at a word of its own memory."""
        began = self._now_ns()
        return Taken(began, self._now_ns()) if self._stamp[0] >= version else None

    def ping(self, nbytes: int, version: int) -> Given | Taken | None:
        """Eight bytes are their own stamp; more are followed by one, which alone tells that all are there."""
        side, small = self._side, nbytes == self._payload.itemsize
        began = self._now_ns()
        if side.rank == TRAINER:
            self._payload[0] = version
            began = self._now_ns()
            side.write_payload(RECEIVER, nbytes)
            if not small:
                side.tell(RECEIVER, version)
            done = self._now_ns()
            return Given(began, done, done)
        if side.rank != RECEIVER:
            return None
        await_word(self._payload if small else self._stamp, version, self._timeout_s, 0)
        return Taken(began, self._now_ns())


class Pull(_OneSidedWay):
    """Generators read, once the trainer's stamp has changed; then they say so, one-sided as well."""

    def give(self, version: int) -> Given:
        """Change the stamp; weights may change again when all have said that they have read."""
        began = self._now_ns()
        self._stamp[0] = version
        free = self._now_ns()
        for generator in range(1, self._side.nranks):
            await_word(cell_of(self._side.acks[generator]), version, self._timeout_s, STAMP_PAUSE_S)
        return Given(began, free, self._now_ns())

    def take(self, version: int) -> Taken:
        """Look at the trainer's stamp until it has changed, and read."""
        deadline = time.monotonic() + self._timeout_s
        while (taken := self.look(version)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"version {version} did not come in {self._timeout_s:g} s")
            time.sleep(STAMP_PAUSE_S)
        return taken

    def look(self, version: int) -> Taken | None:
        """A read of one word, and where it has changed of all tensors."""
        began = self._now_ns()
        if self._side.look() < version:
            return None
        self._side.read()
        done = self._now_ns()
        self._side.acknowledge(version)
        return Taken(began, done)

    def ping(self, nbytes: int, version: int) -> Given | Taken | None:
        """A read of the trainer's payload; the trainer does nothing."""
        if self._side.rank != RECEIVER:
            return None
        began = self._now_ns()
        self._side.read_payload(TRAINER, nbytes)
        return Taken(began, self._now_ns())


# By verb in TRANSFERS.
ONE_SIDED_WAYS: dict[str, Callable[[OneSided, Callable[[], int], float], Way]] = {"write": Push, "read": Pull}
