"""How small an effect can be found: against simulation, and against itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.compare.verdict import judge, paired
from ncclbench.stats.intervals import LogMean, Margin, log_mean
from ncclbench.stats.power import detectable, epochs_needed, smallest_effect

TRIALS = 2000

spreads = st.floats(1e-4, 0.5)
families = st.integers(1, 500)


@pytest.mark.parametrize(("epochs", "family"), [(6, 1), (8, 1), (8, 48), (24, 10), (64, 1)])
def test_the_smallest_effect_is_found_as_often_as_it_says(epochs: int, family: int) -> None:
    """In 90 % of trials, which 2,000 of them tell to 1.5 points in 97.5 % of seeds."""
    spread = 0.04
    effect = smallest_effect(spread, epochs, family)
    generator = np.random.default_rng(21)
    logs = math.log1p(effect) + spread * generator.normal(size=(TRIALS, epochs))
    p_values = scipy.stats.ttest_1samp(logs, 0.0, axis=1).pvalue
    assert (p_values < 0.05 / family).mean() == pytest.approx(0.90, abs=0.015)


def test_verdicts_find_what_was_said_to_be_detectable() -> None:
    """The number on a row, against the words of trials with that effect (margin too narrow for "same")."""
    generator = np.random.default_rng(22)
    spread, epochs = 0.03, 12
    ratio = 1 + smallest_effect(spread, epochs)
    base = 100 * generator.lognormal(0, 0.1, (TRIALS, epochs))
    new = base * ratio * generator.lognormal(0, spread, (TRIALS, epochs))
    told = [judge([paired(*pair, Margin(0.001, 0.0))])[0] for pair in zip(base, new, strict=True)]
    assert sum(one.word == "slower" for one in told) / TRIALS == pytest.approx(0.90, abs=0.015)
    said = np.array([one.detectable for one in told], dtype=np.float64)
    assert np.median(said) == pytest.approx(ratio - 1, rel=0.05)


def test_against_a_textbook() -> None:
    """A paired t test at 5 % two-sided with 90 % power for d = 0.5 needs 44 pairs (Cohen 1988)."""
    assert epochs_needed(0.10, math.expm1(0.05)) == 44


@settings(max_examples=100)
@given(spreads, st.floats(0.005, 1.0), families)
def test_epochs_needed_are_enough_and_no_more(spread: float, effect: float, family: int) -> None:
    epochs = epochs_needed(spread, effect, family)
    assert epochs is not None
    assert smallest_effect(spread, epochs, family) <= effect
    assert epochs == 6 or smallest_effect(spread, epochs - 1, family) > effect


@settings(max_examples=100)
@given(spreads, st.integers(6, 400), families)
def test_more_epochs_find_less_and_more_questions_find_more(spread: float, epochs: int, family: int) -> None:
    here = smallest_effect(spread, epochs, family)
    assert smallest_effect(spread, epochs + 1, family) < here
    assert smallest_effect(spread, epochs, family + 1) > here
    assert smallest_effect(2 * spread, epochs, family) > here
    assert smallest_effect(spread, epochs, family, power=0.8) < here


def test_slower_and_faster_need_as_many() -> None:
    assert epochs_needed(0.05, 1 / 1.05 - 1) == epochs_needed(0.05, 0.05)


def test_what_no_measurement_finds() -> None:
    assert smallest_effect(0.05, 5) == math.inf  # under six epochs the verdict is unclear, whatever they say
    assert epochs_needed(0.05, 0.0) is None
    assert epochs_needed(0.05, -1.0) is None
    assert epochs_needed(100.0, 1e-6) is None
    assert epochs_needed(0.0, 0.01) == 6


@given(st.lists(st.floats(0.5, 2.0), min_size=6, max_size=40).filter(lambda v: np.ptp(v) > 1e-6))
def test_detectable_is_the_smallest_effect_of_the_spread_seen(ratios: list[float]) -> None:
    effect = log_mean(ratios)
    assert effect is not None
    expected = smallest_effect(effect.spread, len(ratios), 7)
    assert detectable(effect, 7) == pytest.approx(expected)


def test_a_spread_of_nothing_is_not_known() -> None:
    assert detectable(LogMean(n=8, mean=0.1, se=0.0, df=7)) is None
