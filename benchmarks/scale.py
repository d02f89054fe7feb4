"""What 64 to 16,384 ranks cost, simulated: plan, a rank's own work, store, gathering, run folder, report.

    python benchmarks/scale.py [--ranks 64,256,1024,16384] [--parts plan,rank,store,gather,run]

No process group of that size is made. The plan is the command's own. A rank's work is done for three of the
ranks, groups with torch's fake backend. The supervisors' part in a launch goes through a store that counts. A
unit is gathered from copies of one rank's samples. The run, of 8 ranks a host and one host made slow, is
written with ncclbench's own writer from random times and read in a fresh process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _bar import tell

# Seconds and bytes of the command `plan`; of reading a run of 48 cases, and the bytes of its page.
_PLAN_BAR_S, _PLAN_BAR_MB = 2.0, 300.0
_READ_BAR_S, _READ_BAR_MB, _PAGE_BAR_MB = 60.0, 2000.0, 2.5
LOCAL_RANKS = 8
RANKS = (64, 256, 1024, 16_384)
SLOW_HOST, SLOWER = 3, 1.3
# Meeting, assignment, a look at the others, the last barrier.
LAUNCH_PARTS = 4
EVERYTHING = ((), ("--ops", "all"), ("--topologies", "all"), ("--ops", "all", "--topologies", "all"))
PLAN = ("plan", "--backends", "gloo", "--nproc-per-node", str(LOCAL_RANKS), "--json")


def plan_of(nranks: int, topologies: str = "world") -> Any:
    """The 48 cases of ``--ops all_reduce,broadcast --modes isolated``."""
    from ncclbench.cli import values
    from ncclbench.plan.build import Selection, build_plan
    from ncclbench.plan.machine import Machine
    from ncclbench.plan.model import Arm
    from ncclbench.plan.sizes import parse_sizes

    selection = Selection(
        sizes=parse_sizes(),
        ops=("all_reduce", "broadcast"),
        topologies=values.topologies(topologies, "--topologies"),
        modes=("isolated",),
    )
    host = Machine("simulated", "cpu", LOCAL_RANKS, memory_bytes=1 << 40)
    arms = [Arm("gloo", "gloo")]
    return build_plan(selection, arms, nranks=nranks, local_ranks=LOCAL_RANKS, device="cpu", machine=host)


def make_plan(nranks: int, *more: str) -> dict[str, float]:
    """The command's document, in a process of its own: rows, seconds, and the most memory it had."""
    command = [sys.executable, "-c", _PLANNED, *PLAN, "--world-size", str(nranks), *more]
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took_s = time.perf_counter() - begun
    document = json.loads(done.stdout)
    assert document["nranks"] == nranks
    busy_s, peak_bytes = map(float, done.stderr.splitlines()[-1].split())
    rows = len(document["rows"])
    return {"took_s": took_s, "processor_s": busy_s, "peak_MB": peak_bytes / 1e6, "rows": rows}


# The command, then what it took: what the system has counted of a process includes what started it.
_PLANNED = """
import sys, time
from ncclbench.cli.app import run
code = run(sys.argv[1:])
hwm = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time(), int(hwm.split()[1]) * 1024, file=sys.stderr)
sys.exit(code)
"""


def peak_bytes() -> int:
    """The most memory that this process had."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def rank_work(nranks: int) -> dict[str, float]:
    """Seconds of one rank, the worst of three: the plan, its parts and groups, an uneven all_to_all."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from ncclbench.plan.packed import packed_plan, unpacked_plan
    from ncclbench.tables.collectives import COLLECTIVES
    from ncclbench.worker.compat import new_group_of
    from ncclbench.worker.cuts import parts_of

    plan = plan_of(nranks, f"all,mesh:dp={nranks // 16},tp=4,pp=4")
    text = json.dumps(packed_plan(plan))
    uneven = COLLECTIVES["all_to_allv"]
    worst: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        worst[what] = max(worst.get(what, 0.0), time.perf_counter() - begun)

    for rank in (0, nranks // 2 + 1, nranks - 1):
        with timed("reading the plan"):
            told = unpacked_plan(json.loads(text))
        assert told == plan
        with timed("parts in topologies"):
            parts = parts_of(told, rank)
        with timed("splits of all_to_allv"):
            layout = uneven.layout(16 * nranks, rank, nranks, 0)
        assert not isinstance(layout, str)
        with timed("expected of all_to_allv"):
            assert len(uneven.expected(layout, rank, nranks, 0)) == nranks
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=nranks)
        with timed("groups (fake)"):
            for part in parts.values():
                if not part.is_world:
                    new_group_of(part.ranks, part.groups, {"backend": "fake"})
        dist.destroy_process_group()
    return worst


def store_traffic(nranks: int) -> int:
    """Print operations and bytes of each part of a launch; how many operations a rank other than 0 makes."""
    from _counting_store import Simulation

    simulation = Simulation(plan_of(nranks, "all"), LOCAL_RANKS)
    parts = simulation.run()
    for part in parts:
        print(
            f"  {part.what:20} operations, bytes: rank 0 {part.leader[0]:7,}, {part.leader[1]:10,}; "
            f"another {part.other[0]:3}, {part.other[1]:6,}; all {part.operations:9,}, {part.nbytes:11,}"
        )
    print(f"  all together look {simulation.looks_per_s():,.0f} times a second where they wait")
    # What comes after the launch itself is what deaths and hangs make of it.
    return sum(part.other[0] for part in parts[:LAUNCH_PARTS])


def gather_unit(nranks: int, iters: int = 7) -> dict[str, float]:
    """Rank 0's side of a unit, and its lines: bytes of a rank, seconds, and memory beyond what it had."""
    import numpy as np

    from ncclbench.store.lines import encode_unit
    from ncclbench.worker import units
    from ncclbench.worker.visit import Visit

    case = plan_of(nranks).planned[0]
    times = np.arange(1, iters + 1, dtype=np.int64) * 50_000
    samples = _samples(times)
    visit = Visit(samples=samples, k=1, wrong=0)
    sizes: list[int] = []

    class Control:
        """Hands rank 0 as many copies of its own samples as there are ranks."""

        clock_offset_ns = 0

        def gather_array(self, array: Any) -> list[Any]:
            sizes.append(array.nbytes)
            return [array.copy() for _ in range(nranks)]

    before = peak_bytes()
    begun = time.perf_counter()
    arm: Any = units.ArmVisits("gloo", [visit], [0], None)
    control: Any = Control()
    (unit,) = units.gather_units(case, 0, 0, True, [arm], control)
    gathered = time.perf_counter()
    lines = encode_unit(unit)
    written = time.perf_counter()
    return {
        "bytes_per_rank": sizes[0],
        "gather_s": gathered - begun,
        "encode_s": written - gathered,
        "MB_of_lines": len(lines) / 1e6,
        "MB_more": (peak_bytes() - before) / 1e6,
    }


def _samples(times: Any) -> Any:
    from ncclbench.worker.loop import Samples

    return Samples(start=times, launch=times // 10, device=None, total=times)


def write_run(folder: Path, nranks: int) -> None:
    """A run of one arm as a sweep would leave it, with log-normal times; a host is slow."""
    import numpy as np

    from ncclbench.environment.collect import merge
    from ncclbench.store.folder import RunFolder
    from ncclbench.store.lines import encode_unit
    from ncclbench.store.model import RUN_SCHEMA, Unit

    plan = plan_of(nranks)
    generator = np.random.default_rng(plan.seed)
    slow = np.arange(nranks) // LOCAL_RANKS == SLOW_HOST
    with RunFolder.create(folder) as run, run.samples() as samples:
        for epoch in range(plan.epochs):
            iters = plan.iters_in_epoch(epoch)
            for case in plan.planned:
                level_us = (50 + case.nbytes / 1e3) * generator.lognormal(0, 0.02)
                total_us = level_us * generator.lognormal(0, 0.05, (nranks, iters))
                total_us[slow] *= SLOWER
                starts_us = np.cumsum(total_us.max(axis=0)) + generator.random((nranks, 1))
                unit = Unit(
                    case=case.key,
                    arm="gloo",
                    epoch=epoch,
                    attempt=0,
                    k=1,
                    start_us=starts_us,
                    launch_us=total_us / 10,
                    device_us=None,
                    total_us=total_us,
                    visits=(iters,),
                    turns=(0,),
                    wrong=(0,) * nranks,
                )
                samples.append(encode_unit(unit))
        run.write_meta(
            {
                "schema": RUN_SCHEMA,
                "kind": "sweep",
                "label": f"{nranks:,} simulated ranks",
                "plan": plan.to_json(),
                "environment": merge([_described(rank) for rank in range(nranks)]),
                "arms": {"gloo": {"implementation": "ProcessGroupGloo", "status": "ok"}},
                "status": "complete",
                "attempts": [],
            }
        )


def _described(rank: int) -> dict[str, Any]:
    """What a rank tells of itself: hosts with other names and one with another kernel."""
    host = rank // LOCAL_RANKS
    kernel = "6.1.0-13" if host == SLOW_HOST else "6.1.0-18"
    return {
        "host": {
            "name": f"node{host:04d}",
            "boot_id": f"boot-{host}",
            "kernel": kernel,
            "memory_bytes": 1 << 40,
        },
        "rank": {
            "rank": rank,
            "local_rank": rank % LOCAL_RANKS,
            "pid": 1000 + rank,
            "device": "cpu",
            "torch": "2.15.0",
            "cores": f"{rank % LOCAL_RANKS * 8}-{rank % LOCAL_RANKS * 8 + 7}",
            "variables": {"OMP_NUM_THREADS": "8"},
            "gpu": None,
            "now": {"load_1min": 1.0, "available_bytes": 1 << 39, "swap_used_bytes": 0},
        },
    }


def read_run(folder: Path) -> dict[str, float]:
    """Seconds of each step, the peak memory of this process, and the size of the page."""
    found: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        begun, busy = time.perf_counter(), time.process_time()
        result = step()
        found[f"{name}_s"] = time.perf_counter() - begun
        found[f"{name}_processor_s"] = time.process_time() - busy
        return result

    from ncclbench.compare.paired import compare_run
    from ncclbench.report.build import write_report
    from ncclbench.stats.rows import run_rows, write_summary_csv
    from ncclbench.store.reader import load_run

    page = folder / "report.html"
    run = timed("load", lambda: load_run(folder))
    rows = timed("rows", lambda: run_rows(run))
    timed("compare", lambda: compare_run(run))
    timed("summary", lambda: write_summary_csv(rows, folder / "summary.csv"))
    timed("report", lambda: write_report([run], page))
    if len(rows) != 48 or run.problems or any(row["status"] != "ok" for row in rows):
        raise SystemExit(f"read {len(rows)} rows, problems {run.problems}")
    found["total_s"] = sum(value for name, value in found.items() if not name.endswith("processor_s"))
    found["peak_MB"] = peak_bytes() / 1e6
    found["page_MB"] = page.stat().st_size / 1e6
    return found


def aggregate(nranks: int, folder: Path) -> dict[str, float]:
    """Write in one process, read in another."""
    itself = [sys.executable, __file__]
    begun = time.perf_counter()
    subprocess.run([*itself, "--write", str(folder), "--ranks", str(nranks)], check=True)
    found = {"written_s": time.perf_counter() - begun}
    found["samples_MB"] = (folder / "samples.jsonl").stat().st_size / 1e6
    read = subprocess.run([*itself, "--read", str(folder)], check=True, stdout=subprocess.PIPE, text=True)
    return found | json.loads(read.stdout)


def main() -> None:
    """Every part for every number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--parts", default="plan,rank,store,gather,run")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(text) for text in options.ranks.split(",")]
    if options.write:
        write_run(options.write, sizes[0])
        return
    if options.read:
        print(json.dumps(read_run(options.read)))
        return
    if options.here:
        _show(options.parts, sizes[0])
        return
    for nranks in sizes:
        print(f"{nranks:,} ranks", flush=True)
        for part in options.parts.split(","):
            # In a process of its own, so that its memory is that of nothing else.
            one = [sys.executable, __file__, "--here", "--parts", part, "--ranks", str(nranks)]
            subprocess.run(one, check=True)


def _show(part: str, nranks: int) -> None:
    if part == "plan":
        for more in EVERYTHING:
            found = make_plan(nranks, *more)
            print(f"  {' '.join(['plan', *more])}: {_listed(found)}", flush=True)
            if nranks == max(RANKS) and more in (EVERYTHING[0], EVERYTHING[-1]):
                met = found["took_s"] < _PLAN_BAR_S and found["peak_MB"] < _PLAN_BAR_MB
                name = "plan of all" if more else "plan"
                tell(name, f"{found['took_s']:.1f} s, {found['peak_MB']:.0f} MB", met)
    elif part == "store":
        mine = store_traffic(nranks)
        if nranks == max(RANKS):
            few = store_traffic(min(RANKS))
            tell("store", f"{few} operations a rank at {min(RANKS)} ranks, {mine} at {nranks:,}", mine <= few)
    elif part == "rank":
        texts = [f"{what} {1e3 * took:.1f} ms" for what, took in rank_work(nranks).items()]
        print(f"  a rank: {', '.join(texts)}")
    elif part == "gather":
        print(f"  gather: {_listed(gather_unit(nranks))}")
    else:
        with tempfile.TemporaryDirectory() as scratch:
            found = aggregate(nranks, Path(scratch) / "run")
            print(f"  run: {_listed(found)}")
        if nranks == max(RANKS):
            measured = f"{found['total_s']:.0f} s, {found['peak_MB']:.0f} MB, page {found['page_MB']:.2f} MB"
            met = found["total_s"] < _READ_BAR_S and found["peak_MB"] < _READ_BAR_MB
            tell("16,384 ranks read", measured, met and found["page_MB"] < _PAGE_BAR_MB)


def _listed(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items())


if __name__ == "__main__":
    main()
