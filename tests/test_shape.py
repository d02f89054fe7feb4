"""How samples lie: effective sizes, modes, and a statistic between them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ncclbench.stats.intervals import Floats
from ncclbench.stats.shape import effective_n, is_between_modes, two_modes

# Shape.


def chain(generator: np.random.Generator, correlation: float, n: int) -> Floats:
    """A first-order autoregressive series."""
    values = generator.normal(size=n)
    for at in range(1, n):
        values[at] = correlation * values[at - 1] + math.sqrt(1 - correlation**2) * values[at]
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_effective_n_follows_theory(correlation: float) -> None:
    """An autoregressive chain is worth n (1 - r) / (1 + r) independent samples."""
    generator = np.random.default_rng(2)
    found = [effective_n([np.exp(chain(generator, correlation, 500)) for _ in range(4)]) for _ in range(30)]
    assert np.mean(found) == pytest.approx(2000 * (1 - correlation) / (1 + correlation), rel=0.1)


def test_epochs_that_differ_are_worth_little_more_than_their_number() -> None:
    generator = np.random.default_rng(3)
    found = effective_n([generator.normal(level, 0.01, 200) for level in (5.0, 6.0, 7.0, 8.0, 9.0)])
    assert found is not None
    assert found < 15


def test_effective_n_at_the_edges() -> None:
    assert effective_n([np.ones(10), np.ones(12)]) == 22
    assert effective_n([np.ones(3)]) is None
    assert effective_n([]) is None


@pytest.mark.parametrize("n", [20, 160, 2000])
@pytest.mark.parametrize("sigma", [0.02, 0.3, 1.5])
def test_one_mode_is_not_called_two(n: int, sigma: float) -> None:
    generator = np.random.default_rng(4)
    found = sum(two_modes(generator.lognormal(5, sigma, n)) is not None for _ in range(300))
    assert found <= 3


def test_two_modes_are_found_where_they_are() -> None:
    generator = np.random.default_rng(5)
    for share, low, high in ((0.5, 300.0, 3000.0), (0.25, 300.0, 600.0), (0.5, 100.0, 120.0)):
        slow = generator.random(160) < share
        noise = generator.lognormal(0, 0.03, 160)
        found = two_modes(np.where(slow, high, low) * noise)
        assert found == pytest.approx((low, high), rel=0.03)


@pytest.mark.parametrize(("share", "apart"), [(0.03, 10.0), (0.5, 1.05)])
def test_a_tail_or_a_tick_is_no_mode(share: float, apart: float) -> None:
    generator = np.random.default_rng(6)
    slow = generator.random(1000) < share
    assert two_modes(100 * np.where(slow, apart, 1.0) * generator.lognormal(0, 0.005, 1000)) is None


@pytest.mark.parametrize(
    ("quantile", "between"), [(0.1, False), (0.25, False), (0.5, True), (0.75, False), (0.9, False)]
)
def test_only_a_quantile_near_the_share_of_a_mode_moves_between_modes(quantile: float, between: bool) -> None:
    """As seen with gloo: scheduled or not, half and half, ten times apart."""
    generator = np.random.default_rng(7)
    slow = generator.random((16, 80)) < 0.5
    epochs = np.where(slow, 3000.0, 300.0) * generator.lognormal(0, 0.1, (16, 80))
    assert is_between_modes(epochs.ravel(), np.quantile(epochs, quantile, axis=1)) is between


def test_between_modes_needs_two() -> None:
    samples = np.random.default_rng(8).lognormal(5, 0.3, 500)
    assert not is_between_modes(samples, np.median(samples, keepdims=True))
