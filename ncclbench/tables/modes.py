"""MODES: the ways one case is run, each with what its number means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run a case.

    Attributes:
        name: as typed after ``--modes``.
        description: what a sample of it is.
        fenced: every operation is preceded by the fence, so its skew bounds what can be told apart.
        devices: kinds of device it exists on.
    """

    name: str
    description: str
    fenced: bool
    devices: tuple[str, ...]


_ENTRIES = (
    Mode("isolated", "fence, one operation, synchronize: latency", True, ("cpu", "cuda")),
    Mode(
        "back-to-back",
        "k operations, one synchronize: throughput, what nccl-tests prints; a sample is one batch",
        False,
        ("cpu", "cuda"),
    ),
    Mode("graph", "k operations captured in a CUDA graph; a sample is one replay", False, ("cuda",)),
)

MODES: dict[str, Mode] = {entry.name: entry for entry in _ENTRIES}

# Which mode answers which question best; the first that was measured is taken.
LATENCY_MODES = ("isolated", "graph", "back-to-back")
BANDWIDTH_MODES = ("back-to-back", "graph", "isolated")
