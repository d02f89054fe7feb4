"""Flight recorder dumps as torch writes them, made of numbers, for tests of what is done with them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START_NS = 1_790_000_000_000_000_000
STEP_NS = 10_000_000


def entry(
    number: int,
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    op: str = "all_reduce",
    backend: str = "nccl",
    sizes: Sequence[Sequence[int]] = ((1024,),),
    dtype: str = "Float",
    done: bool = True,
    late_ns: int = 0,
    frames: Sequence[tuple[str, str, int]] | None = None,
    record: int | None = None,
) -> dict[str, Any]:
    """The operation with this number in its group, from 1; ``frames``: function, file and line."""
    created_ns = START_NS + number * STEP_NS + late_ns
    told: dict[str, Any] = {}
    if frames is not None:
        told["frames"] = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    return {
        **told,
        "record_id": number - 1 if record is None else record,
        "pg_id": int(group[0]) if group[0].isdigit() else 0,
        "process_group": list(group),
        "thread_id": "140000000000000",
        "thread_name": "python",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"{backend}:{op}",
        "time_created_ns": created_ns,
        "input_sizes": [list(shape) for shape in sizes],
        "input_dtypes": [dtype] * len(sizes),
        "output_sizes": [list(shape) for shape in sizes],
        "output_dtypes": [dtype] * len(sizes),
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": created_ns + 1_000_000 if done else 0,
        "time_discovered_completed_ns": created_ns + 4_000_000 if done else 0,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def dump(entries: Sequence[dict[str, Any]], ranks: Sequence[int], desc: str = "default_pg") -> dict[str, Any]:
    """What one recorder held, of a rank of one group of these ranks."""
    last = max((one["collective_seq_id"] for one in entries), default=0)
    return {
        "version": "2.10",
        "comm_lib_version": "2.30.4",
        "pg_config": {"0": {"name": "0", "desc": desc, "ranks": f"[{', '.join(map(str, ranks))}]"}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": str(last),
                "last_started_collective": str(last),
                "last_completed_collective": str(last),
            }
        },
        "entries": list(entries),
    }


def job(
    nranks: int = 4,
    numbers: int = 12,
    *,
    absent: Sequence[int] = (),
    other: dict[int, dict[str, Any]] | None = None,
    hangs: bool = True,
    **changed: Any,
) -> dict[int, dict[str, Any]]:
    """Dumps by rank of a job that issues all_reduce 1, 2 ... in its only group.

    Args:
        nranks: in the group.
        numbers: operations of each.
        absent: ranks that do not come to the last one.
        other: by rank, what it issues in place of the last one.
        hangs: the last one is not finished where ranks are missing or differ.
        changed: of every operation.
    """
    ranks = range(nranks)
    stuck = hangs and bool(absent or other)
    dumps = {}
    for rank in ranks:
        entries = [entry(number, **changed) for number in range(1, numbers)]
        if rank not in absent:
            own = {"done": not stuck, **changed, **(other or {}).get(rank, {})}
            entries.append(entry(numbers, **own))
        dumps[rank] = dump(entries, ranks, changed.get("group", ("0", "default_pg"))[1])
    return dumps


def write_json(folder: Path, dumps: dict[int, dict[str, Any]]) -> list[Path]:
    """One file for each rank, as the worker server tells them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{rank}.json" for rank in dumps]
    for path, content in zip(paths, dumps.values(), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return paths


def write_pickles(folder: Path, dumps: dict[int, dict[str, Any]]) -> list[Path]:
    """One file for each rank, as torch writes them at a timeout."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"nccl_trace_rank_{rank}" for rank in dumps]
    for path, content in zip(paths, dumps.values(), strict=True):
        path.write_bytes(pickle.dumps(content, protocol=2))
    return paths
