"""Where the workers of a launch meet: a store that a process of the supervisor's serves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

CONNECT_S = 120.0


def connect(address: tuple[str, int]) -> Any:
    """A connection of one's own to the store at an address.

    Raises:
        RuntimeError: nobody serves there.
    """
    return TCPStore(*address, is_master=False, timeout=timedelta(seconds=CONNECT_S))


@dataclass(frozen=True, slots=True)
class StorePlace:
    """What a worker must know to meet the others.

    Attributes:
        address: host and port.
        prefix: of this launch alone.
    """

    address: tuple[str, int]
    prefix: str

    def connect(self) -> Any:
        """For a worker: its own connection."""
        return PrefixStore(self.prefix, connect(self.address))
