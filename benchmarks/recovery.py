"""How soon a job works again after a rank was killed: `ncclbench drill`, as anybody runs it.

    python benchmarks/recovery.py [--trials 10]

Four gloo ranks, the last one killed in each trial, by each strategy that keeps the others alive. The bar
holds for the median of the time from the kill to the first good collective of the three that are left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from _bar import tell

STRATEGIES = ("reconfigure", "rebuild")
_BAR_MS = 100.0
_LIMIT_S = 600.0


def main() -> None:
    """Print the median and the worst of each strategy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    trials = parser.parse_args().trials
    command = ("drill", "--strategy", ",".join(STRATEGIES), "--trials", str(trials), "--nproc-per-node", "4")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "ncclbench", *command, "--json", "--out", f"{folder}/drill"],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"drill ended with {done.returncode}: {done.stderr[-2000:]}")
    document = json.loads(done.stdout)
    for strategy in STRATEGIES:
        own = [trial for trial in document["trials"] if trial["strategy"] == strategy]
        if len(own) != trials or not all(trial["correct"] for trial in own):
            tell(f"recovery: {strategy}", f"{len(own)} of {trials} trials, or sums are wrong", False)
            continue
        took_ms = [trial["phases_ms"]["first_good_n_minus_1"] for trial in own]
        median_ms = statistics.median(took_ms)
        tell(f"recovery: {strategy}", f"{median_ms:.0f} ms, worst {max(took_ms):.0f} ms", median_ms < _BAR_MS)


if __name__ == "__main__":
    main()
