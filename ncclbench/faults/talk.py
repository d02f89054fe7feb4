"""What the orchestrator and a rank of a drill say to each other, over a pipe that only the two hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Stage = Literal["start", "n_minus_1", "n"]
Left = Literal["paused", "told", "raised", "counted"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """What a rank is started to do; plain data, so that a fresh interpreter can be given it.

    Attributes:
        rank: the number it is known by, for as long as the trial lasts; of a replacement the victim's.
        seat: its place in the stamps.
        nranks: world size before the fault.
        strategy, backend, fault: names in their tables.
        victim, step: where and when the fault comes.
        nbytes, compute_s, slow_factor, timeout_s: as in DrillPlan.
        store: host and port of the orchestrator's store; ``prefix``: of this trial in it.
        is_replacement: it joins later, and no fault falls on it.
        records: what its flight recorder holds is wanted when it notices the fault.
        share_gpu: ranks may share a GPU.
        token: of the trial, for the environment; ``error_handling``: as in DrillPlan.
    """

    rank: int
    seat: int
    nranks: int
    strategy: str
    backend: str
    fault: str
    victim: int
    step: int
    nbytes: int
    compute_s: float
    slow_factor: float
    timeout_s: float
    store: tuple[str, int]
    prefix: str
    is_replacement: bool
    records: bool
    share_gpu: bool
    token: str
    error_handling: str

    def to_json(self) -> dict[str, Any]:
        """For the command line of a fresh interpreter."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RankTask:
        """Inverse of ``to_json``."""
        return cls(**{**fields, "store": tuple(fields["store"])})


# The orchestrator's orders. Each is carried out to its end and answered, but for Fail and Pause, which
# come while a rank steps.


@dataclass(frozen=True, slots=True)
class Form:
    """Make the group of these members and show that it works.

    Attributes:
        uuid: fresh.
        members: in the order of their new ranks.
        handles: of them, where the strategy has such.
        stage: which group of the trial it is.
    """

    uuid: int
    members: tuple[int, ...]
    handles: tuple[str, ...]
    stage: Stage


@dataclass(frozen=True, slots=True)
class Burst:
    """Measure the bandwidth."""


@dataclass(frozen=True, slots=True)
class Step:
    """Step so often, or until paused where ``count`` is None."""

    count: int | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """To a warm spare: get ready to join now."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Rank 0 of the group: let everybody leave the steps together."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Somebody has failed: leave the operation that you are in."""

    rank: int


@dataclass(frozen=True, slots=True)
class End:
    """Go."""


# What a rank answers.


@dataclass(frozen=True, slots=True)
class Ready:
    """It is up and could join; ``handle`` where the strategy has such."""

    handle: str


@dataclass(frozen=True, slots=True)
class Formed:
    """Its group works: the first collective had the right sums, or not (``correct``)."""

    correct: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """The bandwidth was measured: seconds of one operation."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """It has left its steps.

    Attributes:
        why: "counted": it has done as many as ordered.
        text: what an exception or the orchestrator said.
        handle: for the next group.
        seconds: that it has stepped, where they were counted.
        dumps: of its flight recorders, by backend, where they are wanted.
    """

    why: Left
    text: str
    handle: str
    seconds: float = 0.0
    dumps: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception ended the rank: of its own fault (``is_fault``), or of torch's while recovering."""

    text: str
    is_fault: bool


Order = Form | Burst | Step | Prepare | Pause | Fail | End
Answer = Ready | Formed | Measured | Stopped | Raised
