"""The alpha-beta fit: what it finds in curves of known latency and bandwidth, and where it says nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ncclbench.stats.alphabeta import FIGURES, Fit, Segment, fit_curve

Curve = NDArray[np.float64]

SIZES = 2.0 ** np.arange(3, 31)

# Segments as (first size, last size, latency in us, GB/s).
ONE = [(8, 1 << 30, 20.0, 300.0)]
# LL, then Simple: the switch costs latency and gives bandwidth.
TWO = [(8, 1 << 17, 18.0, 60.0), (1 << 18, 1 << 30, 45.0, 350.0)]
THREE = [(8, 1 << 15, 15.0, 20.0), (1 << 16, 1 << 22, 22.0, 80.0), (1 << 23, 1 << 30, 60.0, 360.0)]


def segments_of(law: Sequence[tuple[int, int, float, float]]) -> list[Segment]:
    return [Segment(first, last, alpha, 1e-3 / beta) for first, last, alpha, beta in law]


def curve_of(law: Sequence[tuple[int, int, float, float]], sizes: Curve = SIZES) -> Curve:
    segments = segments_of(law)
    return np.array([next(s for s in segments if size <= s.last_bytes).time_us(size) for size in sizes])


def epochs_of(curve: Curve, epochs: int, seed: int = 1, level: float = 0.01, noise: float = 0.02) -> Curve:
    """Each epoch draws a level for all sizes; besides, every time has a skewed scatter of its own."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(0, level, (epochs, 1))
    own = noise * (generator.gamma(2.0, 1.0, (epochs, curve.size)) - 2) / np.sqrt(2)
    return np.array(curve * np.exp(shared + own))


def values(fit: Fit) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in fit.figures.items()}


# --- what it finds


def test_exact_times_give_their_latency_and_bandwidth() -> None:
    fit = fit_curve(SIZES, [curve_of(ONE)])
    assert len(fit.segments) == 1
    half = 20.0 * 300e3
    expected = {"latency_us": 20.0, "bandwidth_GBs": 300.0, "half_bytes": half, "latency_bound_bytes": half}
    assert values(fit) == pytest.approx(expected, rel=1e-3)
    assert fit.misfit == pytest.approx(0.0, abs=1e-4)
    assert fit.time_us(half) == pytest.approx(40.0, rel=1e-3)


def test_half_of_the_bandwidth_is_reached_at_the_half_performance_size() -> None:
    fit = fit_curve(SIZES, [curve_of(TWO)])
    half, bandwidth = fit.figures["half_bytes"].value, fit.figures["bandwidth_GBs"].value
    assert half is not None
    assert bandwidth is not None
    time_us = fit.time_us(half)
    assert time_us is not None
    assert half / time_us / 1e3 == pytest.approx(bandwidth / 2, rel=1e-3)


def test_protocol_switch_is_found_where_it_is() -> None:
    fit = fit_curve(SIZES, epochs_of(curve_of(TWO), 8))
    assert [segment.first_bytes for segment in fit.segments] == [8, 1 << 18]
    assert [segment.alpha_us for segment in fit.segments] == pytest.approx([18.0, 45.0], rel=0.06)
    found = values(fit)
    assert found["latency_us"] == pytest.approx(18.0, rel=0.03)
    assert found["bandwidth_GBs"] == pytest.approx(350.0, rel=0.03)
    # Simple takes more than twice LL's latency from its first message on.
    bound = fit.figures["latency_bound_bytes"]
    assert bound.value is not None
    assert 1 << 17 < bound.value < 1 << 18
    # Where between the two measured sizes nobody knows, however alike the epochs are.
    assert bound.low is not None
    assert bound.high is not None
    assert bound.low <= 1 << 17 < 1 << 18 <= bound.high


def test_three_protocols_are_three_segments() -> None:
    fit = fit_curve(SIZES, epochs_of(curve_of(THREE), 6))
    assert [segment.first_bytes for segment in fit.segments] == [8, 1 << 16, 1 << 23]


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_noise_makes_no_segments(noise: float) -> None:
    numbers = [
        len(fit_curve(SIZES, epochs_of(curve_of(ONE), 8, seed, noise=noise)).segments) for seed in range(60)
    ]
    assert numbers.count(1) >= 55


def test_many_sizes_are_fitted_too() -> None:
    sizes = np.arange(1, 1200) * 65536.0
    fit = fit_curve(sizes, epochs_of(curve_of([(1, 1 << 30, 90.0, 100.0)], sizes), 3))
    assert values(fit)["bandwidth_GBs"] == pytest.approx(100.0, rel=0.03)
    assert values(fit)["latency_us"] == pytest.approx(90.0, rel=0.03)


# --- how sure it is


@pytest.mark.parametrize("law", [ONE, TWO, THREE], ids=["one", "two", "three"])
@pytest.mark.parametrize(("epochs", "level", "noise"), [(3, 0.01, 0.02), (8, 0.015, 0.03), (12, 0.02, 0.1)])
def test_intervals_hold_the_truth(
    law: list[tuple[int, int, float, float]], epochs: int, level: float, noise: float
) -> None:
    """95 % of them should; of 100 curves, 88 are the least that chance allows once in a hundred times."""
    curve, truth = curve_of(law), {name: figure(segments_of(law)) for name, figure in FIGURES.items()}
    held = dict.fromkeys(FIGURES, 0)
    for seed in range(100):
        fit = fit_curve(SIZES, epochs_of(curve, epochs, 1000 + seed, level, noise))
        for name, estimate in fit.figures.items():
            assert estimate.low is not None
            assert estimate.high is not None
            held[name] += estimate.low <= truth[name] <= estimate.high
    assert min(held.values()) >= 88, held
    assert sum(held.values()) >= 4 * 90, held


def test_sizes_that_share_an_epochs_level_are_no_independent_observations() -> None:
    """Each epoch is 10 % off as a whole and smooth in itself: the interval must be that wide."""
    latency = fit_curve(SIZES, epochs_of(curve_of(ONE), 6, level=0.1, noise=0.001)).figures["latency_us"]
    assert latency.low is not None
    assert latency.high is not None
    assert latency.high / latency.low > 1.1


@pytest.mark.parametrize("times", [curve_of(TWO), [curve_of(TWO)]], ids=["means", "one epoch"])
def test_one_epoch_has_figures_without_an_interval(times: Curve) -> None:
    fit = fit_curve(SIZES, times)
    for estimate in fit.figures.values():
        assert estimate.value is not None
        assert (estimate.low, estimate.high) == (None, None)
        assert estimate.why == "one time per size: no interval"


# --- where it says nothing


def test_steps_are_no_latency_and_bandwidth() -> None:
    staircase = 10.0 * 3.0 ** (np.arange(SIZES.size) // 4)
    fit = fit_curve(SIZES, epochs_of(staircase, 8))
    assert fit.why is not None
    assert "they go in steps" in fit.why
    assert set(values(fit).values()) == {None}
    assert all(estimate.why == fit.why for estimate in fit.figures.values())
    assert fit.segments == ()
    assert fit.time_us(1024) is None


def test_scatter_of_few_epochs_is_not_taken_for_steps() -> None:
    assert fit_curve(SIZES, epochs_of(curve_of(ONE), 3, noise=0.3)).why is None


def test_flat_times_show_the_latency_only() -> None:
    fit = fit_curve(SIZES[:14], epochs_of(np.full(14, 30.0), 8))
    found = values(fit)
    assert found.pop("latency_us") == pytest.approx(30.0, rel=0.02)
    assert set(found.values()) == {None}
    assert fit.figures["latency_us"].low is not None
    assert fit.figures["bandwidth_GBs"].why == "not reached at 64K: measure larger sizes (-e)"
    assert fit.figures["latency_bound_bytes"].why == "not yet at 64K"


def test_large_messages_show_the_bandwidth_only() -> None:
    sizes = 2.0 ** np.arange(26, 35)
    fit = fit_curve(sizes, epochs_of(curve_of([(1, 1 << 40, 20.0, 300.0)], sizes), 8))
    assert values(fit)["bandwidth_GBs"] == pytest.approx(300.0, rel=0.03)
    assert fit.figures["latency_us"].value is None
    assert "begin smaller (-b)" in str(fit.figures["latency_us"].why)
    assert fit.figures["half_bytes"].why == "reached before 64M"


@pytest.mark.parametrize(
    ("sizes", "change", "why"),
    [
        (SIZES[:5], lambda times: times, "5 sizes: a fit needs 6"),
        (SIZES[:6], lambda times: times, "sizes span a factor of 32: a fit needs 100"),
        (SIZES, lambda times: times * (SIZES > 8), "some times are zero: the clock is too coarse"),
    ],
)
def test_too_little_is_said_to_be_so(sizes: Curve, change: Callable[[Curve], Curve], why: str) -> None:
    fit = fit_curve(sizes, [change(curve_of(ONE, sizes))] * 3)
    assert fit.why == why
    assert set(values(fit).values()) == {None}


def test_module_loads_no_optimiser() -> None:
    code = "import sys, ncclbench.stats.alphabeta; sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
