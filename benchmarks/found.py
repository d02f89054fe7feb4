"""How often a slowdown that was put in is found, and how right its size is told: A/B.

    python benchmarks/found.py [--trials 50] [--seconds 20] [--slower 10%] [--out FOLDER]

Each trial is a sweep of all_reduce on two gloo arms, 2 ranks, 64 KiB and 4 MiB, twenty seconds a size; the
second arm is slowed on all ranks by a part of its own statistic. The bar: at least 45 of 50 say "slower",
and the told effect is within 3 points of the truth at the median over trials. The truth is the same
statistic of the same samples without and with the delay.

The power at smaller effects comes from the same trials: the recorded delay is taken out of every sample and
a smaller one put in.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from _bar import tell
from _trials import Comparison, epoch_values, judged_alone, rate, sweep_twins

from ncclbench.compare.paired import CORRELATED
from ncclbench.compare.verdict import judge, paired
from ncclbench.stats.intervals import Margin
from ncclbench.stats.series import series
from ncclbench.units import format_bytes, parse_percent

SIZES = "64K,4M"
MARGIN = Margin(0.03, 1.0)
CURVE = (0.0, 0.3, 0.5, 0.7, 1.0)


def truth(comparison: Comparison, shift: float) -> float:
    """The ratio that the delay makes, over the epochs' statistics of the slowed arm itself."""
    plain = epoch_values(comparison.new, comparison.quantile, 0.0)
    return float(np.exp(np.log(epoch_values(comparison.new, comparison.quantile, shift) / plain).mean()))


def found(comparison: Comparison, shift: float) -> tuple[str, float]:
    """The verdict's word and the told ratio with so much of the delay."""
    if shift == 1.0:
        return comparison.word, float(str(comparison.row["ratio"]))
    base, new = (
        epoch_values(comparison.base, comparison.quantile),
        epoch_values(comparison.new, comparison.quantile, shift),
    )
    course = series(new / base)
    told = judge([paired(base, new, MARGIN, doubt=CORRELATED if course and course.correlated else None)])[0]
    return told.word, float("nan") if told.effect is None else told.effect.estimate


def main() -> None:
    """Sweep, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--slower", default="10%")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="found-"))
    trials: dict[int, list[Comparison]] = defaultdict(list)
    for number in range(options.trials):
        run = sweep_twins(
            out / f"trial{number}",
            sizes=SIZES,
            budget_s=options.seconds,
            seed=number,
            more=["--inject", f"gloo#2:all:{options.slower}"],
        )
        told = []
        for comparison in judged_alone(run):
            trials[comparison.case.nbytes].append(comparison)
            told.append(
                f"{format_bytes(comparison.case.nbytes)} {comparison.row['ratio']:.3f} {comparison.word}"
            )
        print(f"trial {number}: {'; '.join(told)}", flush=True)
    slower = parse_percent(options.slower, "--slower")
    for nbytes, comparisons in trials.items():
        print(f"{format_bytes(nbytes)}:")
        for shift in CURVE:
            answers = [found(comparison, shift) for comparison in comparisons]
            truths = np.array([truth(comparison, shift) for comparison in comparisons])
            hits = sum(word == "slower" for word, _ in answers)
            errors = 100 * (np.array([ratio for _, ratio in answers]) - truths)
            how = "measured" if shift == 1.0 else "from the same samples"
            print(
                f'  {shift * slower:.1%} ({how}): "slower" in {rate(hits, len(answers))}; told minus truth '
                f"{np.median(errors):+.2f} points at the median, {np.median(np.abs(errors)):.2f} apart"
            )
        hits = sum(comparison.word == "slower" for comparison in comparisons)
        is_met = 50 * hits >= 45 * len(comparisons)
        tell(f"a/b {format_bytes(nbytes)}", f'"slower" in {rate(hits, len(comparisons))}', is_met)


if __name__ == "__main__":
    main()
