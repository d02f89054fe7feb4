"""The verdict on two times: same, faster, slower or unclear, and how sure that is.

The effect is a mean of log(new / base), over the epochs of one job or over launches, judged by Student's t:
one method for the p value and the interval. What "same" means is said by ``is_equivalent``, what is
asked at once by ``holm``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ncclbench.compare.doubts import FENCE_BOUND, TOO_COARSE
from ncclbench.stats.intervals import (
    ALPHA,
    FEWEST_EPOCHS,
    Floats,
    LogMean,
    Margin,
    holm,
    is_equivalent,
    log_ratio,
)
from ncclbench.stats.power import detectable

# How much worse the p90 may be under a verdict of "same".
TAIL_MARGIN = 0.10

Word = Literal["same", "faster", "slower", "unclear"]
Tail = Literal["tail worse", "tail unclear"]


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison to be judged. All times are of one statistic of one case.

    Attributes:
        effect: new / base; None where it cannot be said.
        margin: how far apart they may be and still be the same.
        base_us: the base's typical time.
        tail_effect: new / base of the p90; None leaves the tail out of the verdict.
        skew_us: how far apart ranks started, where every operation was fenced; None where not.
        doubt: why nothing but "unclear" can be said, whatever the numbers; None where they may speak.
    """

    effect: LogMean | None
    margin: Margin
    base_us: float
    tail_effect: LogMean | None = None
    skew_us: float | None = None
    doubt: str | None = None


def paired(
    base_us: Floats,
    new_us: Floats,
    margin: Margin,
    base_p90_us: Floats | None = None,
    new_p90_us: Floats | None = None,
    skew_us: float | None = None,
    doubt: str | None = None,
) -> Question:
    """The question on two arms measured side by side; all arrays have shape (epochs,), epoch by epoch."""
    effect = log_ratio(base_us, new_us)
    tail = None if base_p90_us is None or new_p90_us is None else log_ratio(base_p90_us, new_p90_us)
    if effect is None and base_us.size >= 2:
        doubt = doubt or TOO_COARSE
    elif base_us.size < FEWEST_EPOCHS:
        doubt = doubt or f"{base_us.size} epochs on both arms, a verdict needs {FEWEST_EPOCHS}"
    return Question(effect, margin, geometric_mean(base_us), tail, skew_us, doubt)


def geometric_mean(times_us: Floats) -> float:
    """The typical one of several times; NaN for none, 0 where one is."""
    if not times_us.size:
        return math.nan
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(times_us).mean()))


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
        detectable: the smallest ratio - 1 that would be found in 90 of 100 such measurements, with the
            correction for all comparisons judged together; None where it cannot be said.
        note: why the word is "unclear" where that is not the noise; None otherwise.
    """

    word: Word
    tail: Tail | None = None
    effect: LogMean | None = None
    p_holm: float | None = None
    simultaneous: tuple[float, float] | None = None
    margin: float | None = None
    beyond_margin: bool = False
    detectable: float | None = None
    note: str | None = None


def verdict(
    base_us: Floats,
    new_us: Floats,
    margin: Margin,
    base_p90_us: Floats | None = None,
    new_p90_us: Floats | None = None,
) -> Verdict:
    """The verdict on one paired comparison alone; all arrays have shape (epochs,)."""
    return judge([paired(base_us, new_us, margin, base_p90_us, new_p90_us)])[0]


def judge(family: Sequence[Question]) -> list[Verdict]:
    """The verdicts on all comparisons asked about together, in the order given.

    The more is asked, the more differences chance alone will show: Holm's correction holds the chance
    of any false "faster" or "slower" in the family at 5 %; the simultaneous interval is Bonferroni's.
    """
    effects = [question.effect for question in family]
    tested = [index for index, effect in enumerate(effects) if effect is not None]
    adjusted = holm([effect.p_different() for effect in effects if effect is not None])
    p_holm = dict(zip(tested, adjusted, strict=True))
    return [
        Verdict("unclear", note=question.doubt)
        if effect is None
        else _judge_one(question, effect, p_holm[index], len(tested))
        for index, (question, effect) in enumerate(zip(family, effects, strict=True))
    ]


def _judge_one(question: Question, effect: LogMean, p_holm: float, family_size: int) -> Verdict:
    margin = question.margin.of(question.base_us)
    simultaneous = effect.interval(1 - ALPHA / family_size)
    word, tail, note = _word(question, effect, p_holm, margin)
    return Verdict(
        word=word,
        tail=tail,
        effect=effect,
        p_holm=p_holm,
        simultaneous=simultaneous,
        margin=margin,
        beyond_margin=question.doubt is None and _lies_outside(simultaneous, margin),
        detectable=detectable(effect, family_size) if question.doubt is None else None,
        note=note,
    )


def _word(
    question: Question, effect: LogMean, p_holm: float, margin: float
) -> tuple[Word, Tail | None, str | None]:
    if question.doubt is not None:
        return "unclear", None, question.doubt
    if is_equivalent(effect, margin):
        if question.skew_us is not None and question.skew_us > margin * question.base_us:
            return "unclear", None, FENCE_BOUND
        return "same", _tail(question.tail_effect), None
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
