"""Stopping by precision: when it is looked at, what is narrow enough."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncclbench.stats.intervals import LogMean, log_mean
from ncclbench.stats.stopping import finite_half_width, half_width, is_look, is_precise

means = st.builds(
    LogMean,
    n=st.integers(8, 200),
    mean=st.floats(-5, 15),
    se=st.floats(0, 0.5),
    df=st.floats(2, 200),
)


def test_looks_are_few_and_each_is_a_third_or_half_further() -> None:
    looks = [epochs for epochs in range(400) if is_look(epochs)]
    assert looks == [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]


def test_half_width_is_what_people_read_off_the_interval() -> None:
    mean = log_mean([98.0, 99.0, 100.0, 101.0, 102.0, 100.0, 100.0, 100.0])
    assert mean is not None
    low, high = mean.interval()
    assert half_width(mean) == pytest.approx((high - low) / 2 / mean.estimate, rel=0.01)


def test_half_width_at_the_edges() -> None:
    assert half_width(LogMean(n=8, mean=0.0, se=0.0, df=7)) == 0.0
    unknown = LogMean(n=2, mean=0.0, se=1e4, df=1)
    assert half_width(unknown) == math.inf
    assert finite_half_width(unknown) is finite_half_width(None) is None
    assert finite_half_width(LogMean(n=8, mean=0.0, se=0.0, df=7)) == 0.0


@given(means, st.floats(0.01, 100))
def test_only_the_width_counts_and_never_the_estimate(mean: LogMean, factor: float) -> None:
    """A ratio of 1.5 is measured no longer than a ratio of 1: stopping on either would bias it."""
    moved = LogMean(mean.n, mean.mean + math.log(factor), mean.se, mean.df)
    turned = LogMean(mean.n, -mean.mean, mean.se, mean.df)
    assert half_width(moved) == pytest.approx(half_width(mean), abs=1e-12)
    assert half_width(turned) == pytest.approx(half_width(mean), abs=1e-12)


@given(means, st.floats(0.001, 0.5))
def test_what_is_precise_is_narrow_enough(mean: LogMean, precision: float) -> None:
    if is_precise(mean, precision):
        assert half_width(mean) <= precision
        assert is_precise(mean, 2 * precision)


def test_early_looks_ask_for_more() -> None:
    """At 8 epochs for half the width, at 32 for four fifths."""

    def asked(epochs: int) -> float:
        spreads = np.linspace(0.0, 0.2, 4001)
        fitting = [
            half_width(mean)
            for mean in (LogMean(epochs, 0.0, sd / math.sqrt(epochs), epochs - 1) for sd in spreads)
            if is_precise(mean, 0.02)
        ]
        return max(fitting)

    assert [asked(epochs) for epochs in (8, 16, 32)] == pytest.approx([0.01, 0.0133, 0.016], rel=0.01)
