"""How often 95 % intervals hold the truth where measuring stops by precision, and how often flags find.

    python benchmarks/intervals_hold.py [--trials 4000] [--epochs 96] [--seed 0]

Samples are drawn for every epoch of every trial, from laws whose epochs have a level of their own, and go
through ncclbench's own functions: quantile of each epoch, mean of logarithms, looks, stopping, flags. The
truth of one arm is exp of the expectation of the log of an epoch's statistic, from a large simulation; the
second arm is the first one's law times 1.1, so that is the ratio's. A coverage stands with its
Clopper-Pearson interval; "bare" is what it would be if the width itself had ended the measurement.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ncclbench.stats.intervals import Floats, LogMean, log_mean, log_ratio
from ncclbench.stats.rates import clopper_pearson
from ncclbench.stats.series import series
from ncclbench.stats.stopping import half_width, is_look, is_precise
from ncclbench.stats.summary import epoch_quantiles

Generator = np.random.Generator
Shape = tuple[int, int]

# Samples in an epoch: every trial has one of these.
SAMPLES = (20, 40, 80, 160)
RATIO = 1.1
PRECISION_OF_ARM, PRECISION_OF_RATIO = 0.04, 0.03
BASE_US = 400.0
# Standard deviations of the log of an epoch's level: what both arms share, and what each has of its own.
SHARED, OWN = 0.05, 0.03
EPOCHS_FOR_TRUTH = 100_000
CHUNK = 4_000_000  # samples drawn at once: 32 MB


@dataclass(frozen=True, slots=True)
class Law:
    """How times come about.

    Attributes:
        name: what it is known by.
        quantile: the statistic of an epoch.
        samples: shape (epochs, n) of times around 1, from shape.
        level: shape (epochs,) of logs around 0 with about unit scale: how epochs differ.
    """

    name: str
    quantile: float
    samples: Callable[[Generator, Shape], Floats]
    level: Callable[[Generator, int], Floats]


def _normal(generator: Generator, epochs: int) -> Floats:
    return generator.normal(size=epochs)


def _student(generator: Generator, epochs: int) -> Floats:
    """Three degrees of freedom: now and then an epoch is far out."""
    return generator.standard_t(3, epochs) / math.sqrt(3)


def _log_normal(generator: Generator, shape: Shape) -> Floats:
    return generator.lognormal(0, 0.15, shape)


def _heavy(generator: Generator, shape: Shape) -> Floats:
    """A fifth of the samples are delayed by a time without a finite variance."""
    delayed = generator.random(shape) < 0.2
    return generator.lognormal(0, 0.1, shape) * np.where(delayed, 1 + generator.pareto(1.5, shape), 1.0)


def _bimodal(generator: Generator, shape: Shape) -> Floats:
    """Scheduled or not, ten times apart: 40 % are slow."""
    return generator.lognormal(0, 0.1, shape) * np.where(generator.random(shape) < 0.4, 10.0, 1.0)


def _between_modes(generator: Generator, shape: Shape) -> Floats:
    """Half of the samples are slow, so that the median is now in one mode and now in the other."""
    return generator.lognormal(0, 0.1, shape) * np.where(generator.random(shape) < 0.5, 2.0, 1.0)


def _rare_jumps(generator: Generator, shape: Shape) -> Floats:
    """How many are slow differs from epoch to epoch (40 % with a spread of 11 %): some p25 are slow ones."""
    share = generator.beta(8, 12, (shape[0], 1))
    return generator.lognormal(0, 0.1, shape) * np.where(generator.random(shape) < share, 10.0, 1.0)


def _autocorrelated(generator: Generator, shape: Shape) -> Floats:
    """Lag-1 correlation of 0.9: 20 samples in a row are worth one or two."""
    logs = generator.normal(size=shape)
    for at in range(1, shape[1]):
        logs[:, at] = 0.9 * logs[:, at - 1] + math.sqrt(1 - 0.9**2) * logs[:, at]
    times: Floats = np.exp(0.1 * logs)
    return times


LAWS = (
    Law("log-normal", 0.5, _log_normal, _normal),
    Law("heavy tail", 0.5, _heavy, _student),
    Law("bimodal, p25", 0.25, _bimodal, _normal),
    Law("autocorrelated", 0.5, _autocorrelated, _normal),
)

# Shown as limits: an epoch whose statistic jumps to the other mode outweighs all others in the mean. Rows
# mark such cases as bimodal, and comparisons that have seen a jump as between_modes.
HARD_LAWS = (
    Law("between modes", 0.5, _between_modes, _normal),
    Law("rare jumps, p25", 0.25, _rare_jumps, _normal),
)


def draw(law: Law, generator: Generator, log_levels: Floats, n: int) -> Floats:
    """The statistic of epochs of n samples, of the shape of ``log_levels``."""
    flat = log_levels.ravel()
    parts = np.array_split(flat, max(1, flat.size * n // CHUNK))
    found = []
    for part in parts:
        times_us = BASE_US * np.exp(part)[:, None] * law.samples(generator, (part.size, n))
        found.append(epoch_quantiles(list(times_us), (law.quantile,))[:, 0])
    return np.concatenate(found).reshape(log_levels.shape)


def levels(law: Law, generator: Generator, scale: float, shape: Shape) -> Floats:
    """Logs of the levels of epochs."""
    return scale * law.level(generator, shape[0] * shape[1]).reshape(shape)


def truth_us(law: Law, generator: Generator, n: int) -> float:
    """exp of the expectation of the log of an epoch's statistic; levels are 0 on average."""
    return float(np.exp(np.log(draw(law, generator, np.zeros((1, EPOCHS_FOR_TRUTH)), n)).mean()))


@dataclass(frozen=True, slots=True)
class Trial:
    """Two arms side by side: the statistic of every epoch, shapes (epochs,), and the truth of the first."""

    base_us: Floats
    new_us: Floats
    truth_us: float

    def arm(self, n: int) -> LogMean | None:
        """The first arm's mean over its first n epochs."""
        return log_mean(self.base_us[:n])

    def ratio(self, n: int) -> LogMean | None:
        """The second arm over the first, likewise."""
        return log_ratio(self.base_us[:n], self.new_us[:n])


def trials(law: Law, generator: Generator, count: int, epochs: int) -> Iterator[Trial]:
    """As many with each number of samples."""
    for n in SAMPLES:
        shape = (count // len(SAMPLES), epochs)
        shared = levels(law, generator, SHARED, shape)
        base, new = (
            draw(law, generator, shared + levels(law, generator, OWN, shape), n) for _ in ("base", "new")
        )
        truth = truth_us(law, generator, n)
        for base_us, new_us in zip(base, RATIO * new, strict=True):
            yield Trial(base_us, new_us, truth)


Enough = Callable[[LogMean, float], bool]


def is_bare_width_small(mean: LogMean, precision: float) -> bool:
    """What ``is_precise`` would be without its correction."""
    return half_width(mean) <= precision


def stop(mean_of: Callable[[int], LogMean | None], epochs: int, precision: float, enough: Enough) -> LogMean:
    """The mean at the first look that is precise, or at the last epoch."""
    for n in filter(is_look, range(1, epochs + 1)):
        mean = mean_of(n)
        if mean is not None and enough(mean, precision):
            return mean
    last = mean_of(epochs)
    assert last is not None
    return last


@dataclass(frozen=True, slots=True)
class Coverage:
    """What came of all trials of one law.

    Attributes:
        hits, trials: intervals that held the truth, of how many.
        half_width: the median.
        epochs: the median.
        precise: the fraction that stopped by precision before the last epoch.
    """

    hits: int
    trials: int
    half_width: float
    epochs: float
    precise: float

    @property
    def rate(self) -> float:
        """The fraction that held it."""
        return self.hits / self.trials


def coverage(means: list[LogMean], truths: list[float], epochs: int) -> Coverage:
    """Of the means at which trials stopped, at most ``epochs`` long."""
    intervals = [mean.interval() for mean in means]
    hits = sum(low <= truth <= high for (low, high), truth in zip(intervals, truths, strict=True))
    return Coverage(
        hits,
        len(means),
        float(np.median([half_width(mean) for mean in means])),
        float(np.median([mean.n for mean in means])),
        float(np.mean([mean.n < epochs for mean in means])),
    )


def simulate(
    law: Law, generator: Generator, count: int, epochs: int, enough: tuple[Enough, ...]
) -> dict[str, list[Coverage]]:
    """One arm and the ratio of two, under each stopping rule, on the same samples."""
    told = list(trials(law, generator, count, epochs))
    arms = [[stop(t.arm, epochs, PRECISION_OF_ARM, rule) for t in told] for rule in enough]
    ratios = [[stop(t.ratio, epochs, PRECISION_OF_RATIO, rule) for t in told] for rule in enough]
    return {
        "one arm": [coverage(means, [t.truth_us for t in told], epochs) for means in arms],
        "ratio": [coverage(means, [RATIO] * len(told), epochs) for means in ratios],
    }


# Flags of series.


def autoregressive(generator: Generator, shape: Shape, correlation: float) -> Floats:
    """Rows of unit variance whose neighbours correlate."""
    values = generator.normal(size=shape)
    for at in range(1, shape[1]):
        values[:, at] = correlation * values[:, at - 1] + math.sqrt(1 - correlation**2) * values[:, at]
    return values


def flagged(law: Law, generator: Generator, count: int, log_levels: Floats, n: int = 160) -> tuple[int, int]:
    """How many trials of these levels, shape (count, epochs), are told to drift and to be correlated."""
    found = [series(values) for values in draw(law, generator, log_levels, n)]
    assert len(found) == count
    return (
        sum(one is not None and one.drifts for one in found),
        sum(one is not None and one.correlated for one in found),
    )


def sound(generator: Generator, shape: Shape) -> Floats:
    """Levels of epochs that know nothing of each other."""
    return SHARED * generator.normal(size=shape)


def drifting(generator: Generator, shape: Shape, by: float = 3.0) -> Floats:
    """The same, rising by three times their spread from the first to the last."""
    return sound(generator, shape) + SHARED * by * np.linspace(0, 1, shape[1])


def lasting_four(generator: Generator, shape: Shape) -> Floats:
    """A level that lasts for four epochs: correlation exp(-1/4) from one to the next."""
    return SHARED * autoregressive(generator, shape, math.exp(-1 / 4))


def lasting_eight(generator: Generator, shape: Shape) -> Floats:
    """A level that lasts for eight."""
    return SHARED * autoregressive(generator, shape, math.exp(-1 / 8))


LEVELS = {
    "independent": sound,
    "rising by 3 spreads": drifting,
    "lasting 4 epochs": lasting_four,
    "lasting 8 epochs": lasting_eight,
}


def _rate(hits: int, count: int) -> str:
    low, high = clopper_pearson(hits, count)
    return f"{100 * hits / count:5.1f} % [{100 * low:4.1f}, {100 * high:5.1f}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=4000, help="of each law, a multiple of 4")
    parser.add_argument("--epochs", type=int, default=96, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    print(
        f"{options.trials} trials of {min(SAMPLES)} to {max(SAMPLES)} samples an epoch, at most "
        f"{options.epochs} epochs, to {PRECISION_OF_ARM:.0%} (one arm) and {PRECISION_OF_RATIO:.0%} (ratio)"
    )
    print(
        f"{'law':15} {'of':8} {'95 % intervals hold':22} {'half-width':>10} {'epochs':>6}"
        f" {'bare: epochs':>13} {'hold':>7}"
    )
    for law in (*LAWS, *HARD_LAWS):
        told = simulate(law, generator, options.trials, options.epochs, (is_precise, is_bare_width_small))
        for of, (kept, bare) in told.items():
            print(
                f"{law.name:15} {of:8} {_rate(kept.hits, kept.trials):22} {kept.half_width:10.2%} "
                f"{kept.epochs:6.0f} {bare.epochs:13.0f} {100 * bare.rate:5.1f} %",
                flush=True,
            )
    print(f"\n{'levels of epochs':32} {'epochs':>6}  {'drifts':22} correlated")
    law = LAWS[0]
    for name, levels_of in LEVELS.items():
        for epochs in (16, 32, 48):
            shape = (options.trials, epochs)
            hits = flagged(law, generator, options.trials, levels_of(generator, shape))
            print(
                f"{name:32} {epochs:6}  " + "  ".join(_rate(one, options.trials) for one in hits), flush=True
            )


if __name__ == "__main__":
    main()
