"""The row of a comparison, with the same keys whether its unit is the epoch, the launch or the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncclbench.compare.verdict import Question, Verdict
from ncclbench.plan.model import Case
from ncclbench.stats.series import Series
from ncclbench.stats.shift import ratio_keys
from ncclbench.stats.stopping import finite_half_width
from ncclbench.stats.summary import series_keys

# A case that was never to run is no comparison; one that failed is, and its answer is unclear.
NEVER_MEANT = frozenset({"skipped", "unavailable"})

# With fewer samples in an epoch its p10 and p90 are little more than its extremes.
FEWEST_FOR_TAILS = 10
_TAILS = ("p10", "p90")

# ``ratio``, ``ci_low`` and ``ci_high``, as ``stats.shift.ratio_keys`` has them without a prefix.
Ratio = Mapping[str, float | None]
NO_RATIO: Ratio = ratio_keys("", None)


@dataclass(frozen=True, slots=True)
class Times:
    """What both sides show of a case; as by default where its times mean nothing.

    Attributes:
        base_us, new_us: the typical time of each side.
        ratio, p90, fastest: new / base of the statistic, of the p90, of the fastest rank's time.
        shift: as ``thin_tails_left_out`` leaves it.
        between_modes: the statistic of a side lies between two modes of its samples.
        over_epochs: the ratio's series; None where its unit is not the epoch.
    """

    base_us: float | None = None
    new_us: float | None = None
    ratio: Ratio = field(default_factory=lambda: NO_RATIO)
    p90: Ratio = field(default_factory=lambda: NO_RATIO)
    fastest: Ratio = field(default_factory=lambda: NO_RATIO)
    shift: list[dict[str, Any]] = field(default_factory=list)
    between_modes: bool = False
    over_epochs: Series | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared.

    Attributes:
        base, new: the names of the sides.
        clock: of the samples; None where there are none.
        unit: what counts as one observation: "epochs", "launches" or "nodes".
        epochs: of a launch, the fewest.
        stopped: why no epoch was added; None where nothing tells.
    """

    case: Case
    base: str
    new: str
    statistic: str
    clock: str | None
    unit: str
    epochs: int
    stopped: str | None


def comparison_row(
    subject: Subject, times: Times, question: Question, verdict: Verdict, note: str | None
) -> dict[str, Any]:
    """The keys of docs/results-format.md that every comparison has, those of its case first."""
    effect = verdict.effect
    simultaneous_low, simultaneous_high = verdict.simultaneous or (None, None)
    return {
        **subject.case.to_json(),
        "statistic": subject.statistic,
        "clock": subject.clock,
        "base": subject.base,
        "new": subject.new,
        "base_us": times.base_us,
        "new_us": times.new_us,
        **times.ratio,
        "half_width": finite_half_width(effect),
        "p": effect.p_different() if effect else None,
        "p_holm": verdict.p_holm,
        "simultaneous_low": simultaneous_low,
        "simultaneous_high": simultaneous_high,
        "verdict": verdict.word,
        "tail": verdict.tail,
        "beyond_margin": verdict.beyond_margin,
        "margin": verdict.margin,
        "detectable": verdict.detectable,
        "unit": subject.unit,
        "epochs": subject.epochs,
        "stopped": subject.stopped,
        "doubt": verdict.note,
        "fence_bound": _is_fence_bound(question),
        "note": note,
        **_prefixed("p90_", times.p90),
        **_prefixed("fastest_", times.fastest),
        "shift": times.shift,
        "between_modes": times.between_modes,
        **series_keys(times.over_epochs),
    }


def thin_tails_left_out(shift: Sequence[Mapping[str, Any]], fewest_samples: int) -> list[dict[str, Any]]:
    """A shift function with ``reason`` on each entry: why it has no ratio for want of samples, else null.

    Args:
        shift: as ``stats.shift.shift_function`` makes it.
        fewest_samples: in any epoch of either side.
    """
    entries = []
    for entry in shift:
        name, reason = entry["quantile"], None
        if name in _TAILS and fewest_samples < FEWEST_FOR_TAILS:
            reason = f"{name} needs {FEWEST_FOR_TAILS} samples in every epoch, not {fewest_samples}"
        entries.append({**entry, **(NO_RATIO if reason else {}), "reason": reason})
    return entries


def _is_fence_bound(question: Question) -> bool:
    """Whether the fence's skew hides differences as small as the margin."""
    skew_us, base_us = question.skew_us, question.base_us
    # A typical time of zero or none (NaN) is a doubt of its own.
    return skew_us is not None and base_us > 0 and skew_us > question.margin.of(base_us) * base_us


def _prefixed(prefix: str, ratio: Ratio) -> dict[str, float | None]:
    return {f"{prefix}{key}": value for key, value in ratio.items()}
