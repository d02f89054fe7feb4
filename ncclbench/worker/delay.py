"""A slowdown put into an arm on purpose: the truth that a comparison is to find."""

from __future__ import annotations

from ncclbench.tables.collectives import Call, Works
from ncclbench.worker.device import Device


def delayed(call: Call, device: Device, delay_ns: int) -> Call:
    """The call with ``delay_ns`` added behind its operation, inside the clock.

    Behind it and not before: the operation itself is as it was, and each sample longer by just so much.
    """
    delay = _Delay(device, delay_ns)

    def slowed() -> Works:
        return (*(call() or ()), delay)

    return slowed


class _Delay:
    """Waited for like an operation's own Work, after it."""

    def __init__(self, device: Device, delay_ns: int) -> None:
        self._device = device
        self._delay_ns = delay_ns

    def wait(self) -> None:
        self._device.delay(self._delay_ns)
