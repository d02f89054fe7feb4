"""One rank of a job under torchrun, which starts it again when a rank has failed.

``python -m ncclbench.faults.restarted REQUEST`` with RANK and the like set by torchrun. What it comes to it
writes, a line each, to a file of its own in the request's folder: nobody could ask it after its death.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncclbench.environ import variables
from ncclbench.supervise.orphans import die_with
from ncclbench.tables.faults import FAULTS, Stroke

_MEET_S = 60.0
# Steps that a slow rank is left to be slow in.
_SLOW_STEPS = 40
# Operations of one measurement of bandwidth, after some that are not counted.
_TIMED, _WARMUP = 12, 3


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """What every rank of the job is told; plain data, on its command line.

    Attributes:
        torchrun: its process id.
        folder: where ranks write what they come to.
        backend: as torch calls it.
        uses_gpu: tensors live on a GPU; ``share_gpu``: of which several ranks may have one.
        binds_device: the group is given it.
        fault, victim, step: what befalls whom at which step of the first start.
        nbytes, compute_s, slow_factor, timeout_s: as in DrillPlan.
    """

    torchrun: int
    folder: str
    backend: str
    uses_gpu: bool
    share_gpu: bool
    binds_device: bool
    fault: str
    victim: int
    step: int
    nbytes: int
    compute_s: float
    slow_factor: float
    timeout_s: float

    def to_text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> RestartRequest:
        """Inverse of ``to_text``."""
        return cls(**json.loads(text))


def words_file(folder: Path, start: int, rank: int) -> Path:
    """Where a rank writes in the job's start number ``start``, from 0."""
    return folder / f"{start}-{rank}.jsonl"


class _Words:
    """What a rank writes; each line is handed to the system at once, and so outlives the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def say(self, what: str, **more: Any) -> None:
        self._file.write(json.dumps({"what": what, "at_ns": time.monotonic_ns(), **more}) + "\n")


def main() -> None:
    """Take part in the job until the fault, or, started again, until its first right sums."""
    request = RestartRequest.from_text(sys.argv[1])
    # torchrun starts its workers in sessions of their own: killed, it would leave them behind.
    die_with(request.torchrun)
    start, rank = (int(variables()[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK"))
    words = _Words(words_file(Path(request.folder), start, rank))
    words.say("started", pid=os.getpid())
    try:
        _run(request, start, rank, words)
    except Exception as error:  # whatever torch raises is what this rank has noticed
        text = (str(error).splitlines() or [""])[0][:300]
        words.say("raised", text=f"{type(error).__name__}: {text}")
        raise


def _run(request: RestartRequest, start: int, rank: int, words: _Words) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from ncclbench.worker.devices import Devices
    from ncclbench.worker.groups import prepare_environment

    prepare_environment(True, request.share_gpu, int(variables()["LOCAL_WORLD_SIZE"]))
    torch.set_num_threads(1)
    device = Devices(int(variables()["LOCAL_RANK"])).get("cuda" if request.uses_gpu else "cpu")
    words.say("ready")
    # As init_process_group does it by itself, but that ranks may come later than an operation may take.
    store, _, size = next(rendezvous("env://", timeout=timedelta(seconds=_MEET_S)))
    dist.init_process_group(
        request.backend,
        store=dist.PrefixStore("default_pg", store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=request.timeout_s),
        device_id=device.torch_device if request.binds_device and request.uses_gpu else None,
    )
    words.say("joined")
    data = torch.empty(request.nbytes // 4, device=device.torch_device)

    def reduce() -> None:
        dist.all_reduce(data)
        device.synchronize()

    def is_right() -> bool:
        data.fill_(float(rank + 1))
        reduce()
        return bool((data == size * (size + 1) / 2).all())

    words.say("good", correct=is_right())
    data.zero_()
    words.say("measured", seconds=_burst(reduce))
    if start == 0:
        _steps(request, rank, is_right, words)
    dist.destroy_process_group()


def _burst(reduce: Callable[[], None]) -> float:
    """Seconds of one operation where one follows the other."""
    for _ in range(_WARMUP):
        reduce()
    began = time.monotonic()
    for _ in range(_TIMED):
        reduce()
    return (time.monotonic() - began) / _TIMED


def _steps(request: RestartRequest, rank: int, is_right: Callable[[], bool], words: _Words) -> None:
    """Step until the fault ends it; where the fault is slowness, for some steps more."""
    fault = FAULTS[request.fault]
    for step in range(request.step + _SLOW_STEPS):
        if step >= request.step and rank == request.victim:
            if step == request.step:
                words.say("fault")
            if step == request.step or not fault.ends:
                fault.harm(Stroke(os.getpid(), rank, step, request.compute_s, request.slow_factor))
        time.sleep(request.compute_s)
        if not is_right():
            words.say("wrong")


if __name__ == "__main__":
    main()
