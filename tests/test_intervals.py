"""Intervals and tests against references and theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.stats.intervals import Margin, holm, is_equivalent, log_mean, log_ratio, log_ratio_of_two
from ncclbench.stats.over_epochs import ratio

times = st.floats(1e-3, 1e9)

# Intervals and tests.


@settings(max_examples=50, deadline=None)
@given(st.lists(times, min_size=2, max_size=20).filter(lambda values: len(set(values)) > 1))
def test_log_mean_is_the_t_test_of_scipy(values: list[float]) -> None:
    mean = log_mean(values)
    assert mean is not None
    theirs = scipy.stats.ttest_1samp(np.log(values), math.log(5.0))
    assert mean.p_different(5.0) == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    for confidence in (0.95, 0.999):
        low, high = theirs.confidence_interval(confidence)
        if max(abs(low), abs(high)) < 600:
            assert mean.interval(confidence) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-6)
    greater = scipy.stats.ttest_1samp(np.log(values), math.log(5.0), alternative="greater")
    assert mean.p_not_above(5.0) == pytest.approx(greater.pvalue, rel=1e-6, abs=1e-12)
    assert mean.p_not_below(5.0) == pytest.approx(1 - greater.pvalue, rel=1e-6, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(times, min_size=2, max_size=20).filter(lambda values: len(set(values)) > 1),
    st.lists(times, min_size=2, max_size=20).filter(lambda values: len(set(values)) > 1),
)
def test_ratio_of_two_is_welchs_test_of_scipy(base: list[float], new: list[float]) -> None:
    effect = log_ratio_of_two(base, new)
    assert effect is not None
    theirs = scipy.stats.ttest_ind(np.log(new), np.log(base), equal_var=False)
    assert effect.df == pytest.approx(theirs.df, rel=1e-6)
    assert effect.p_different() == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    low, high = theirs.confidence_interval(0.95)
    if max(abs(low), abs(high)) < 600:
        assert effect.interval() == pytest.approx((math.exp(low), math.exp(high)), rel=1e-6)


@pytest.mark.parametrize("paired", [True, False])
def test_more_data_never_widen_the_expected_interval(paired: bool) -> None:
    """Means over 2,000 trials of the width of log intervals, of ratios in pairs and of two sides."""
    generator = np.random.default_rng(8)

    def width(n: int) -> float:
        found = []
        for base, new in generator.lognormal(0, 0.1, (2000, 2, n)):
            effect = log_mean(new / base) if paired else log_ratio_of_two(base, new)
            assert effect is not None
            low, high = effect.interval()
            found.append(math.log(high / low))
        return float(np.mean(found))

    widths = [width(n) for n in (3, 4, 6, 8, 12, 24)]
    assert widths == sorted(widths, reverse=True)


def test_equal_values_leave_no_doubt() -> None:
    mean = log_mean([3.3] * 7)
    assert mean is not None
    assert mean.interval() == pytest.approx((3.3, 3.3))
    assert (mean.se, mean.p_different(3.0)) == (0.0, 0.0)
    one = log_mean([1.0, 1.0])
    assert one is not None
    assert one.p_different() == 1.0
    assert is_equivalent(one, 0.03)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 0.0]])
def test_too_little_says_nothing(values: list[float]) -> None:
    assert log_mean(values) is None


def test_a_ratio_beyond_any_number_says_nothing() -> None:
    tiny, huge = np.full(4, 1e-300), np.full(4, 1e15)
    with np.errstate(over="raise"):
        assert log_ratio(tiny, huge) is None
    assert log_ratio(huge, tiny) is not None
    for times in ([1e-300], [1e-300] * 2):
        assert ratio(times, [1e15] * len(times)) == {"ratio": None, "ci_low": None, "ci_high": None}


def test_interval_covers_at_its_nominal_rate() -> None:
    generator = np.random.default_rng(5)
    hits = 0
    for sample in generator.lognormal(0, 0.3, (2000, 8)):
        mean = log_mean(sample)
        assert mean is not None
        low, high = mean.interval()
        hits += low <= 1.0 <= high
    assert 0.94 <= hits / 2000 <= 0.96


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(p_values) * p)
    order = np.argsort(p_values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


def test_margin_is_the_larger_of_the_two() -> None:
    margin = Margin(0.03, 1.0)
    assert [margin.of(base) for base in (10.0, 100.0, 0.0)] == [0.1, 0.03, math.inf]
