"""How long whole commands take: --help, and the 48-row sweep beside a bare loop over the same sizes.

    python benchmarks/commands.py [--rounds 5]

The bare loop is what a script without checks, epochs or a run folder does: 5 warm-up operations and a
mean of 20 on two gloo ranks, for the same 48 sizes. The two take turns, so that their ratio holds
whatever the machine does meanwhile.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from _bar import tell

_HELP_BAR_S, _SWEEP_BAR_S, _PAGE_BAR_BYTES = 0.150, 7.4, 2_200_000
NCCLBENCH = (sys.executable, "-m", "ncclbench")
SWEEP = ("sweep", "--ops", "all_reduce,broadcast", "--modes", "isolated", "--nproc-per-node", "2")
LARGEST_BYTES = 64 << 20


def seconds(command: Sequence[str]) -> float:
    """Wall time of a command that must succeed."""
    before = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - before


def bare_loop() -> None:
    """The script to compare with, from its import of torch to its last number."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rank = 0 if os.fork() else 1
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for operation in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0)):
        nbytes = 8
        while nbytes <= LARGEST_BYTES:
            tensor = torch.rand(nbytes // 4)
            for _ in range(5):
                operation(tensor)
            before = time.perf_counter()
            for _ in range(20):
                operation(tensor)
            if rank == 0:
                print(nbytes, (time.perf_counter() - before) / 20 * 1e6)
            nbytes *= 2
    dist.barrier()
    if rank == 0:
        os.wait()
    os._exit(0)


def main() -> None:
    """Print each figure with its best and median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_loop()
    helped = [seconds([*NCCLBENCH, "--help"]) for _ in range(4 * options.rounds)]
    median_s = statistics.median(helped)
    tell("help", f"best {min(helped) * 1e3:.0f} ms, median {median_s * 1e3:.0f} ms", median_s < _HELP_BAR_S)
    swept, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            swept.append(seconds([*NCCLBENCH, *SWEEP, "--out", f"{folder}/{number}"]))
            bare.append(seconds([sys.executable, __file__, "--bare"]))
        report_bytes = (Path(folder) / "0" / "report.html").stat().st_size
    ratios = [ours / theirs for ours, theirs in zip(swept, bare, strict=True)]
    print(f"bare loop, means of 20: best {min(bare):.1f} s, median {statistics.median(bare):.1f} s")
    print(f"ratio of the two, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    median_s = statistics.median(swept)
    tell("sweep", f"best {min(swept):.1f} s, median {median_s:.1f} s", median_s <= _SWEEP_BAR_S)
    tell("page size", f"{report_bytes / 1e6:.2f} MB for 48 rows", report_bytes < _PAGE_BAR_BYTES)


if __name__ == "__main__":
    main()
