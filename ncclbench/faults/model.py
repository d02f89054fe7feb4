"""What a drill is asked for, and how its parts speak to each other.

The parts: ``drill.run_drill`` goes through trials; a ``RunTrial`` makes one of them with processes of its
own; a ``Policy`` says which rank is too slow to stay. ``restart`` has a RunTrial of its own, since it is
torchrun that starts its ranks; all other strategies share ``trial.run_trial``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from ncclbench.store.drills import DrillTrial
from ncclbench.supervise.signals import EndSignals

# In the environment of every process that a trial starts, with the trial's token: what is still alive
# afterwards can be told by it, also where its parent is gone.
MARKER = "NCCLBENCH_DRILL"

# nccl2 and nccl-legacy act on it when an operation fails; launchers set it differently (torchrun: 1), so
# every rank of a drill is started with one value, which is printed.
ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
ERROR_HANDLING_DEFAULT = "3"

# A hang has no sign but silence; a rank that stood still for this part of the timeout is called hung.
SILENCE_PART = 0.2

# What every step does between two operations, and how much longer it takes a slow rank.
COMPUTE_S = 0.002
SLOW_FACTOR = 10.0

# Detaching and replacing cost about as much as some seconds of slow steps: less than this is left alone, as
# a factor of the time of a step.
LEAST_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What to drill.

    Attributes:
        fault: name in FAULTS.
        victim: rank that it falls on.
        step: from 0, at which it comes; steps are counted once all are up and the bandwidth is measured.
        strategies: names in STRATEGIES, all to be had here.
        trials: of each strategy.
        spare: how a replacement stands by: started when asked for ("cold"), or forked beforehand ("warm").
        nranks: world size, at least 3.
        backend: name in BACKENDS.
        timeout_s: of the process groups, and so the longest that an operation may wait.
        nbytes: of each all_reduce.
        compute_s: what a step does beside it; ``slow_factor`` times as much on a slow rank.
        seed: draws the order of strategies in each round of trials.
        share_gpu: ranks may share a GPU.
        error_handling: value of TORCH_NCCL_ASYNC_ERROR_HANDLING in every rank.
    """

    fault: str
    victim: int
    step: int
    strategies: tuple[str, ...]
    trials: int
    spare: Literal["cold", "warm"]
    nranks: int
    backend: str
    timeout_s: float
    nbytes: int = 1 << 20
    compute_s: float = COMPUTE_S
    slow_factor: float = SLOW_FACTOR
    seed: int = 0
    share_gpu: bool = False
    error_handling: str = ERROR_HANDLING_DEFAULT

    @property
    def silence_s(self) -> float:
        """After so long without a step a rank is called hung."""
        return self.timeout_s * SILENCE_PART

    @property
    def survivors(self) -> tuple[int, ...]:
        """The ranks that the fault does not fall on."""
        return tuple(rank for rank in range(self.nranks) if rank != self.victim)

    def to_json(self) -> dict[str, Any]:
        """For run.json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """One trial.

    Attributes:
        plan: of the drill.
        strategy: name in STRATEGIES.
        number: from 0, of this strategy.
        token: of this trial alone; every process of it has it in its environment under MARKER.
        signals: ending signals; a trial waits on ``signals.wakeup`` and calls ``signals.check()``.
        flight: folder for what the survivors' flight recorders hold when they notice; None keeps nothing.
    """

    plan: DrillPlan
    strategy: str
    number: int
    token: str
    signals: EndSignals
    flight: Path | None = None


# One trial from start to end. Whatever happens it ends every process that it has started and returns what
# it saw: a recovery that does not come is a trial with ``recovered`` false and an ``outcome``, no error.
# ``leftover_processes`` is counted and filled in by ``drill.run_drill``. Raises Interrupted when a signal
# came, and MeasurementError where the trial could not be brought as far as the fault.
RunTrial = Callable[[TrialRequest], DrillTrial]


@dataclass(frozen=True, slots=True)
class Spared:
    """What a policy says where it detaches nobody.

    Attributes:
        rank: who is late, though not by enough; None where nobody is late.
        words: why, as in "the policy left it alone: ...".
    """

    rank: int | None
    words: str


class Policy(Protocol):
    """Says which rank is too slow, by waiting times alone; ``straggler.make_policy(plan)`` makes one."""

    def look(self, waits_us: Mapping[int, Sequence[float]]) -> int | None:
        """The rank to detach, or None.

        Called by the orchestrator every few milliseconds while ranks step.

        Args:
            waits_us: by rank, what each spent in the all_reduce of the newest steps that all ranks have
                done, at most 64 of them, the oldest first, the same steps for each. Whoever comes last
                waits least.
        """

    def why_not(self, waits_us: Mapping[int, Sequence[float]], steps: int) -> Spared | None:
        """Why nobody is to be detached, once enough steps were seen for that; None before.

        Args:
            waits_us: as for ``look``.
            steps: that all ranks have done since the policy began to look.
        """
