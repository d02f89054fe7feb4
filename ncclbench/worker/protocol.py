"""What a worker and its supervisor say to each other.

Messages are plain data over a pipe that only the two of them hold; the supervisor answers each of rank
0's when it has dealt with it, so that the worker can wait for quiet before it starts the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ncclbench.plan.model import Plan
from ncclbench.store.model import Unit


@dataclass(frozen=True, slots=True)
class Program:
    """Something to measure that is no sweep.

    Attributes:
        name: in ``worker.programs.PROGRAMS``.
        request: what it takes, plain data.
    """

    name: str
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker is forked to do.

    Attributes:
        rank, local_rank, local_ranks: its place; ``local_ranks`` is how many share its host.
        nranks: world size.
        one_host: nobody is elsewhere, so sockets stay on the loopback.
        plan: what to measure; None measures nothing of the kind.
        program: what else to do; with neither the environment is described and nothing more.
        batches: case key to k, where a former attempt has fixed it.
        attempt: number of this start of the run.
        timeout_s: seconds that one operation may take.
        team: which of the plan's teams the worker belongs to.
        left_out: ids of arms of it that are not measured.
        variables: of its arms, to be set before a library reads them.
    """

    rank: int
    local_rank: int
    local_ranks: int
    nranks: int
    one_host: bool
    plan: Plan | None
    program: Program | None
    batches: dict[str, int]
    attempt: int
    timeout_s: float
    team: int = 0
    left_out: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def share_gpu(self) -> bool:
        """Whether ranks may share a GPU."""
        if self.plan is not None:
            return self.plan.share_gpu
        return self.program is not None and bool(self.program.request.get("share_gpu"))


@dataclass(frozen=True, slots=True)
class Described:
    """Rank 0: the environment of every rank; the answer is whether to go on."""

    environment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Health:
    """Rank 0: what every rank's GPU and NICs say, ``before`` anything is measured or after all of it."""

    before: bool
    readings: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ArmReady:
    """Rank 0: what an arm really is, or why it is not there."""

    arm: str
    device: str | None
    implementation: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Rank 0: cases that the arm does not take, by key, with the reason."""

    arm: str
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ready:
    """Rank 0: nothing is left to do; the answer is ``Orders``, or None to end."""


@dataclass(frozen=True, slots=True)
class Cold:
    """Rank 0: what making a group and its first operation took on each rank, microseconds."""

    arm: str
    topology: str
    epoch: int
    init_us: list[float]
    first_op_us: list[float]


@dataclass(frozen=True, slots=True)
class Measured:
    """Rank 0: a case in an epoch on all its arms, and the seconds it took."""

    case: str
    epoch: int
    units: list[Unit]
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """Rank 0: what a program has found up to now.

    Attributes:
        what: as the program names it.
        data: plain data and arrays of numbers.
    """

    what: str
    data: Any


@dataclass(frozen=True, slots=True)
class FenceQuality:
    """Rank 0: which fence it is, and how well it aligns ranks, microseconds."""

    kind: str
    median_us: float
    p95_us: float
    clock_error_us: float


@dataclass(frozen=True, slots=True)
class Raised:
    """Any rank: an exception ended the worker.

    Attributes:
        text: its first line; ``kind``: its class.
        dumps: (backend, JSON) of the worker's flight recorders, where they are asked for.
    """

    text: str
    kind: str
    dumps: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """Any rank: everything asked for is measured."""
