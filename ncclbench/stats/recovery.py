"""What the trials of a drill have in common: per strategy, each phase with its interval over trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ncclbench.stats.over_epochs import t_interval
from ncclbench.store.drills import PHASES, ContractOutcome, DrillTrial
from ncclbench.tables.strategies import STRATEGIES
from ncclbench.units import noun_text

# Phases in words.
PHASE_WORDS = {
    "first_notice": "first survivor notices",
    "last_notice": "last survivor notices",
    "decision": "decision",
    "detach": "victim detached",
    "first_good_n_minus_1": "first good collective at n-1",
    "replacement_ready": "replacement ready",
    "rejoin": "replacement joined",
    "first_good_n": "first good collective at n",
}


@dataclass(frozen=True, slots=True)
class OverTrials:
    """One quantity over the trials that have it.

    Attributes:
        n: how many they are, at least 1.
        median: of them, in the quantity's unit.
        low, high: 95 % t interval of the geometric mean; None of fewer than three trials.
        worst: the largest.
    """

    n: int
    median: float
    low: float | None
    high: float | None
    worst: float


def over_trials(values: Iterable[float | None]) -> OverTrials | None:
    """Trials together; None where none has a value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = t_interval(known)
    return OverTrials(len(known), median(known), low, high, max(known))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of ``count`` trials, and whether they recovered."""

    text: str
    count: int
    recovered: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """One strategy against one fault.

    Attributes:
        fault: name in FAULTS; ``strategy``: name in STRATEGIES; ``spare``: how the replacement stood by.
        trials: how many; ``recovered``, ``correct``: how many of them did or were.
        phases_ms: by PHASES, since the fault; None where no trial reached it.
        asked_ms: since the fault, when the replacement was asked for: once the bandwidth at n-1 was measured.
        start_ms: what the replacement then took until it was ready.
        before_GBs, during_GBs, after_GBs: bus bandwidth at n ranks, at n-1, and at n again.
        before_steps_per_s, slow_steps_per_s, during_steps_per_s, after_steps_per_s: the job's pace: before
            the fault, with a slow rank, at n-1, and at n again.
        watched: trials in which nothing had to recover: nobody was to do anything, or a policy left a slow
            rank where it was.
        kept: bandwidth after the recovery over that before the fault, trial by trial.
        leftover_processes: of all trials.
        outcomes: in words, what became of trials that did not recover, and of others where there is more to
            say than times; the most frequent first.
        clock_error_us: the largest.
    """

    fault: str
    strategy: str
    spare: str
    trials: int
    recovered: int
    watched: int
    correct: int
    phases_ms: dict[str, OverTrials | None]
    asked_ms: OverTrials | None
    start_ms: OverTrials | None
    before_GBs: OverTrials | None
    during_GBs: OverTrials | None
    after_GBs: OverTrials | None
    before_steps_per_s: OverTrials | None
    slow_steps_per_s: OverTrials | None
    during_steps_per_s: OverTrials | None
    after_steps_per_s: OverTrials | None
    kept: OverTrials | None
    leftover_processes: int
    outcomes: list[Outcome]
    clock_error_us: float

    @property
    def unmeasured(self) -> str:
        """What drills do not see of the strategy and why; empty where they see all."""
        entry = STRATEGIES.get(self.strategy)
        return "" if entry is None else entry.unmeasured

    @property
    def why_watched(self) -> str:
        """What was done in the trials that are only watched, in words."""
        entry = STRATEGIES.get(self.strategy)
        recovers = entry is not None and "first_good_n" in entry.phases_of(self.fault)
        return "nobody was detached" if recovers else "no recovery tried"

    @property
    def only_watched(self) -> bool:
        """Whether nobody was to recover: what was to be seen was seen, and no operation came after."""
        return self.watched == self.trials

    def to_json(self) -> dict[str, Any]:
        """Plain data, as ``drill --json`` has it in ``summary``."""
        return asdict(self)


def recoveries(trials: Sequence[DrillTrial]) -> list[Recovery]:
    """One for each fault, strategy and kind of spare, in the order in which they first came."""
    groups: dict[tuple[str, str, str], list[DrillTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.fault, trial.strategy, trial.spare), []).append(trial)
    return [_recovery(own) for own in groups.values()]


def _recovery(trials: Sequence[DrillTrial]) -> Recovery:
    first = trials[0]
    outcomes = Counter(
        (trial.outcome or "it gave no reason", trial.recovered)
        for trial in trials
        if trial.outcome or not trial.recovered
    )
    return Recovery(
        fault=first.fault,
        strategy=first.strategy,
        spare=first.spare,
        trials=len(trials),
        recovered=sum(trial.recovered for trial in trials),
        watched=sum(map(_only_watched, trials)),
        correct=sum(trial.correct for trial in trials),
        phases_ms={phase: over_trials(trial.phases_ms.get(phase) for trial in trials) for phase in PHASES},
        asked_ms=over_trials(trial.replacement_asked_ms for trial in trials),
        start_ms=over_trials(_start_ms(trial) for trial in trials),
        before_GBs=over_trials(trial.before_GBs for trial in trials),
        during_GBs=over_trials(trial.during_GBs for trial in trials),
        after_GBs=over_trials(trial.after_GBs for trial in trials),
        before_steps_per_s=over_trials(trial.before_steps_per_s for trial in trials),
        slow_steps_per_s=over_trials(trial.slow_steps_per_s for trial in trials),
        during_steps_per_s=over_trials(trial.during_steps_per_s for trial in trials),
        after_steps_per_s=over_trials(trial.after_steps_per_s for trial in trials),
        kept=over_trials(_kept(trial) for trial in trials),
        leftover_processes=sum(trial.leftover_processes for trial in trials),
        outcomes=[Outcome(text, count, recovered) for (text, recovered), count in outcomes.most_common()],
        clock_error_us=max(trial.clock_error_us for trial in trials),
    )


def _only_watched(trial: DrillTrial) -> bool:
    good = (trial.phases_ms.get("first_good_n_minus_1"), trial.phases_ms.get("first_good_n"))
    return trial.recovered and good == (None, None)


def _start_ms(trial: DrillTrial) -> float | None:
    ready_ms, asked_ms = trial.phases_ms.get("replacement_ready"), trial.replacement_asked_ms
    return None if ready_ms is None or asked_ms is None else max(0.0, ready_ms - asked_ms)


def _kept(trial: DrillTrial) -> float | None:
    if not trial.before_GBs or trial.after_GBs is None:
        return None
    return trial.after_GBs / trial.before_GBs


def by_outcome(outcome: ContractOutcome) -> list[tuple[str, str, float | None]]:
    """What ranks were told in a contract case: the ranks, the words, the longest that took in seconds."""
    ranks: dict[str, list[str]] = {}
    for rank, words in outcome.outcomes.items():
        ranks.setdefault(words, []).append(rank)
    return [
        (
            f"{noun_text(len(own), 'rank')} {', '.join(own)}",
            words,
            max((outcome.seconds[rank] for rank in own if rank in outcome.seconds), default=None),
        )
        for words, own in ranks.items()
    ]
