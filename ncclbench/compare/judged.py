"""From pairs of equal cases to rows: launches against launches, judged as one family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.compare.alike import Launch, Measured, Pair
from ncclbench.compare.between import (
    FEWEST_LAUNCHES,
    NEEDS_LAUNCHES,
    Observed,
    Unit,
    by_node,
    observe,
    ratio_of_two,
    unit_of,
)
from ncclbench.compare.doubts import TOO_COARSE
from ncclbench.compare.rows import (
    FEWEST_FOR_TAILS,
    NO_RATIO,
    Ratio,
    Subject,
    Times,
    comparison_row,
    thin_tails_left_out,
)
from ncclbench.compare.sides import Side
from ncclbench.compare.verdict import Question, Verdict, geometric_mean, judge
from ncclbench.stats.intervals import Floats, LogMean, Margin
from ncclbench.stats.shift import SHIFT, ratio_keys
from ncclbench.stats.summary import median_skew_us
from ncclbench.tables.modes import MODES
from ncclbench.tables.statistics import STATISTICS


def judged_rows(pairs: Sequence[Pair], base: Side, new: Side, margin: Margin) -> list[dict[str, Any]]:
    """The rows of compare, in the order of the pairs; ``base`` and ``new`` in them are the sides' labels."""
    evidence = [None if pair.obstacle is not None else _evidence(pair) for pair in pairs]
    questions = [
        Question(None, margin, math.nan, doubt=pair.obstacle)
        if shown is None
        else _question(pair, shown, margin)
        for pair, shown in zip(pairs, evidence, strict=True)
    ]
    several_arms = len({pair.base_arm for pair in pairs}) > 1
    rows = []
    for pair, shown, question, verdict in zip(pairs, evidence, questions, judge(questions), strict=True):
        names = (
            f"{base.label}:{pair.base_arm}" if several_arms else base.label,
            f"{new.label}:{pair.new_arm}" if several_arms else new.label,
        )
        rows.append(_row(pair, shown, question, verdict, names))
    return rows


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What both sides show of a case whose times can be compared.

    Attributes:
        unit: what counts as one observation.
        unequal: why no claim is possible on these hosts; None where one is.
        about: what a claim would be about; None where the sides themselves.
        together: the same launches gave both sides, in the same order.
    """

    base: Observed
    new: Observed
    unit: Unit
    unequal: str | None
    about: str | None
    together: bool

    def effect(self, base: Floats, new: Floats) -> LogMean | None:
        """new / base of one number per launch."""
        if self.unit == "nodes":
            return ratio_of_two(by_node(base, self.base.hosts), by_node(new, self.new.hosts))
        return ratio_of_two(base, new, self.together)

    def ratio(self, base: Floats, new: Floats) -> Ratio:
        """The same with its interval; of one launch a side too, then without one."""
        keys = ratio_keys("", self.effect(base, new))
        base_us, new_us = geometric_mean(base), geometric_mean(new)
        if keys["ratio"] is None and base_us > 0 and new_us > 0:
            keys["ratio"] = new_us / base_us
        return keys

    @property
    def fewest_samples(self) -> int:
        """In any epoch of either side."""
        return min(self.base.fewest_samples, self.new.fewest_samples)

    @property
    def has_tails(self) -> bool:
        """Whether its epochs have samples enough for a p90."""
        return self.fewest_samples >= FEWEST_FOR_TAILS


def _evidence(pair: Pair) -> _Evidence:
    quantile = STATISTICS[pair.statistic].quantile
    ours, theirs, together = _side_by_side(pair.base.launches, pair.new.launches)
    base, new = observe(ours, quantile), observe(theirs, quantile)
    return _Evidence(base, new, *unit_of(base.hosts, new.hosts), together)


def _side_by_side(base: list[Launch], new: list[Launch]) -> tuple[Sequence[Launch], Sequence[Launch], bool]:
    """Both sides' launches; those of the same runs, if there are any, in the same order and alone."""
    by_run = {id(launch.run): launch for launch in new}
    shared = [launch for launch in base if id(launch.run) in by_run]
    if not shared:
        return base, new, False
    return shared, [by_run[id(launch.run)] for launch in shared], True


def _question(pair: Pair, shown: _Evidence, margin: Margin) -> Question:
    skew_us = None
    if MODES[pair.case.mode].fenced:
        skew_us = max(median_skew_us(pair.base.units), median_skew_us(pair.new.units))
    effect = shown.effect(shown.base.us, shown.new.us)
    return Question(
        effect,
        margin,
        geometric_mean(shown.base.us),
        shown.effect(shown.base.p90_us, shown.new.p90_us) if shown.has_tails else None,
        skew_us,
        _unchecked(pair) or shown.unequal or _too_few(shown, effect, margin),
    )


def _unchecked(pair: Pair) -> str | None:
    """A doubt where the data of one side were checked and those of the other were not."""
    base, new = _is_checked(pair.base), _is_checked(pair.new)
    if base == new:
        return None
    return f"{'NEW' if base else 'BASE'}: data not checked (-c 0), so its times may be of wrong results"


def _is_checked(side: Measured) -> bool:
    return all(unit.wrong is not None for unit in side.units)


def _too_few(shown: _Evidence, effect: LogMean | None, margin: Margin) -> str | None:
    """A doubt where launches are too few for any claim, or where the clock told nothing."""
    base, new = shown.base, shown.new
    base_us, new_us = geometric_mean(base.us), geometric_mean(new.us)
    if not (base_us > 0 and new_us > 0):
        return TOO_COARSE
    if shown.unit == "nodes" or min(len(base), len(new)) >= FEWEST_LAUNCHES:
        return TOO_COARSE if effect is None else None
    if len(base) == len(new) == 1:
        apart = max(base_us, new_us) / min(base_us, new_us) - 1
        word = "differ" if apart > margin.of(base_us) else "agree"
        return f"these two launches {word}: {NEEDS_LAUNCHES}"
    return f"{len(base)} against {len(new)} launches: {NEEDS_LAUNCHES}"


def _within(base: Observed, new: Observed) -> str | None:
    """How much the epochs inside the launches vary, where that is all that is known of variation."""
    told = [f"{100 * spread:.1f} %" for spread in (base.spread, new.spread) if spread is not None]
    if len(base) > 1 or len(new) > 1 or not told:
        return None
    return f"their epochs spread by {' and '.join(told)}"


def _row(
    pair: Pair, shown: _Evidence | None, question: Question, verdict: Verdict, names: tuple[str, str]
) -> dict[str, Any]:
    launches = [*pair.base.launches, *pair.new.launches]
    subject = Subject(
        case=pair.case,
        base=names[0],
        new=names[1],
        statistic=pair.statistic,
        clock=launches[0].units[0].clock if launches else None,
        unit=shown.unit if shown else "launches",
        epochs=min((len(launch.units) for launch in launches), default=0),
        # Precision is a matter of each run; between runs nothing was stopped.
        stopped=None,
    )
    times = _times(shown) if shown else Times()
    return {
        **comparison_row(subject, times, question, verdict, _note(pair, shown, verdict)),
        "base_arm": pair.base_arm,
        "new_arm": pair.new_arm,
        "base_launches": len(shown.base) if shown else len(pair.base.launches),
        "new_launches": len(shown.new) if shown else len(pair.new.launches),
        "base_spread": shown.base.spread if shown else None,
        "new_spread": shown.new.spread if shown else None,
    }


def _times(shown: _Evidence) -> Times:
    base, new = shown.base, shown.new
    shift = [
        {"quantile": name, **shown.ratio(base.shift_us[:, column], new.shift_us[:, column])}
        for column, name in enumerate(SHIFT)
    ]
    return Times(
        base_us=geometric_mean(base.us),
        new_us=geometric_mean(new.us),
        ratio=shown.ratio(base.us, new.us),
        p90=shown.ratio(base.p90_us, new.p90_us) if shown.has_tails else NO_RATIO,
        fastest=shown.ratio(base.fastest_us, new.fastest_us),
        shift=thin_tails_left_out(shift, shown.fewest_samples),
        between_modes=base.between_modes or new.between_modes,
    )


def _note(pair: Pair, shown: _Evidence | None, verdict: Verdict) -> str | None:
    """Why the word is "unclear", what a claim would be about, and which launches are missing."""
    missing = [*pair.base.failures, *pair.new.failures] if shown else []
    parts = [
        verdict.note,
        _within(shown.base, shown.new) if shown else None,
        shown.about if shown else None,
        f"left out: {', '.join(missing)}" if missing else None,
    ]
    return "; ".join(part for part in parts if part) or None
