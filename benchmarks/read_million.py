"""Time and memory to read, summarise, compare and report a run of 1,000,000 samples.

    python benchmarks/read_million.py [--ranks 2] [--iters 250] [--epochs 8]

A run is made with ncclbench's own writer, with as many cases of two arms as make a million samples
(one sample: one iteration on one rank). A fresh process then reads it, so that time and peak memory
are those of `ncclbench report` and of nothing else ("report" does rows and comparison once more).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _bar import tell

SAMPLES = 1_000_000
ARMS = ("gloo", "gloo#2")
_BAR_S, _BAR_MB = 10.0, 1000.0


def write_run(folder: Path, nranks: int, iters: int, epochs: int) -> None:
    """A run with log-normal times whose epochs differ, as a sweep would leave it."""
    import numpy as np

    from ncclbench.plan.model import Arm, Case, Plan, PlannedCase
    from ncclbench.store.folder import RunFolder
    from ncclbench.store.lines import encode_unit
    from ncclbench.store.model import RUN_SCHEMA, Unit

    ncases = SAMPLES // (len(ARMS) * epochs * nranks * iters)
    cases = [
        Case("all_reduce", "float32", "sum", None, 4 * n, n, "world", "back-to-back", False, True, nranks)
        for n in range(1, ncases + 1)
    ]
    plan = Plan(
        cases=tuple(PlannedCase(case, "planned", None, case.nbytes) for case in cases),
        arms=tuple(Arm(name, "gloo") for name in ARMS),
        base_arm=ARMS[0],
        nranks=nranks,
        iters=iters * epochs,
        warmup_iters=None,
        check=1,
        epochs=epochs,
        epoch_kind="group",
        statistic="p25",
        margin_ratio=0.03,
        margin_us=1.0,
        time_budget_s=None,
        timeout_s=60.0,
        share_gpu=False,
        seed=0,
    )
    generator = np.random.default_rng(plan.seed)
    with RunFolder.create(folder) as run, run.samples() as samples:
        for epoch in range(epochs):
            for case in cases:
                level_us = (100 + case.count) * generator.lognormal(0, 0.05)
                units = []
                for arm in ARMS:
                    total_us = level_us * generator.lognormal(0, 0.2, (nranks, iters))
                    units.append(
                        Unit(
                            case=case.key,
                            arm=arm,
                            epoch=epoch,
                            attempt=0,
                            k=1,
                            start_us=np.cumsum(total_us, axis=1),
                            launch_us=total_us / 10,
                            device_us=None,
                            total_us=total_us,
                            visits=(iters,),
                            turns=(0,),
                            wrong=(0,) * nranks,
                        )
                    )
                samples.append(b"".join(encode_unit(unit) for unit in units))
        host = {"name": "synthetic"}
        places = [{"rank": rank, "host": 0, "local_rank": rank, "device": "cpu"} for rank in range(nranks)]
        run.write_meta(
            {
                "schema": RUN_SCHEMA,
                "kind": "sweep",
                "label": "a million samples",
                "plan": plan.to_json(),
                "environment": {"hosts": [host], "ranks": places},
                "arms": {arm: {"implementation": "ProcessGroupGloo", "status": "ok"} for arm in ARMS},
                "status": "complete",
            }
        )


def read_run(folder: Path) -> dict[str, float]:
    """Seconds of each step, and the peak memory of this process."""
    seconds: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        seconds[name] = time.perf_counter() - start
        return result

    def imports() -> None:
        import ncclbench.compare.paired
        import ncclbench.report.build
        import ncclbench.stats.rows
        import ncclbench.store.reader  # noqa: F401

    timed("import", imports)
    from ncclbench.compare.paired import compare_run
    from ncclbench.report.build import write_report
    from ncclbench.stats.rows import run_rows
    from ncclbench.store.reader import load_run

    run = timed("load", lambda: load_run(folder))
    rows = timed("rows", lambda: run_rows(run))
    comparisons = timed("compare", lambda: compare_run(run))
    timed("report", lambda: write_report([run], folder / "report.html"))
    if len(comparisons) * 2 != len(rows) or run.problems:
        raise SystemExit(f"read {len(rows)} rows, {len(comparisons)} comparisons, problems {run.problems}")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**{f"{name}_s": value for name, value in seconds.items()}, "peak_MB": peak_kib * 1024 / 1e6}


def main() -> None:
    """Write in one process, read in another, print what both took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--iters", type=int, default=250, help="per epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_run(options.write, options.ranks, options.iters, options.epochs)
        return
    if options.read:
        print(json.dumps(read_run(options.read)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        itself = [sys.executable, __file__]
        shape = [f"--ranks={options.ranks}", f"--iters={options.iters}", f"--epochs={options.epochs}"]
        start = time.perf_counter()
        subprocess.run([*itself, "--write", str(folder), *shape], check=True)
        print(f"written in {time.perf_counter() - start:.2f} s, one fsync per case and epoch")
        size = (folder / "samples.jsonl").stat().st_size
        print(f"samples.jsonl: {size / 1e6:.1f} MB for {SAMPLES:,} samples, {size / SAMPLES:.1f} bytes each")
        read = subprocess.run([*itself, "--read", str(folder)], check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(read.stdout)
        for name, value in found.items():
            print(f"{name:12} {value:8.2f}")
        took_s = sum(value for name, value in found.items() if name.endswith("_s"))
        met = took_s < _BAR_S and found["peak_MB"] < _BAR_MB
        tell("a million samples", f"{took_s:.1f} s, {found['peak_MB']:.0f} MB", met)


if __name__ == "__main__":
    main()
