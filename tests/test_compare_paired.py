"""Verdicts that can be believed: error rates, invariants, and what stands in the way of a verdict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.compare.doubts import FENCE_BOUND
from ncclbench.compare.verdict import Question, Verdict, judge, paired, verdict
from ncclbench.stats.intervals import Floats, Margin, log_ratio_of_two

MARGIN = Margin(0.03, 0.0)
TRIALS = 2000

NOISES = {
    "normal": lambda generator, sd, shape: 1 + sd * generator.normal(size=shape),
    "log-normal": lambda generator, sd, shape: generator.lognormal(0, sd, shape),
    "heavy tail": lambda generator, sd, shape: np.exp(sd * generator.standard_t(3, shape)),
}

epoch_times = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=16)


def times(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def words(noise: str, sd: float, ratio: float, epochs: int = 8) -> list[str]:
    """The verdicts of many trials with a known truth; the machine's level drifts from epoch to epoch."""
    generator = np.random.default_rng(11)
    level = 100 * generator.lognormal(0, 0.1, (TRIALS, epochs))
    base = level * NOISES[noise](generator, sd, (TRIALS, epochs))
    new = ratio * level * NOISES[noise](generator, sd, (TRIALS, epochs))
    return [verdict(one, other, MARGIN).word for one, other in zip(base, new, strict=True)]


# Error rates. Two thousand trials at a true 5 % give 4 to 6 % in 95 of 100 seeds.


@pytest.mark.parametrize("sd", [0.01, 0.05])
@pytest.mark.parametrize("noise", NOISES)
def test_equal_arms_are_called_different_in_at_most_one_of_twenty(noise: str, sd: float) -> None:
    told = words(noise, sd, 1.0)
    assert told.count("faster") + told.count("slower") <= 0.06 * TRIALS


@pytest.mark.parametrize("ratio", [1.03, 1 / 1.03])
@pytest.mark.parametrize("sd", [0.005, 0.02])
@pytest.mark.parametrize("noise", NOISES)
def test_arms_a_margin_apart_are_called_the_same_in_at_most_one_of_twenty(
    noise: str, sd: float, ratio: float
) -> None:
    assert words(noise, sd, ratio).count("same") <= 0.05 * TRIALS


def test_verdicts_are_found_where_there_is_one() -> None:
    assert words("log-normal", 0.01, 1.0).count("same") >= 0.98 * TRIALS
    assert words("log-normal", 0.03, 1.10).count("slower") >= 0.98 * TRIALS
    assert words("log-normal", 0.03, 1 / 1.10).count("faster") >= 0.98 * TRIALS


def test_more_epochs_narrow_the_interval() -> None:
    generator = np.random.default_rng(12)

    def width(epochs: int) -> float:
        ratios = generator.lognormal(0, 0.05, (500, epochs))
        effects = [verdict(np.ones(epochs), one, MARGIN).effect for one in ratios]
        return float(np.mean([math.log(high / low) for low, high in (e.interval() for e in effects if e)]))

    widths = [width(epochs) for epochs in (2, 4, 8, 16, 32)]
    assert widths == sorted(widths, reverse=True)


def test_a_family_is_judged_harder_than_one() -> None:
    """Twenty comparisons of equal arms: any false word among them in at most 5 % of families."""
    generator = np.random.default_rng(13)
    false = 0
    for _ in range(400):
        sets = generator.lognormal(0, 0.05, (20, 2, 8))
        family = judge([paired(base, new, MARGIN) for base, new in sets])
        false += any(one.word in ("faster", "slower") for one in family)
    assert false <= 0.075 * 400  # 97.5 % of seeds at a true 5 %


def test_arms_that_share_a_base_are_judged_as_one_family() -> None:
    """Four arms against one base: its noise is in all four ratios, and false words stay at 5 % of runs."""
    generator = np.random.default_rng(14)
    false = 0
    for _ in range(1000):
        base, *others = 100 * generator.lognormal(0, 0.05, (5, 8))
        family = judge([paired(base, new, MARGIN) for new in others])
        false += any(one.word in ("faster", "slower") for one in family)
    assert false <= 0.065 * 1000


# Invariants.


@settings(max_examples=100, deadline=None)
@given(epoch_times, epoch_times, st.floats(0.01, 100))
def test_swapping_and_scaling_separate_sides(base: list[float], new: list[float], factor: float) -> None:
    """Of launches, too (Welch): swapped, the interval is mirrored; another unit of time changes nothing."""

    def told(one: Floats, other: Floats) -> Verdict:
        return judge([Question(log_ratio_of_two(one, other), MARGIN, float(one.mean()))])[0]

    here, turned = told(times(*base), times(*new)), told(times(*new), times(*base))
    scaled = told(times(*base) * factor, times(*new) * factor)
    assert here.effect is not None
    assert turned.effect is not None
    assert scaled.effect is not None
    low, high = here.effect.interval()
    assert (1 / high, 1 / low) == pytest.approx(turned.effect.interval(), rel=1e-9)
    assert (low, high) == pytest.approx(scaled.effect.interval(), rel=1e-6)
    assert (here.detectable or 0) == pytest.approx(turned.detectable or 0, rel=1e-6)
    words = {"faster": "slower", "slower": "faster"}
    if abs(here.effect.mean) > 1e-9:
        assert words.get(here.word, here.word) == turned.word == words.get(scaled.word, scaled.word)


@settings(max_examples=100, deadline=None)
@given(epoch_times, st.integers(0, 2**32 - 1))
def test_swapping_the_arms_turns_the_verdict_round(base: list[float], seed: int) -> None:
    new = times(*base) * np.random.default_rng(seed).lognormal(0.02, 0.03, len(base))
    one, other = verdict(times(*base), new, MARGIN), verdict(new, times(*base), MARGIN)
    assert one.effect is not None
    assert other.effect is not None
    assert one.effect.mean == pytest.approx(-other.effect.mean)
    assert one.p_holm == pytest.approx(other.p_holm)
    assert one.effect.interval()[0] == pytest.approx(1 / other.effect.interval()[1])
    turned = {"faster": "slower", "slower": "faster"}
    assert turned.get(one.word, one.word) == other.word
    assert one.beyond_margin == other.beyond_margin


@settings(max_examples=100, deadline=None)
@given(epoch_times, st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_another_unit_of_time_changes_no_ratio(base: list[float], seed: int, factor: float) -> None:
    new = times(*base) * np.random.default_rng(seed).lognormal(0.02, 0.03, len(base))
    one, scaled = verdict(times(*base), new, MARGIN), verdict(times(*base) * factor, new * factor, MARGIN)
    assert one.effect is not None
    assert scaled.effect is not None
    assert one.effect.interval() == pytest.approx(scaled.effect.interval())
    assert one.word == scaled.word


@given(epoch_times, epoch_times)
def test_order_of_epochs_does_not_matter(base: list[float], new: list[float]) -> None:
    n = min(len(base), len(new))
    one, other = (
        verdict(times(*base[:n]), times(*new[:n]), MARGIN),
        verdict(times(*base[:n][::-1]), times(*new[:n][::-1]), MARGIN),
    )
    assert one.word == other.word
    assert one.p_holm == pytest.approx(other.p_holm)


# The words.


def quiet(ratio: float, epochs: int = 8, **fields: Any) -> Verdict:
    """Two arms with hardly any noise and a known ratio."""
    base = 100 * np.linspace(1.0, 1.1, epochs)
    jitter = 1 + 0.001 * (-1.0) ** np.arange(epochs)
    return judge([paired(base, ratio * base * jitter, fields.pop("margin", MARGIN), **fields)])[0]


def test_words_and_the_margin() -> None:
    told = {
        ratio: (quiet(ratio).word, quiet(ratio).beyond_margin)
        for ratio in (0.8, 0.9707, 0.99, 1.0, 1.02, 1.0301, 1.2)
    }
    assert told == {
        0.8: ("faster", True),
        0.9707: ("faster", False),  # faster, and not surely by more than the margin
        0.99: ("same", False),
        1.0: ("same", False),
        1.02: ("same", False),
        1.0301: ("slower", False),
        1.2: ("slower", True),
    }


def test_under_six_epochs_nothing_is_claimed() -> None:
    few = quiet(2.0, epochs=5)
    assert (few.word, few.beyond_margin) == ("unclear", False)
    assert few.note == "5 epochs on both arms, a verdict needs 6"
    assert few.effect is not None
    assert few.effect.estimate == pytest.approx(2.0, rel=0.01)
    assert quiet(2.0, epochs=6).word == "slower"


@pytest.mark.parametrize("epochs", [0, 1])
def test_without_two_epochs_there_is_no_ratio(epochs: int) -> None:
    none = verdict(np.ones(epochs), np.ones(epochs), MARGIN)
    assert (none.word, none.effect, none.p_holm) == ("unclear", None, None)
    assert none.note == f"{epochs} epochs on both arms, a verdict needs 6"


def test_times_of_zero_are_no_times() -> None:
    none = verdict(times(1, 1, 0, 1, 1, 1), np.ones(6), MARGIN)
    assert (none.word, none.effect) == ("unclear", None)
    assert "too coarse" in (none.note or "")


def test_microseconds_of_margin_count_for_short_times() -> None:
    assert quiet(1.2, margin=Margin(0.03, 30.0)).word == "same"  # a fifth of 105 us is less than 30
    assert quiet(1.2, margin=Margin(0.03, 10.0)).word == "slower"


@pytest.mark.parametrize(
    ("p90_ratio", "wobble", "tail"),
    [
        (1.0, 0.01, None),
        (0.8, 0.01, None),
        (1.3, 0.01, "tail worse"),
        (1.1, 0.01, "tail unclear"),
        (1.0, 1.0, "tail unclear"),
    ],
)
def test_the_tail_is_told_beside_same(p90_ratio: float, wobble: float, tail: str | None) -> None:
    base = 300 * np.ones(8)
    new = p90_ratio * base * np.exp(wobble * (-1.0) ** np.arange(8))
    told = quiet(1.0, base_p90_us=base, new_p90_us=new)
    assert (told.word, told.tail) == ("same", tail)
    assert quiet(1.2, base_p90_us=base, new_p90_us=new).tail is None


def test_a_skewed_fence_forbids_same_and_nothing_else() -> None:
    assert quiet(1.0, skew_us=2.0).word == "same"
    bound = quiet(1.0, skew_us=50.0)
    assert (bound.word, bound.note) == ("unclear", FENCE_BOUND)
    assert quiet(1.2, skew_us=50.0).word == "slower"


def test_among_many_a_small_p_is_not_enough() -> None:
    base = np.ones(8)
    new = np.exp(0.05 + 0.045 * times(1, -1, 1, -1, 1, -1, 1, -1))
    alone = judge([paired(base, new, MARGIN)])[0]
    crowd = [paired(base, np.exp(0.1 * (-1.0) ** np.arange(8)), MARGIN)] * 9
    together = judge([*crowd, paired(base, new, MARGIN)])[-1]
    assert (alone.word, together.word) == ("slower", "unclear")
    assert alone.effect == together.effect
    assert together.p_holm == pytest.approx(10 * (alone.p_holm or 0))
    assert alone.simultaneous is not None
    assert together.simultaneous is not None
    assert together.simultaneous[0] < alone.simultaneous[0] < alone.simultaneous[1] < together.simultaneous[1]
