"""The verdict on paired times: same, faster, slower or unclear, and how sure that is.

The unit is the epoch. The effect is the mean over epochs of log(new / base), judged by Student's t:
one method for the p value and the interval. What "same" means is said by ``is_equivalent``, what is
asked at once by ``holm``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ncclbench.stats.intervals import Floats, LogMean, Margin, holm, is_equivalent, log_mean

ALPHA = 0.05

# Under this many epochs a t interval is so wide, and so much at the mercy of normality, that no word
# but "unclear" is honest.
FEWEST_EPOCHS = 6

# How much worse the p90 may be under a verdict of "same".
TAIL_MARGIN = 0.10

FENCE_BOUND = "fence-bound, use back-to-back or graph"

Word = Literal["same", "faster", "slower", "unclear"]
Tail = Literal["tail worse", "tail unclear"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """What two arms took on one case, epoch by epoch.

    Attributes:
        base_us: shape (epochs,): the statistic of the base arm in each epoch.
        new_us: shape (epochs,): of the arm it is compared with, in the same epochs.
        margin: how far apart they may be and still be the same.
        base_p90_us: shape (epochs,), or None to leave the tail out of the verdict.
        new_p90_us: likewise.
        skew_us: how far apart ranks started, where every operation was fenced; None where not.
    """

    base_us: Floats
    new_us: Floats
    margin: Margin
    base_p90_us: Floats | None = None
    new_p90_us: Floats | None = None
    skew_us: float | None = None

    @property
    def effect(self) -> LogMean | None:
        """new / base over epochs; None where it cannot be said."""
        return log_ratio(self.base_us, self.new_us)

    @property
    def tail_effect(self) -> LogMean | None:
        """The same of the p90."""
        if self.base_p90_us is None or self.new_p90_us is None:
            return None
        return log_ratio(self.base_p90_us, self.new_p90_us)

    @property
    def base_level_us(self) -> float:
        """The base's typical time: geometric mean over epochs."""
        return float(np.exp(np.log(self.base_us).mean()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be claimed about new against base. All ratios are of times: above 1 is slower.

    Attributes:
        word: the verdict.
        tail: said beside "same" where the p90 may be worse; None otherwise.
        effect: the ratio over epochs; None where it cannot be said.
        p_holm: p of "no difference", corrected for all comparisons judged together; None likewise.
        simultaneous: interval of the ratio that holds for all of them at once; None likewise.
        margin: the margin of equivalence as a fraction; None likewise.
        beyond_margin: that interval lies wholly outside the margin.
        note: why the word is "unclear" where that is not the noise; None otherwise.
    """

    word: Word
    tail: Tail | None = None
    effect: LogMean | None = None
    p_holm: float | None = None
    simultaneous: tuple[float, float] | None = None
    margin: float | None = None
    beyond_margin: bool = False
    note: str | None = None


def log_ratio(base_us: Floats, new_us: Floats) -> LogMean | None:
    """The mean over epochs of log(new / base); None for fewer than two epochs or a time of zero."""
    if not bool((base_us > 0).all() and (new_us > 0).all()):
        return None
    return log_mean(new_us / base_us)


def verdict(
    base_us: Floats,
    new_us: Floats,
    margin: Margin,
    base_p90_us: Floats | None = None,
    new_p90_us: Floats | None = None,
) -> Verdict:
    """The verdict on one comparison alone; all arrays have shape (epochs,)."""
    return judge([Pairs(base_us, new_us, margin, base_p90_us, new_p90_us)])[0]


def judge(family: Sequence[Pairs]) -> list[Verdict]:
    """The verdicts on all comparisons of one question, in the order given.

    The more is asked, the more differences chance alone will show: Holm's correction holds the chance
    of any false "faster" or "slower" in the family at 5 %; the simultaneous interval is Bonferroni's.
    """
    effects = [pairs.effect for pairs in family]
    tested = [index for index, effect in enumerate(effects) if effect is not None]
    adjusted = holm([effect.p_different() for effect in effects if effect is not None])
    p_holm = dict(zip(tested, adjusted, strict=True))
    return [
        Verdict("unclear", note=_why_no_effect(pairs))
        if effect is None
        else _judge_one(pairs, effect, p_holm[index], len(tested))
        for index, (pairs, effect) in enumerate(zip(family, effects, strict=True))
    ]


def _judge_one(pairs: Pairs, effect: LogMean, p_holm: float, family_size: int) -> Verdict:
    margin = pairs.margin.of(pairs.base_level_us)
    simultaneous = effect.interval(1 - ALPHA / family_size)
    word, tail, note = _word(pairs, effect, p_holm, margin)
    return Verdict(
        word=word,
        tail=tail,
        effect=effect,
        p_holm=p_holm,
        simultaneous=simultaneous,
        margin=margin,
        beyond_margin=effect.n >= FEWEST_EPOCHS and _lies_outside(simultaneous, margin),
        note=note,
    )


def _word(
    pairs: Pairs, effect: LogMean, p_holm: float, margin: float
) -> tuple[Word, Tail | None, str | None]:
    if effect.n < FEWEST_EPOCHS:
        return "unclear", None, f"{effect.n} epochs, a verdict needs {FEWEST_EPOCHS}"
    if is_equivalent(effect, margin):
        if pairs.skew_us is not None and pairs.skew_us > margin * pairs.base_level_us:
            return "unclear", None, FENCE_BOUND
        return "same", _tail(pairs.tail_effect), None
    if p_holm < ALPHA:
        return ("slower" if effect.mean > 0 else "faster"), None, None
    return "unclear", None, None


def _tail(effect: LogMean | None) -> Tail | None:
    """Whether the p90 is shown not to be worse (None), shown to be, or neither."""
    if effect is None or effect.p_not_below(1 + TAIL_MARGIN) < ALPHA:
        return None
    return "tail worse" if effect.p_not_above(1 + TAIL_MARGIN) < ALPHA else "tail unclear"


def _lies_outside(interval: tuple[float, float], margin: float) -> bool:
    low, high = interval
    return low > 1 + margin or high < 1 / (1 + margin)


def _why_no_effect(pairs: Pairs) -> str:
    if pairs.base_us.size < 2:
        return f"{pairs.base_us.size} epochs on both arms, a verdict needs {FEWEST_EPOCHS}"
    return "times of zero: the clock is too coarse for this case"
