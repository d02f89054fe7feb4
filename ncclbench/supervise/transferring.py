"""The course of a transport run: what its workers are asked to do, and how what they find becomes its lines.

``transfer_orders`` yields orders for ``worker.programs.transport`` and is sent what rank 0 gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.errors import RequestError
from ncclbench.plan.model import Device as DeviceName
from ncclbench.plan.schedule import creation_order, split_iterations, visit_order
from ncclbench.store.transfers import TransferLatency, TransferResult, TransferStatus, TransferTimes
from ncclbench.tables.transfers import TRANSFERS
from ncclbench.worker.programs.transport import (
    BEGAN_NS,
    BUSY_NS,
    DONE_NS,
    FREE_NS,
    FROZEN_NS,
    HELD_NS,
    QUIET_NS,
    STEPS,
    TORN,
)
from ncclbench.worker.transfer_ways import RECEIVER
from ncclbench.worker.two_sided import TRAINER

Array = NDArray[np.float64]
Orders = Generator[dict[str, Any], Any, None]
# The same, returning what could be had.
OrdersOfWays = Generator[dict[str, Any], Any, "Had"]
Keep = Callable[[Sequence[TransferResult]], None]

# The stages in the order of a run, with the words for where a rank is.
STAGES = {
    "opening": "opening process groups and transports",
    "groups": "opening process groups",
    "moving": "moving the weights",
}

LATENCY_BYTES = (8, 64, 512, 4096)
_WARMUP_PINGS, _PINGS = 3, 20

# It moves one tensor whatever there is, so a small message of it is the other broadcast's.
_WITHOUT_LATENCY = ("broadcast-flat",)


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What a transport run is to do.

    Attributes:
        arms: ids; ``ways``: names in TRANSFERS.
        sizes: bytes of each tensor.
        generators: how many ranks get the weights.
        epochs, iters, warmup: iterations of each way in all epochs together, and untimed ones in each.
        seed: draws data and orders.
    """

    arms: tuple[str, ...]
    ways: tuple[str, ...]
    sizes: tuple[int, ...]
    generators: int
    epochs: int
    iters: int
    warmup: int
    seed: int


# A way, and the arm that carries it or None.
_Entry = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Had:
    """What could be had: ways with the arm that carries each or None, on that kind of device."""

    entries: tuple[_Entry, ...]
    device: DeviceName


def transfer_orders(plan: TransferPlan, keep: Keep, told: Callable[[str], None]) -> OrdersOfWays:
    """Every way in every epoch, in balanced random order.

    Args:
        told: gets words for where it is.

    Raises:
        RequestError: no way can be had.
    """
    found = yield {"stage": "opening"}
    entries: list[_Entry] = [(way, arm) for way, arm, reason in found["refused"] if reason is None]
    keep(
        [
            TransferStatus(way=way, arm=arm, status="unavailable", reason=reason)
            for way, arm, reason in found["refused"]
            if reason is not None
        ]
    )
    if not entries:
        reasons = "; ".join(f"{way}: {reason}" for way, _, reason in found["refused"])
        raise RequestError(f"no way can be had here: {reasons}")
    arms = [arm for arm in plan.arms if any(arm == carrier for _, carrier in entries)]
    repetitions = split_iterations(plan.iters, plan.epochs)
    for epoch in range(plan.epochs):
        order = creation_order(len(arms), plan.seed, epoch)
        yield {"stage": "groups", "turn": epoch, "arms": [arms[index] for index in order]}
        visits = [entries[index] for index in visit_order(len(entries), plan.seed, epoch, "transport", 1)]
        for number, (way, arm) in enumerate(visits):
            told(f"epoch {epoch + 1} of {plan.epochs}, way {number + 1} of {len(visits)}: {way}")
            seen = yield {
                "stage": "moving",
                "turn": epoch,
                "way": way,
                "arm": arm,
                "warmup": plan.warmup,
                "repetitions": repetitions[epoch],
                "messages": [] if way in _WITHOUT_LATENCY else list(LATENCY_BYTES),
                "warmup_pings": _WARMUP_PINGS,
                "pings": _PINGS,
            }
            keep([_times(plan, way, arm, epoch, seen), *_latencies(way, arm, epoch, seen["messages"])])
    return Had(tuple(entries), found["device"])


def _latencies(way: str, arm: str | None, epoch: int, found: Array | None) -> list[TransferLatency]:
    """A line for each size, of an array of shape (nranks, messages, pings, fields)."""
    if found is None:
        return []
    # Of a read, which the trainer takes no part in, by the reader's own clock.
    reads = TRANSFERS[way].verb == "read"
    began = found[RECEIVER, :, :, HELD_NS] if reads else found[TRAINER, :, :, BEGAN_NS]
    taken = found[RECEIVER, :, :, DONE_NS] - began
    return [
        TransferLatency(way=way, arm=arm, nbytes=nbytes, epoch=epoch, total_us=_microseconds(times))
        for nbytes, times in zip(LATENCY_BYTES, taken, strict=True)
    ]


def _times(plan: TransferPlan, way: str, arm: str | None, epoch: int, found: dict[str, Any]) -> TransferTimes:
    """The line of a visit, of arrays of shape (nranks, repetitions, fields)."""
    still, computing = found["still"], found["computing"]
    trainer, generators = still[TRAINER], still[RECEIVER:]
    began = trainer[:, BEGAN_NS]
    # Where they can compute meanwhile, what counts is how long those are held up that do.
    held = generators if computing is None else computing[RECEIVER:]
    stale_us, slowdown, steps, torn = None, None, 0, 0
    if computing is not None:
        stale_us = _microseconds(
            computing[RECEIVER:, :, DONE_NS].max(axis=0) - computing[TRAINER, :, BEGAN_NS]
        )
        ratios = (computing[RECEIVER:, :, BUSY_NS] / computing[RECEIVER:, :, QUIET_NS]).ravel()
        ratios = ratios[np.isfinite(ratios)]
        slowdown = float(np.median(ratios)) if ratios.size else None
        steps, torn = (int(computing[RECEIVER:, :, field].sum()) for field in (STEPS, TORN))
    return TransferTimes(
        way=way,
        arm=arm,
        nbytes=sum(plan.sizes),
        tensors=len(plan.sizes),
        generators=plan.generators,
        epoch=epoch,
        total_us=_microseconds(generators[:, :, DONE_NS].max(axis=0) - began),
        trainer_us=_microseconds(trainer[:, FREE_NS] - began),
        frozen_us=_microseconds(trainer[:, FROZEN_NS] - began),
        generator_us=_microseconds((held[:, :, DONE_NS] - held[:, :, HELD_NS]).max(axis=0)),
        stale_us=stale_us,
        slowdown=slowdown,
        steps=steps,
        torn=torn,
        wrong=found["wrong"],
    )


def _microseconds(times_ns: Array) -> list[float]:
    """Between two clocks a time may come out below zero by their error."""
    found: list[float] = np.round(np.maximum(times_ns, 0.0) / 1e3, 3).tolist()
    return found
