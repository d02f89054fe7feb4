"""How often two equal arms are called different: A/A, each comparison judged alone.

    python benchmarks/false_verdicts.py [--runs 10] [--seconds 5] [--out FOLDER]

Ten sweeps of all_reduce on two gloo arms, 2 ranks, 20 sizes from 8 B to 4 MiB, five seconds a size. The
bar: at most 15 of the 200 say "faster" or "slower", which is what a true 5 % allows. Beside it stands what
the same samples say in the usual way: the mean of 20 iterations of one arm, then of 20 of the other, and a
threshold of 5 %, or Welch's t test on the two twenties.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from _bar import tell
from _trials import Comparison, judged_alone, rate, sweep_twins
from scipy.stats import ttest_ind

from ncclbench.units import format_bytes

SIZES = [2**power for power in range(3, 23)]
TWENTY = 20


def twenties(comparison: Comparison) -> tuple[np.ndarray, np.ndarray] | None:
    """Twenty iterations of one arm and twenty of the next visit to the other, in the first full epoch."""
    for base, new in zip(comparison.base, comparison.new, strict=True):
        if min(base.visits[0], new.visits[0]) < TWENTY:
            continue
        return base.rank_time_us[0, :TWENTY], new.rank_time_us[0, :TWENTY]
    # Visits are shorter where operations are slow: successive ones make up the twenty.
    for base, new in zip(comparison.base, comparison.new, strict=True):
        if min(base.time_us.size, new.time_us.size) >= TWENTY:
            return base.rank_time_us[0, :TWENTY], new.rank_time_us[0, :TWENTY]
    return None


def main() -> None:
    """Sweep, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="false-verdicts-"))
    words: Counter[str] = Counter()
    by_size: dict[int, list[str]] = {nbytes: [] for nbytes in SIZES}
    apart = different = naive = 0
    widths = []
    for number in range(options.runs):
        run = sweep_twins(
            out / f"run{number}",
            sizes=",".join(map(str, SIZES)),
            budget_s=options.seconds,
            seed=number,
            more=[],
        )
        for comparison in judged_alone(run):
            words[comparison.word] += 1
            by_size[comparison.case.nbytes].append(comparison.word)
            low, high = comparison.row["ci_low"], comparison.row["ci_high"]
            widths.append((float(str(high)) / float(str(low))) ** 0.5 - 1)
            pair = twenties(comparison)
            if pair is not None:
                naive += 1
                ratio = pair[1].mean() / pair[0].mean()
                apart += not 1 / 1.05 <= ratio <= 1.05
                different += float(ttest_ind(*pair, equal_var=False).pvalue) < 0.05
        print(f"run {number}: {dict(words)}", flush=True)
    total = sum(words.values())
    for nbytes, told in by_size.items():
        print(f"  {format_bytes(nbytes):>5}: {dict(Counter(told))}")
    false = words["faster"] + words["slower"]
    print(f"half-width of the 95 % interval: median {np.median(widths):.1%}")
    print(f'"same": {rate(words["same"], total)}')
    print(f"mean of {TWENTY}, then mean of {TWENTY}, 5 % threshold: different in {rate(apart, naive)}")
    print(f"Welch's t test on the same twenties: different in {rate(different, naive)}")
    bar = 15 * total // 200
    tell("a/a", f'"faster" or "slower" in {rate(false, total)}', false <= bar)


if __name__ == "__main__":
    main()
