"""What the GPU says between blocks: read as often as it may cost, summed per unit, sent as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ncclbench.environment.throttle import COUNTER_WORDS, THROTTLING, Glance
from ncclbench.store.model import UnitHealth
from ncclbench.worker.device import Device

# Readings take this share of a worker's time at most: after a slow one the next has to wait.
MOST_SHARE = 0.01

_UNKNOWN = -1
_SINGLE = 11
# Numbers that ``pack`` makes of one reading.
LENGTH = _SINGLE + len(COUNTER_WORDS)


class Readings:
    """The readings of one device, taken after visits; never inside the clock and never on another thread."""

    def __init__(self, device: Device) -> None:
        """Take the first reading, which later ones count from."""
        self._device = device
        self._visits = 0
        self._last = device.read_health()
        self._last_ns = device.now_ns()
        self._not_before_ns = self._last_ns

    def after_visit(self) -> UnitHealth | None:
        """What the device says now that a visit has ended; None if it says nothing, or not so soon again.

        A checked pass and the warm-up lie between here and the next block.
        """
        self._visits += 1
        begun_ns = self._device.now_ns()
        if self._last is None or begun_ns < self._not_before_ns:
            return None
        glance = self._device.read_health()
        ended_ns = self._device.now_ns()
        read_ns = ended_ns - begun_ns
        self._not_before_ns = ended_ns + round(read_ns * (1 / MOST_SHARE - 1))
        if glance is None:
            return None
        health = UnitHealth(
            over_us=(begun_ns - self._last_ns) / 1e3,
            read_us=read_ns / 1e3,
            visits=self._visits,
            reasons=_active(glance),
            throttled_us=_spent(self._last, glance),
            sm_clock_mhz=glance.sm_clock_mhz,
            temperature_c=glance.temperature_c,
            power_w=None if glance.power_mw is None else glance.power_mw / 1e3,
            pcie_generation=glance.pcie_generation,
            pcie_width=glance.pcie_width,
            nvlinks_up=glance.nvlinks_up,
        )
        self._visits, self._last, self._last_ns = 0, glance, ended_ns
        return health


def _spent(before: Glance, after: Glance) -> dict[str, float]:
    """Microseconds by reason: what rose, and none of a reason that is active now though its counter did not.

    A counter that fell has started anew, with its driver.
    """
    active = _active(after)
    pairs = zip(COUNTER_WORDS, before.counters_ns, after.counters_ns, strict=True)
    return {
        word: (now - then) / 1e3
        for word, then, now in pairs
        if then is not None and now is not None and (now > then or (now == then and word in active))
    }


def _active(glance: Glance) -> tuple[str, ...]:
    return tuple(word for bit, word in THROTTLING.items() if glance.reasons & bit)


def joined(one: UnitHealth | None, other: UnitHealth | None) -> UnitHealth | None:
    """Two readings of one unit as one."""
    if one is None or other is None:
        return one or other
    words = {*one.throttled_us, *other.throttled_us}
    return UnitHealth(
        over_us=one.over_us + other.over_us,
        read_us=one.read_us + other.read_us,
        readings=one.readings + other.readings,
        visits=one.visits + other.visits,
        reasons=tuple(word for word in THROTTLING.values() if word in one.reasons + other.reasons),
        throttled_us={
            word: one.throttled_us.get(word, 0.0) + other.throttled_us.get(word, 0.0)
            for word in COUNTER_WORDS
            if word in words
        },
        sm_clock_mhz=_least(one.sm_clock_mhz, other.sm_clock_mhz),
        temperature_c=max((one.temperature_c, other.temperature_c), key=lambda value: value or 0),
        power_w=max((one.power_w, other.power_w), key=lambda value: value or 0.0),
        pcie_generation=_least(one.pcie_generation, other.pcie_generation),
        pcie_width=_least(one.pcie_width, other.pcie_width),
        nvlinks_up=_least(one.nvlinks_up, other.nvlinks_up),
    )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def pack(health: UnitHealth | None) -> list[int]:
    """LENGTH whole numbers, so that all ranks' readings are gathered with their samples."""
    if health is None:
        return [_UNKNOWN] * LENGTH
    bits = sum(bit for bit, word in THROTTLING.items() if word in health.reasons)
    known = (
        health.over_us * 1e3,
        health.read_us * 1e3,
        health.readings,
        health.visits,
        bits,
        health.sm_clock_mhz,
        health.temperature_c,
        None if health.power_w is None else health.power_w * 1e3,
        health.pcie_generation,
        health.pcie_width,
        health.nvlinks_up,
        *(1e3 * health.throttled_us[word] if word in health.throttled_us else None for word in COUNTER_WORDS),
    )
    return [_UNKNOWN if value is None else round(value) for value in known]


def unpack(numbers: Sequence[int] | NDArray[np.int64]) -> UnitHealth | None:
    """Inverse of ``pack``."""
    if numbers[2] == _UNKNOWN:
        return None
    whole = [int(number) for number in numbers]
    over_ns, read_ns, readings, visits, bits, *rest = whole[:_SINGLE]
    clock, temperature, power_mw, generation, width, nvlinks = (
        None if number == _UNKNOWN else number for number in rest
    )
    return UnitHealth(
        over_us=over_ns / 1e3,
        read_us=read_ns / 1e3,
        readings=readings,
        visits=visits,
        reasons=tuple(word for bit, word in THROTTLING.items() if bits & bit),
        throttled_us={
            word: spent_ns / 1e3
            for word, spent_ns in zip(COUNTER_WORDS, whole[_SINGLE:], strict=True)
            if spent_ns != _UNKNOWN
        },
        sm_clock_mhz=clock,
        temperature_c=temperature,
        power_w=None if power_mw is None else power_mw / 1e3,
        pcie_generation=generation,
        pcie_width=width,
        nvlinks_up=nvlinks,
    )
