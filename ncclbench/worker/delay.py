"""A slowdown put into an arm on purpose: the truth that a comparison is to find.

Every arm of such a run is busy for as long after each operation, by the same code in turn with the others.
Only in the slowed one the clock still runs then. So what an operation finds (threads asleep or awake, caches,
the other rank) is alike on all arms, and the samples of the slowed arm are longer by the delay and by nothing
else. Added to one arm alone, a delay of a tenth made operations 17 to 19 % longer, since gloo's threads fell
asleep in it; with the delay's code run inside the clock on one arm alone, it was 13 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.tables.collectives import Call, Works
from ncclbench.worker.device import Device


@dataclass(frozen=True, slots=True)
class Delay:
    """What this rank adds behind each operation.

    Attributes:
        ns: how long.
        timed: inside the clock.
    """

    ns: int
    timed: bool


def delayed(call: Call, device: Device, delay_ns: int) -> Call:
    """The call with ``delay_ns`` added behind its operation, inside the clock."""
    delay = _DelayWork(device, delay_ns)

    def slowed() -> Works:
        return (*(call() or ()), delay)

    return slowed


class _DelayWork:
    """Waited for like an operation's own Work, after it."""

    def __init__(self, device: Device, delay_ns: int) -> None:
        self._device = device
        self._delay_ns = delay_ns

    def wait(self) -> None:
        self._device.delay(self._delay_ns)
