"""The exact interval of a rate."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from ncclbench.stats.rates import clopper_pearson


@pytest.mark.parametrize(("hits", "trials"), [(0, 18), (1, 18), (3, 60), (18, 18), (15, 200)])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_is_the_exact_one(hits: int, trials: int, confidence: float) -> None:
    exact = binomtest(hits, trials).proportion_ci(confidence, method="exact")
    assert clopper_pearson(hits, trials, confidence) == pytest.approx((exact.low, exact.high))


def test_the_interval_by_the_tables() -> None:
    assert clopper_pearson(0, 60) == pytest.approx((0.0, 0.0596), abs=1e-4)
    assert clopper_pearson(3, 60) == pytest.approx((0.0104, 0.1392), abs=1e-4)
    assert clopper_pearson(60, 60)[1] == 1.0


def test_no_trial_says_nothing() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_it_holds_the_truth_at_least_as_often_as_it_says(rate: float) -> None:
    trials = 40
    held = 0.0
    for hits in range(trials + 1):
        low, high = clopper_pearson(hits, trials)
        if low <= rate <= high:
            held += float(binom.pmf(hits, trials, rate))
    assert held >= 0.95
