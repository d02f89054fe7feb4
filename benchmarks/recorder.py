"""What torch's flight recorder costs, and what it costs to be ready to be asked: small messages, in turns.

    python benchmarks/recorder.py [--rounds 30] [--ranks 2]

torch reads TORCH_FR_BUFFER_SIZE once in a process, when its first group is made, so each arm is processes
of its own, forked anew in every round, in random order: ``off`` (0 entries), ``on`` (2000, torch's default)
and ``asked`` (on, with the server that --flight-recorder starts in every rank). Each launch measures
all_reduce of 8 bytes alone behind a fence (its 25th percentile) and in one long loop (its mean). Printed:
the ratio of times with its 95 % interval over rounds, and the load of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import sys
import time
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ncclbench.stats.intervals import log_ratio
from ncclbench.supervise.capture import Recorders
from ncclbench.worker.board import Board, Gate
from ncclbench.worker.recorder import answering, dumps

ARMS = {"off": "0", "on": "2000", "asked": "2000"}
MODES = ("isolated", "loop")
ISOLATED, LOOP, WARMUP = 400, 2000, 200
_DEADLINE_S = 60.0


def measured(group: dist.ProcessGroup | None, fence: Gate) -> tuple[float, float]:
    """Microseconds of one all_reduce: (behind a fence, in a loop)."""
    tensor = torch.ones(2)
    for _ in range(WARMUP):
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
    alone = []
    for _ in range(ISOLATED):
        fence()
        start = time.perf_counter_ns()
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        alone.append(time.perf_counter_ns() - start)
    fence()
    start = time.perf_counter_ns()
    for _ in range(LOOP):
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
    return float(np.quantile(alone, 0.25)) / 1e3, (time.perf_counter_ns() - start) / LOOP / 1e3


def work(
    arm: str, rank: int, nranks: int, port: int, board: Board, line: socket.socket, answer: Connection
) -> None:
    """One rank of one launch; rank 0 answers with the slowest rank's times."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["TORCH_FR_BUFFER_SIZE"] = ARMS[arm]
    torch.set_num_threads(1)
    with answering(line, rank) if arm == "asked" else contextlib.nullcontext():
        store = TCPStore("127.0.0.1", port, nranks, is_master=rank == 0, timeout=timedelta(seconds=30))
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=30)
        )
        times = torch.tensor(measured(None, board.gate(rank)), dtype=torch.float64)
        recorded = bool(dumps(0))
        assert recorded == (arm != "off"), f"arm {arm}: the recorder {'has' if recorded else 'lacks'} entries"
        dist.all_reduce(times, dist.ReduceOp.MAX)
        if rank == 0:
            answer.send(times.tolist())
        dist.barrier()


def launch(arm: str, nranks: int) -> tuple[float, float]:
    """One launch of an arm: its times, microseconds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    board, (ours, theirs) = Board(nranks), Pipe()
    with Recorders() as recorders:
        children = []
        for rank in range(nranks):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    work(arm, rank, nranks, port, board, recorders.line, theirs)
                    code = 0
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(pid)
        came = ours.poll(_DEADLINE_S)
        if not came:
            for pid in children:
                os.kill(pid, 9)
        failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    if failed or not came:
        sys.exit(f"a rank of arm {arm} failed or did not answer within {_DEADLINE_S:.0f} s")
    isolated_us, loop_us = ours.recv()
    return isolated_us, loop_us


def report(times: dict[str, list[tuple[float, float]]], rounds: int) -> None:
    """Print each arm's times and the two ratios."""
    values = {arm: np.array(own) for arm, own in times.items()}
    for column, mode in enumerate(MODES):
        middle = ", ".join(f"{arm} {np.median(own[:, column]):.2f} us" for arm, own in values.items())
        print(f"all_reduce 8 B, {mode}: median over rounds: {middle}")
        for base, new in (("off", "on"), ("on", "asked")):
            ratio = log_ratio(values[base][:, column], values[new][:, column])
            assert ratio is not None
            low, high = ratio.interval()
            found = f"{ratio.estimate:.4f}x time [{low:.4f}, {high:.4f}]"
            print(f"  {new} over {base}: {found} over {rounds} rounds")


def main() -> None:
    """Go through the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    order = random.Random(11)
    times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors", flush=True)
    for _ in range(options.rounds):
        for arm in order.sample(list(ARMS), len(ARMS)):
            times[arm].append(launch(arm, options.ranks))
    report(times, options.rounds)
    print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
