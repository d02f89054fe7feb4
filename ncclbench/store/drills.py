"""What a drill keeps: its trials and contract cases, each a line of samples.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ncclbench.store.bounds import Index, Rate, Time

# Milliseconds since the fault, in this order; null where a strategy has no such phase or it was not reached.
PHASES = (
    "first_notice",
    "last_notice",
    "decision",
    "detach",
    "first_good_n_minus_1",
    "replacement_ready",
    "rejoin",
    "first_good_n",
)

PhasesMs = dict[str, Time | None]


class DrillTrial(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="trial"):
    """One fault and what followed.

    Attributes:
        number: from 0, of this strategy.
        fault: name in FAULTS; ``victim`` the rank, ``step`` the iteration at which it came.
        strategy: name in STRATEGIES.
        phases_ms: by PHASES, milliseconds since the fault.
        notices_ms: when each survivor noticed, by rank; None for one that never did.
        correct: whether every operation after the recovery had the right sums for its members.
        recovered: whether all phases that the strategy has were reached, or a policy left a slow rank where
            it is, since it is not slow enough: then none was.
        outcome: in words, where it was not, and where there is more to say than times.
        before_GBs, during_GBs, after_GBs: steady bus bandwidth at n ranks before the fault, at n-1, and at n
            again; None where not reached.
        before_steps_per_s, slow_steps_per_s, during_steps_per_s, after_steps_per_s: how many steps the job
            made in a second: before the fault, with the slow rank among them until it was named, at n-1, and
            at n again; None where not reached.
        clock_error_us: of phases that are told by several hosts' clocks; 0 on one host.
        leftover_processes: alive after the trial though they should not be.
        spare: how the replacement stood by.
        replacement_asked_ms: since the fault, when the replacement was asked for: after the bandwidth at n-1
            was measured. What it then took is ``replacement_ready`` less this. None where none was.
    """

    number: Index
    fault: str
    victim: Index
    step: Index
    strategy: str
    phases_ms: PhasesMs
    notices_ms: dict[str, Time | None]
    correct: bool
    recovered: bool
    outcome: str | None = None
    before_GBs: Rate | None = None
    during_GBs: Rate | None = None
    after_GBs: Rate | None = None
    before_steps_per_s: Rate | None = None
    slow_steps_per_s: Rate | None = None
    during_steps_per_s: Rate | None = None
    after_steps_per_s: Rate | None = None
    clock_error_us: Time = 0.0
    leftover_processes: Index = 0
    spare: Literal["cold", "warm"] = "cold"
    replacement_asked_ms: Time | None = None

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if unknown := sorted(set(self.phases_ms) - set(PHASES)):
            return f"phases_ms: no phase is called {unknown[0]!r}"
        return _no_ranks("notices_ms", self.notices_ms)


class ContractOutcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="contract"):
    """What torch did in one case of its contract, on every rank.

    Attributes:
        case: name in CASES.
        outcomes: in words, by rank.
        seconds: by rank.
        consistent: whether all ranks that take part were told the same, within the timeout that they gave.
        expected: what the documentation, or else common sense, promises.
        recovered: whether a fresh uuid worked afterwards; None where not tried.
        command: how to see it again.
    """

    case: str
    outcomes: dict[str, str]
    seconds: dict[str, Time]
    consistent: bool
    expected: str
    recovered: bool | None
    command: str

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        return _no_ranks("outcomes", self.outcomes) or _no_ranks("seconds", self.seconds)


def _no_ranks(name: str, by_rank: Mapping[str, object]) -> str | None:
    strange = [rank for rank in by_rank if not (rank.isascii() and rank.isdigit())]
    return f"{name}: {strange[0]!r} is no rank" if strange else None
