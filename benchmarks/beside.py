"""What the bars of overlap and transport ask for: hidden over a shaped link, and weights by one-sided copies.

    python benchmarks/beside.py [--runs 10] [--weights 1G]

The first part needs root and iproute2 (tests/emulated.py): two hosts of one rank, 1 MiB over a link of
10 Mbit/s beside a kernel of the same length. The second runs on this machine alone. The load of the
machine as it begins stands beside each line, because two cores carry everything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _bar import tell
from emulated import Cluster

_RATE_MBIT = 10.0
_LIMIT_S = 200.0
_KERNELS = ("fma", "triad", "gemm")
_HIDDEN_BAR, _SERIAL_BAR = 0.9, 0.1
# One-sided copies over broadcast, of time.
_WEIGHTS_BAR = 0.5


def _overlap(folder: Path, compute: str) -> list[dict[str, Any]]:
    words = ("overlap", "--sizes", "1M", "--compute", compute, "--epochs", "3", "-n", "6", "--json")
    with Cluster(2, _RATE_MBIT) as cluster:
        done = cluster.launch(1, ("-m", "ncclbench", *words, "--out", str(folder)), _LIMIT_S)
    rows: list[dict[str, Any]] = done.document["rows"]
    return rows


def _transport(folder: Path, weights: str) -> dict[str, Any]:
    words = ("transport", "--weights", weights, "--generators", "2", "--json", "--out", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "ncclbench", *words], capture_output=True, text=True, timeout=1200, check=False
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def main() -> None:
    """Measure, and print a line for each run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--weights", default="1G")
    asked = options.parse_args()
    good = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(asked.runs):
            compute = _KERNELS[number % len(_KERNELS)]
            load = os.getloadavg()[0]
            together, serial = _overlap(Path(temporary) / str(number), compute)
            is_good = together["efficiency"] >= _HIDDEN_BAR and serial["efficiency"] < _SERIAL_BAR
            good += is_good
            print(
                f"{compute:6} together {together['efficiency']:.3f} "
                f"[{together['ci_low']:.3f}, {together['ci_high']:.3f}], "
                f"serial {serial['efficiency']:.3f}, load {load:.1f}",
                flush=True,
            )
        tell("overlap", f"{good} of {asked.runs} as asked", good == asked.runs)
        document = _transport(Path(temporary) / "weights", asked.weights)
    print(document["message"])
    for row in document["rows"]:
        print(
            {key: row.get(key) for key in ("way", "arm", "total_us", "ratio", "ci_low", "ci_high", "verdict")}
        )
    one_sided = [row for row in document["rows"] if row["way"].endswith(("-read", "-write")) and row["ratio"]]
    tell(
        "weights",
        ", ".join(
            f"{row['way']} {row['ratio']:.2f}x [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
            for row in one_sided
        ),
        all(row["ci_high"] <= _WEIGHTS_BAR for row in one_sided),
    )


if __name__ == "__main__":
    main()
