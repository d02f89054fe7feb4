"""Flags over epochs and inside them: false ones are rare, true ones are found, scale does not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.stats.intervals import Floats
from ncclbench.stats.series import series, warming

TRIALS = 2000
# At a true 1 %, what 2,000 trials show in 999 of 1,000 seeds.
ONE_PERCENT = 0.018

NOISES = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "heavy tail": lambda generator, shape: generator.standard_t(3, shape),
    "lopsided": lambda generator, shape: generator.exponential(size=shape),
    "ticks": lambda generator, shape: np.round(1.5 * generator.normal(size=shape)),
}


def autoregressive(generator: np.random.Generator, shape: tuple[int, int], correlation: float) -> Floats:
    """Rows whose neighbours correlate."""
    values = generator.normal(size=shape)
    for at in range(1, shape[1]):
        values[:, at] = correlation * values[:, at - 1] + math.sqrt(1 - correlation**2) * values[:, at]
    return values


def flags(logs: Floats) -> tuple[float, float]:
    """How often rows of logs, with a spread of 2 % a unit, are told to drift and to be correlated."""
    told = [series(100 * np.exp(0.02 * row)) for row in logs]
    return (
        float(np.mean([one is not None and one.drifts for one in told])),
        float(np.mean([one is not None and one.correlated for one in told])),
    )


@pytest.mark.parametrize("epochs", [8, 32])
@pytest.mark.parametrize("noise", NOISES)
def test_independent_epochs_are_flagged_in_one_of_a_hundred(noise: str, epochs: int) -> None:
    drifts, correlated = flags(NOISES[noise](np.random.default_rng(31), (TRIALS, epochs)))
    assert drifts <= ONE_PERCENT
    assert correlated <= ONE_PERCENT


def test_a_drift_is_found_and_is_no_correlation() -> None:
    noise = np.random.default_rng(32).normal(size=(TRIALS // 4, 32))
    drifts, correlated = flags(noise + 3.0 * np.linspace(0, 1, 32))
    assert drifts >= 0.93
    assert correlated <= 0.03


@pytest.mark.parametrize("lasting", [4, 8])
def test_a_level_that_outlasts_epochs_is_found(lasting: int) -> None:
    noise = autoregressive(np.random.default_rng(33), (TRIALS // 4, 48), math.exp(-1 / lasting))
    assert flags(noise)[1] >= 0.95


def test_one_epoch_far_out_hides_no_correlation() -> None:
    values = np.exp(0.02 * autoregressive(np.random.default_rng(34), (1, 64), 0.9)[0])
    values[40] *= 50
    told = series(values)
    assert told is not None
    assert told.correlated


def test_alternating_epochs_are_no_doubt() -> None:
    """Arms that take turns in beginning make ratios alternate, which only narrows the true interval."""
    told = series(1 + 0.01 * (-1.0) ** np.arange(40) + 0.001 * np.sin(np.arange(40.0)))
    assert told is not None
    assert told.autocorrelation < -0.4
    assert not told.correlated


def test_size_of_a_drift() -> None:
    steady = series(100 * 1.001 ** np.arange(41.0))
    assert steady is not None
    assert steady.drift == pytest.approx(1.001**40)
    assert steady.drifts
    rising = 100 * 1.001 ** np.arange(41.0)
    rising[5], rising[20] = 9000.0, 1.0  # the median of slopes does not care
    told = series(rising)
    assert told is not None
    assert told.drift == pytest.approx(1.001**40, rel=1e-3)


@pytest.mark.parametrize("epochs", [999, 1001, 5000])
def test_long_series_are_thinned_and_say_the_same(epochs: int) -> None:
    noise = np.random.default_rng(38).normal(0, 0.01, epochs)
    told = series(100 * np.exp(np.linspace(0, 0.5, epochs) + noise))
    assert told is not None
    assert told.drift == pytest.approx(math.exp(0.5), rel=0.01)
    assert (told.drifts, told.correlated) == (True, False)
    assert abs(told.autocorrelation) < 0.12


def test_the_trend_test_is_kendalls() -> None:
    """Flagged where scipy's Kendall tau, by the same approximation, gives less than 1 %."""
    generator = np.random.default_rng(35)
    agreed = 0
    for row in generator.normal(size=(400, 20)) + 2.5 * np.linspace(0, 1, 20):
        told = series(np.exp(row))
        assert told is not None
        p = scipy.stats.kendalltau(np.arange(20), row, method="asymptotic").pvalue
        if not 0.008 < p < 0.012:  # theirs has no correction for continuity
            agreed += told.drifts == (p < 0.01)
        else:
            agreed += 1
    assert agreed >= 398


@pytest.mark.parametrize("values", [[], [1.0] * 7, [1.0] * 9 + [0.0]])
def test_too_little_says_nothing(values: list[float]) -> None:
    assert series(np.array(values)) is None


@pytest.mark.parametrize("epochs", [8, 3000])
def test_equal_epochs_are_steady(epochs: int) -> None:
    told = series(np.full(epochs, 3.3))
    assert told is not None
    assert (told.drift, told.drifts, told.autocorrelation, told.correlated) == (1.0, False, 0.0, False)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1.0, 1e6), min_size=8, max_size=40), st.integers(-20, 20))
def test_neither_scale_nor_which_arm_is_base_changes_a_flag(values: list[float], power: int) -> None:
    told, scaled = series(np.array(values)), series(np.array(values) * 2.0**power)
    turned = series(1 / np.array(values))
    assert told is not None
    assert scaled is not None
    assert turned is not None
    assert scaled.drift == pytest.approx(told.drift, rel=1e-6)
    assert turned.drift == pytest.approx(1 / told.drift, rel=1e-6)
    assert told.drifts == turned.drifts == scaled.drifts
    assert turned.autocorrelation == pytest.approx(told.autocorrelation, abs=1e-6)


# Warm-up.

SAMPLES = {
    "log-normal": lambda generator, shape: generator.lognormal(0, 0.3, shape),
    "bimodal": lambda generator, shape: (
        np.where(generator.random(shape) < 0.4, 5.0, 1.0) * generator.lognormal(0, 0.05, shape)
    ),
    "autocorrelated": lambda generator, shape: np.exp(0.3 * autoregressive(generator, shape, 0.9)),
}


def told_warming(epochs: Floats, visits: int = 1) -> bool:
    told = warming(list(epochs), [[epochs.shape[1] // visits] * visits] * len(epochs))
    assert told is not None
    return told.warming


@pytest.mark.parametrize(("epochs", "rate"), [(3, 0.04), (8, ONE_PERCENT)])
@pytest.mark.parametrize("samples", SAMPLES)
def test_steady_epochs_want_no_warmup(samples: str, epochs: int, rate: float) -> None:
    generator = np.random.default_rng(36)
    told = [told_warming(SAMPLES[samples](generator, (epochs, 20))) for _ in range(TRIALS)]
    assert np.mean(told) <= rate


@pytest.mark.parametrize("visits", [1, 4])
def test_slow_first_samples_are_found(visits: int) -> None:
    """The first tenth of each visit is slower by 30 %, as caches and connections make it."""
    generator = np.random.default_rng(37)
    n = 40
    slow = np.tile(np.where(np.arange(n // visits) < max(1, n // visits // 10), 1.3, 1.0), visits)
    told = [told_warming(slow * generator.lognormal(0, 0.1, (8, n)), visits) for _ in range(200)]
    assert np.mean(told) >= 0.95


def test_size_of_a_warmup() -> None:
    epochs = [np.array([15.0, 10.1, 10, 9.9, 10, 10, 10, 10]), *[np.array([15.0] + [10.0] * 7)] * 3]
    told = warming(epochs, [(8,)] * 4)
    assert told is not None
    assert (told.ratio, told.warming) == (pytest.approx(1.5), True)
    assert not told_warming(np.array([[10.2] + [10.0] * 7] * 4))  # sure, and too little to be told
    assert not told_warming(np.array([[5.0] + [10.0] * 7] * 4))  # fast first samples want none


def test_too_short_visits_say_nothing_of_warmup() -> None:
    assert warming([np.ones(20)] * 2, [(20,)] * 2) is None
    assert warming([np.ones(12)] * 8, [(3, 3, 3, 3)] * 8) is None
    assert warming([], []) is None
