"""How often the 95 % intervals of latency, bandwidth and half-performance size hold the truth.

    python benchmarks/fits.py [--trials 1000] [--seed 0]

Curves of 28 sizes are drawn from known latencies and bandwidths. Every epoch has a level of its own that all
of its sizes share, every sample a right tail, and each size of an epoch is the median of its samples, as in a
run. They go through ncclbench's own fit, choice of segments included. Rates stand with their Clopper-Pearson
interval.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from ncclbench.stats.alphabeta import FIGURES, Segment, fit_curve
from ncclbench.stats.intervals import Floats
from ncclbench.stats.rates import clopper_pearson

SIZES = 2.0 ** np.arange(3, 31)
SAMPLES = 10
# Of so many exponential samples: the mean of the expected middle two (Renyi, Acta Math. Hung. 1953).
EXPECTED_MEDIAN = sum(1 / (SAMPLES - index) for index in range(SAMPLES // 2)) + 0.5 / (SAMPLES // 2)

# First and last size, latency in microseconds, GB/s.
LAWS = {
    "one protocol": [(8, 1 << 30, 20.0, 300.0)],
    "two": [(8, 1 << 17, 18.0, 60.0), (1 << 18, 1 << 30, 45.0, 350.0)],
    "three": [(8, 1 << 15, 15.0, 20.0), (1 << 16, 1 << 22, 22.0, 80.0), (1 << 23, 1 << 30, 60.0, 360.0)],
}
# Epochs, standard deviation of the log of an epoch's level, scale of the tail of single samples.
CONDITIONS = ((3, 0.01, 0.05), (8, 0.02, 0.1), (12, 0.02, 0.3))


def segments_of(law: str) -> list[Segment]:
    """The true segments."""
    return [Segment(first, last, alpha, 1e-3 / beta) for first, last, alpha, beta in LAWS[law]]


def draw(generator: np.random.Generator, law: str, epochs: int, level: float, tail: float) -> Floats:
    """Times in microseconds, shape (epochs, sizes)."""
    segments = segments_of(law)
    curve = [next(each for each in segments if size <= each.last_bytes).time_us(size) for size in SIZES]
    samples = tail * generator.gamma(1.0, 1.0, (epochs, SIZES.size, SAMPLES))
    # What the median of so many is expected to be is taken out, so that the law is the truth.
    own = np.median(samples, axis=2) - tail * EXPECTED_MEDIAN
    drawn: Floats = np.array(curve) * np.exp(generator.normal(0, level, (epochs, 1)) + own)
    return drawn


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = np.random.default_rng(arguments.seed)
    print(
        f"{'protocols':<13}{'epochs':>7}  {'figure':<20}{'holds the truth':<26}{'half-width':>11}  segments"
    )
    for law in LAWS:
        segments = segments_of(law)
        truth = {name: figure(segments) for name, figure in FIGURES.items()}
        for epochs, level, tail in CONDITIONS:
            began = time.perf_counter()
            fits = [
                fit_curve(SIZES, draw(generator, law, epochs, level, tail)) for _ in range(arguments.trials)
            ]
            each_ms = 1e3 * (time.perf_counter() - began) / arguments.trials
            right = sum(len(fit.segments) == len(segments) for fit in fits) / arguments.trials
            for name in FIGURES:
                told = [fit.figures[name] for fit in fits if fit.figures[name].low is not None]
                hits = sum(each.low <= truth[name] <= each.high for each in told)
                low, high = clopper_pearson(hits, len(told))
                width = np.median([math.log(each.high / each.low) / 2 for each in told])
                rate = f"{100 * hits / len(told):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
                print(f"{law:<13}{epochs:>7}  {name:<20}{rate:<26}{100 * width:>9.1f} %  {100 * right:.1f} %")
            print(f"{'':<22}{each_ms:.1f} ms a fit", flush=True)


if __name__ == "__main__":
    main()
