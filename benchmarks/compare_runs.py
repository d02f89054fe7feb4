"""Time and memory of ``ncclbench compare`` on two runs of 500,000 samples each, as a whole command.

    python benchmarks/compare_runs.py [--ranks 2] [--epochs 8] [--sizes 24]

Two runs are made with ncclbench's own writer: all_reduce and broadcast, isolated and back-to-back, over
``--sizes`` sizes, with as many iterations as make 500,000 samples (one sample: one iteration on one rank).
The command then runs in a process of its own, start of Python included: once with the table on the terminal,
once with the page and the CSV too. Bars: 5 s, 1 GB, torch never imported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _bar import tell

from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Arm, Plan
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_unit
from ncclbench.store.model import RUN_SCHEMA, Unit

SAMPLES = 500_000
BAR_S, BAR_BYTES = 5.0, 1e9

# Runs a command line and tells what it cost: peak memory in KiB, and whether torch was loaded.
SPY = """
import json, resource, sys
from ncclbench.cli.app import run
code = run(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"code": code, "peak_KiB": peak, "torch": "torch" in sys.modules}), file=sys.stderr)
"""


def write_run(folder: Path, plan: Plan, iters: int, slower: float, created: str) -> None:
    """A run with log-normal times whose epochs differ; ``iters`` in each epoch."""
    generator = np.random.default_rng(len(created + folder.name))
    with RunFolder.create(folder) as run, run.samples() as samples:
        for case in plan.planned:
            units = b""
            for epoch in range(plan.epochs):
                level_us = slower * (50 + case.nbytes / 2000) * generator.lognormal(0, 0.05)
                total_us = level_us * generator.lognormal(0, 0.2, (plan.nranks, iters))
                unit = Unit(
                    case=case.key,
                    arm=plan.base_arm,
                    epoch=epoch,
                    attempt=0,
                    k=1,
                    start_us=np.cumsum(total_us, axis=1),
                    launch_us=total_us / 10,
                    device_us=None,
                    total_us=total_us,
                    visits=(iters,),
                    turns=(0,),
                    wrong=(0,) * plan.nranks,
                )
                units += encode_unit(unit)
            samples.append(units)
        places = [
            {"rank": rank, "host": 0, "local_rank": rank, "device": "cpu"} for rank in range(plan.nranks)
        ]
        run.write_meta(
            {
                "schema": RUN_SCHEMA,
                "kind": "sweep",
                "label": folder.name,
                "created": created,
                "plan": plan.to_json(),
                "environment": {"hosts": [{"name": "synthetic"}], "ranks": places},
                "arms": {plan.base_arm: {"implementation": "ProcessGroupGloo", "status": "ok"}},
                "status": "complete",
            }
        )


def measured(*arguments: str) -> tuple[float, dict[str, int]]:
    """Seconds and cost of one command line."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", SPY, *arguments], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    cost: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    if cost["code"]:
        raise SystemExit(f"compare ended with {cost['code']}: {done.stderr}")
    return seconds, cost


def main() -> None:
    """Write both runs, compare them, and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--sizes", type=int, default=24)
    options = parser.parse_args()
    selection = Selection(
        sizes=tuple(8 * options.ranks * (number + 1) for number in range(options.sizes)),
        ops=("all_reduce", "broadcast"),
    )
    plan = build_plan(
        selection,
        [Arm("gloo", "gloo")],
        nranks=options.ranks,
        local_ranks=options.ranks,
        device="cpu",
        method=Method(epochs=options.epochs, iters=options.epochs),
    )
    iters = -(-SAMPLES // (len(plan.planned) * options.epochs * options.ranks))
    with tempfile.TemporaryDirectory() as scratch:
        base, new = Path(scratch) / "base", Path(scratch) / "new"
        write_run(base, plan, iters, 1.0, "2026-11-01T00:00:00Z")
        write_run(new, plan, iters, 1.1, "2026-11-02T00:00:00Z")
        size = sum((run / "samples.jsonl").stat().st_size for run in (base, new))
        print(
            f"two runs of {len(plan.planned)} cases, {iters} samples per epoch and rank, {size / 1e6:.0f} MB"
        )
        files = ("--out", f"{scratch}/page.html", "--csv", f"{scratch}/rows.csv")
        for name, extra in (("compare", ()), ("compare --out --csv", files)):
            seconds, cost = measured("compare", str(base), str(new), *extra)
            peak_bytes = cost["peak_KiB"] * 1024
            met = seconds < BAR_S and peak_bytes < BAR_BYTES and not cost["torch"]
            torch = "imported" if cost["torch"] else "not imported"
            tell(name, f"{seconds:.2f} s, {peak_bytes / 1e6:.0f} MB, torch {torch}", met)


if __name__ == "__main__":
    main()
