"""From what visits yield on each rank to units on rank 0, as one array per rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.model import Case
from ncclbench.store.model import Unit, UnitHealth
from ncclbench.worker import readings
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.visit import Visit

# Numbers before the samples: wrong elements, delay, and what the device said.
_HEAD = 2 + readings.LENGTH


@dataclass(slots=True)
class ArmVisits:
    """All visits to one arm for one case in one epoch, on this rank.

    Attributes:
        arm: id of the arm.
        visits: in time order.
        turns: the place of each among the visits to all arms.
        delay_ns: added to each operation on this rank on purpose; None where the arm is not slowed.
        health: what the device said after the visits; None where it said nothing.
    """

    arm: str
    visits: list[Visit]
    turns: list[int]
    delay_ns: int | None
    health: UnitHealth | None = None


def gather_units(
    case: Case, epoch: int, attempt: int, checked: bool, arms: Sequence[ArmVisits], control: ControlPlane
) -> list[Unit]:
    """Rank 0: one unit per arm with every rank's samples; elsewhere an empty list. Collective."""
    packed = [_pack(arm, control.clock_offset_ns) for arm in arms]
    everybody = control.gather_array(np.concatenate(packed))
    if everybody is None:
        return []
    cuts = np.cumsum([len(mine) for mine in packed])[:-1]
    of_arms = np.split(np.stack(everybody), cuts, axis=1)
    unpacked = [
        (*parts[:, :2].T, parts[:, 2:_HEAD], parts[:, _HEAD:].reshape(len(parts), 4, -1)) for parts in of_arms
    ]
    first_ns = min(int(times_ns[:, 0].min()) for *_, times_ns in unpacked)
    units = []
    for arm, (wrong, delay_ns, said, times_ns) in zip(arms, unpacked, strict=True):
        health = tuple(readings.unpack(numbers) for numbers in said)
        times_ns[:, 0] -= first_ns
        starts_us, launches_us, device_us, totals_us = times_ns.transpose(1, 0, 2) / 1e3
        units.append(
            Unit(
                case=case.key,
                arm=arm.arm,
                epoch=epoch,
                attempt=attempt,
                k=arm.visits[0].k,
                start_us=starts_us,
                launch_us=launches_us,
                device_us=None if arm.visits[0].samples.device is None else device_us,
                total_us=totals_us,
                visits=tuple(len(visit.samples.start) for visit in arm.visits),
                turns=tuple(arm.turns),
                wrong=tuple(int(count) for count in wrong) if checked else None,
                delay_us=None if arm.delay_ns is None else tuple(int(delay) / 1e3 for delay in delay_ns),
                health=health if any(health) else None,
            )
        )
    return units


def _pack(arm: ArmVisits, clock_offset_ns: int) -> NDArray[np.int64]:
    """One rank's samples of one arm in one array: wrong, delay, health, start, launch, device, total."""
    rows = []
    for visit in arm.visits:
        samples = visit.samples
        on_device = samples.device if samples.device is not None else np.zeros_like(samples.start)
        rows.append(np.stack([samples.start + clock_offset_ns, samples.launch, on_device, samples.total]))
    wrong = sum(visit.wrong for visit in arm.visits)
    head = [wrong, arm.delay_ns or 0, *readings.pack(arm.health)]
    return np.concatenate([head, np.concatenate(rows, axis=1).ravel()]).astype(np.int64)
