"""Dumps of a job whose calls are known: four ranks of gloo in one group of all and two groups of two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flight_reading import FORKED

NRANKS = 4
# What it calls: topology, collective, element type, bytes by our meaning of size, how often.
CALLS = {
    ("world", "all_reduce", "float32", 16384, 3),
    ("dump:tp", "all_reduce", "float32", 4096, 5),
    ("world", "all_gather", "int64", 800 * NRANKS, 1),
    ("world", "all_to_all", "float32", 32, 1),
    ("world", "gather", "float32", 24 * NRANKS, 1),
    ("world", "broadcast", "bfloat16", 18, 2),
    ("world", "barrier", "float32", 0, 1),
}

_SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

folder, nranks = sys.argv[1], int(sys.argv[2])

def one(rank):
    store = dist.FileStore(folder + "/store", nranks)
    dist.init_process_group("gloo", rank=rank, world_size=nranks, store=store)
    halves = [dist.new_group(ranks, group_desc="tp") for ranks in ([0, 1], [2, 3])]
    for _ in range(5):
        dist.all_reduce(torch.ones(1024), group=halves[rank // 2])
    for _ in range(3):
        dist.all_reduce(torch.ones(4096))
    dist.all_gather_into_tensor(torch.zeros(400, dtype=torch.int64), torch.ones(100, dtype=torch.int64))
    dist.all_to_all_single(torch.zeros(8), torch.ones(8))
    dist.gather(torch.ones(6), [torch.zeros(6) for _ in range(nranks)] if rank == 1 else None, dst=1)
    for _ in range(2):
        dist.broadcast(torch.ones(9, dtype=torch.bfloat16), 0)
    dist.barrier()
    time.sleep(0.5)  # what is done is marked so a little later
    content = _dump_fr_trace_json() if rank % 2 else _dump_fr_trace()
    with open(os.path.join(folder, "rank_%d" % rank), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    dist.barrier()
    os._exit(0)
"""


def make_job_dumps(folder: Path) -> None:
    """One file a rank, pickled and JSON by turns."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", _SCRIPT + FORKED, str(folder), str(NRANKS)]
    subprocess.run(command, check=True, timeout=100, env=environment)
    (folder / "store").unlink(missing_ok=True)
