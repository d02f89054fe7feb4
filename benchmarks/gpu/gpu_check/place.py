"""What this machine is to the checks: its device, GPUs and versions, and how many ranks a check gets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ncclbench.units import count_text

# First NCCL that lets ranks of one communicator share a GPU.
SHARING_NCCL = (2, 30)
CPU_RANKS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where the checks run.

    Attributes:
        device: "cuda" or "cpu".
        gpus: that CUDA shows.
        torch: (major, minor); nccl: that torch has loaded, None without one.
    """

    device: str
    gpus: int
    torch: tuple[int, ...]
    nccl: tuple[int, ...] | None

    @property
    def can_share(self) -> bool:
        """Whether ranks can share a GPU."""
        return self.nccl is not None and self.nccl[:2] >= SHARING_NCCL

    @property
    def default_backend(self) -> str:
        """The process group of a check that names none."""
        if self.device == "cpu":
            return "gloo"
        return "nccl2" if self.torch >= (2, 15) else "nccl-legacy"

    def ranks(self, wanted: Sequence[int]) -> list[tuple[int, str | None]]:
        """How many ranks a check gets, and why it cannot have them, None where it can.

        Args:
            wanted: numbers that make sense where one GPU is all there is, rising.

        Returns:
            on several GPUs once as many as GPUs, more where the check takes more; on a CPU once; on one
            GPU each number that was wanted.
        """
        if self.device == "cpu":
            return [(next((number for number in wanted if number >= CPU_RANKS), wanted[-1]), None)]
        if self.gpus > 1:
            number = max(self.gpus, wanted[0])
            return [(number, self._why_not(number))]
        return [(number, self._why_not(number)) for number in wanted]

    def shares(self, nranks: int) -> bool:
        """Whether so many ranks have to share a GPU."""
        return self.device == "cuda" and nranks > max(1, self.gpus)

    def _why_not(self, nranks: int) -> str | None:
        if self.gpus == 0:
            return "needs a CUDA device, none is visible"
        if not self.shares(nranks) or self.can_share:
            return None
        own = "none" if self.nccl is None else ".".join(map(str, self.nccl))
        gpus = count_text(self.gpus, "GPU")
        return f"{nranks} ranks on {gpus} need NCCL 2.30 or later, this is {own}"


def numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with: "2.15.0+cu132" is 2, 15, 0."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def installed(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
