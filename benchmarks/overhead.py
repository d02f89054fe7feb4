"""What ncclbench's loop adds to an operation: its blocks against a bare loop's, interleaved in one job.

    python benchmarks/overhead.py [--epochs 200] [--ranks 2]

Both call all_reduce on the same group and buffers behind the same fence; one through the table entry and
the timed loop, one as anybody would write it. Printed per size: the ratio of medians with its 95 %
interval over epochs. The bar: the interval lies inside [0.98, 1.02].
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from _bar import inside, tell

from ncclbench.stats.intervals import log_mean
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.units import format_bytes
from ncclbench.worker.board import Board
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.loop import time_samples
from ncclbench.worker.operation import Bound

SIZES = (8, 64 << 10, 4 << 20)
# Iterations of a block, and pairs of blocks in an epoch: short blocks, so that noise meets both alike.
ITERATIONS = 5
PAIRS = 8
SLOTS = 4


def bound_call(tensor: torch.Tensor, group: dist.ProcessGroup) -> Callable[[], object]:
    """all_reduce as ncclbench binds it."""
    entry = COLLECTIVES["all_reduce"]
    layout = entry.layout(tensor.numel(), dist.get_rank(), dist.get_world_size(), 0)
    assert not isinstance(layout, str)
    nothing = tensor[:0]
    rank, nranks = dist.get_rank(), dist.get_world_size()
    return entry.bind(
        Bound(tensor, nothing, layout, group, rank, nranks, 0, dist.ReduceOp.MAX, False, True, dist)
    )


def bare_block(tensors: list[torch.Tensor], group: dist.ProcessGroup, fence: Callable[[], None]) -> list[int]:
    """The loop that anybody would write, behind the same fence; nanoseconds per operation."""
    times = []
    for index in range(ITERATIONS):
        tensor = tensors[index % len(tensors)]
        fence()
        start = time.perf_counter_ns()
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        times.append(time.perf_counter_ns() - start)
    return times


def measured_block(calls: list[Callable[[], object]], fence: Callable[[], None]) -> list[int]:
    """ncclbench's loop; nanoseconds per operation."""
    batches = [[calls[index % len(calls)]] for index in range(ITERATIONS)]
    samples = time_samples(CpuDevice(), batches, fence, lambda index: None)
    return [int(value) for value in samples.total]


def work(rank: int, nranks: int, port: int, board: Board, epochs: int) -> None:
    """One rank: all sizes, printing on rank 0."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, nranks, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=nranks)
    fence = board.gate(rank)
    order = random.Random(7)
    for nbytes in SIZES:
        tensors = [torch.rand(max(1, nbytes // 4)) for _ in range(SLOTS)]
        ratios = []
        for _ in range(epochs):
            group = dist.new_group(backend="gloo")
            calls = [bound_call(tensor, group) for tensor in tensors]
            for call in calls:
                call()
            medians: dict[str, list[int]] = {"bare": [], "ncclbench": []}
            for _ in range(PAIRS):
                for name in order.sample(sorted(medians), 2):
                    bare = name == "bare"
                    medians[name] += (
                        bare_block(tensors, group, fence) if bare else measured_block(calls, fence)
                    )
            dist.destroy_process_group(group)
            mine = torch.tensor([medians["bare"], medians["ncclbench"]])
            dist.all_reduce(mine, dist.ReduceOp.MAX)
            bare_ns, ours_ns = np.median(mine.numpy(), axis=1)
            ratios.append(ours_ns / bare_ns)
        if rank == 0:
            mean = log_mean(np.array(ratios))
            assert mean is not None
            low, high = mean.interval()
            tell(
                f"overhead {format_bytes(nbytes)}",
                f"{mean.estimate:.4f} [{low:.4f}, {high:.4f}] over {epochs} epochs",
                inside(low, high, 0.98, 1.02),
            )
    dist.destroy_process_group()


def main() -> None:
    """Fork the ranks and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    board = Board(options.ranks)
    children = []
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            work(rank, options.ranks, port, board, options.epochs)
            os._exit(0)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
