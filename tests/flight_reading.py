"""Dumps for the tests of their readers: real ones of gloo, and documents as other recorders write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NRANKS = 3
REPEATS = 12

# The end of a script that defines ``one(rank)`` and ``nranks``: each rank is a process.
FORKED = """
children = []
for rank in range(nranks):
    child = os.fork()
    if not child:
        try:
            one(rank)
        finally:
            os._exit(1)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""

_SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

folder, nranks, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def one(rank):
    store = dist.FileStore(folder + "/store", nranks)
    dist.init_process_group("gloo", rank=rank, world_size=nranks, store=store)
    pair = dist.new_group([0, 1], group_desc="pair")
    ones = torch.ones(4, 3)
    parts = [torch.zeros(4, 3) for _ in range(nranks)]
    for _ in range(repeats):
        dist.all_reduce(ones)
        dist.all_gather(parts, ones)
        if rank < 2:
            dist.broadcast(ones.int(), 0, group=pair)
    dist.barrier()
    time.sleep(0.5)  # what is done is marked so a little later
    for name, content in (
        ("comm_lib_trace_rank_%d" % rank, _dump_fr_trace()),
        ("rank%d.json" % rank, _dump_fr_trace_json()),
        ("other%d.json" % rank, _dump_fr_trace_json(backend="nccl2")),
    ):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    dist.barrier()
    os._exit(0)
"""


def make_real_dumps(folder: Path) -> None:
    """Dumps of three ranks of gloo: pickles, JSON, and JSON of a recorder that was not used."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", _SCRIPT + FORKED, str(folder), str(NRANKS), str(REPEATS)]
    subprocess.run(command, check=True, timeout=100, env=environment)
    (folder / "store").unlink(missing_ok=True)


def entry(record: int, **changes: Any) -> dict[str, Any]:
    """An entry as version 2.10 has it in JSON."""
    return {
        "record_id": record,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": record + 1,
        "p2p_seq_id": 0,
        "op_id": record + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_796_005_572_088_447_198 + record,
        "input_sizes": [[4, 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 3]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": 1_796_005_572_088_447_300 + record,
        "time_discovered_completed_ns": 1_796_005_572_088_447_400 + record,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "thread_id": "139660490320768",
        "thread_name": "python",
        **changes,
    }


def document(entries: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """What a recorder writes, with one group of four ranks."""
    return {
        "version": "2.10",
        "comm_lib_version": "2.29.7",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": "5",
                "last_started_collective": "4",
                "last_completed_collective": "-1",
            }
        },
        "entries": entries,
        **changes,
    }


def as_json(data: Any) -> bytes:
    return json.dumps(data).encode()
