"""Checks of when calls return: against the end of the operation, wait(), is_completed(), the first irecv."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.cells.cell import CellResult
from ncclbench.cells.question import Answer, Check, Values, answer
from ncclbench.cells.rank import CellRank
from ncclbench.units import format_bytes, format_time

# Large enough that an operation takes milliseconds on a host, and is seen against its call on a GPU.
_NBYTES = {"cpu": 16 << 20, "cuda": 256 << 20}
_REPETITIONS = 12
_WARMUP = 2
# From here on a time is another than the one it is held against.
_FACTOR = 1.5

_PAUSE_S = 0.3
# On a busy machine a message may take its time.
_ARRIVAL_S = 5.0
_SMALL = 64 << 10


def _bytes(rank: CellRank, nbytes: int, value: int) -> torch.Tensor:
    tensor = torch.full((nbytes,), value, dtype=torch.uint8, device=rank.device.torch_device)
    rank.device.synchronize()
    return tensor


def _issue(rank: CellRank, message: torch.Tensor) -> Any:
    """The isend of rank 0, the irecv of rank 1."""
    if rank.rank == 0:
        return dist.isend(message, group=rank.group, group_dst=1)
    return dist.irecv(message, group=rank.group, group_src=0)


def _times(rank: CellRank) -> list[list[float]]:
    """Of each repetition, microseconds since the call: when it returned, wait() did, and synchronize did."""
    message = _bytes(rank, _NBYTES[rank.device.kind], 1)
    now, found = rank.device.now_ns, []
    for _ in range(_WARMUP + _REPETITIONS):
        rank.meet()
        began = now()
        work = _issue(rank, message)
        returned = now()
        work.wait()
        waited = now()
        rank.device.synchronize()
        found.append([(moment - began) / 1e3 for moment in (returned, waited, now())])
    return found[_WARMUP:]


def _medians(values: Values) -> tuple[float, float, float]:
    """Of rank 0's repetitions."""
    call, wait, end = (median(column) for column in zip(*values[0], strict=True))
    return call, wait, end


def _call_time(values: Values, result: CellResult) -> Answer:
    call_us, _, end_us = _medians(values)
    factor = end_us / call_us
    size = format_bytes(_NBYTES[str(result.device)])
    return answer(
        factor > _FACTOR,
        f"isend of {size} returned after {format_time(call_us)} and was done after {format_time(end_us)}: "
        f"timing the call alone is wrong by a factor of {factor:.3g}",
        factor,
    )


def _wait(values: Values, result: CellResult) -> Answer:
    _, wait_us, end_us = _medians(values)
    factor = end_us / wait_us
    size = format_bytes(_NBYTES[str(result.device)])
    return answer(
        factor > _FACTOR,
        f"of an isend of {size} wait() returned after {format_time(wait_us)} and torch.cuda.synchronize() "
        f"after {format_time(end_us)}: a clock stopped after wait() is wrong by a factor of {factor:.3g}",
        factor,
    )


def _completed(rank: CellRank) -> dict[str, bool]:
    """is_completed() right after the call, when the message has long been there, and after wait()."""
    message = _bytes(rank, _SMALL, 7 if rank.rank == 0 else 0)
    rank.meet()
    work = _issue(rank, message)
    seen = {"at once": bool(work.is_completed())}
    time.sleep(_PAUSE_S)
    # A copy to the host waits for the current stream only, so that on a GPU this is the state before wait().
    limit = time.monotonic() + _ARRIVAL_S
    while not (there := bool((message == 7).all())) and time.monotonic() < limit:
        time.sleep(_PAUSE_S / 10)
    seen["there"] = there
    # Also on the sender, whose own buffer tells nothing.
    rank.meet()
    seen["later"] = bool(work.is_completed())
    work.wait()
    rank.device.synchronize()
    seen["waited"] = bool(work.is_completed())
    return seen


def _is_completed(values: Values, result: CellResult) -> Answer:
    def told(when: str) -> str:
        words = {rank: str(values[rank][when]) for rank in (0, 1)}
        return (
            words[0] if words[0] == words[1] else f"{words[0]} on the sender and {words[1]} on the receiver"
        )

    later = all(values[rank]["later"] for rank in (0, 1))
    waited = all(values[rank]["waited"] for rank in (0, 1))
    there = "was there" if values[1]["there"] else "was not there"
    return answer(
        later and waited and values[1]["there"],
        f"right after the calls it said {told('at once')}; later the message "
        f"{there} and it said {told('later')}; after wait() {told('waited')}",
        float(later),
    )


def _irecvs(rank: CellRank) -> list[float]:
    """Microseconds until the group's first and second irecv returned, the peer coming late to both."""
    message = _bytes(rank, _SMALL, 1)
    found = []
    for _ in range(2):
        rank.meet()
        if rank.rank == 0:
            time.sleep(_PAUSE_S)
        began = rank.device.now_ns()
        work = _issue(rank, message)
        found.append((rank.device.now_ns() - began) / 1e3)
        work.wait()
        rank.device.synchronize()
    return found


def _first_irecv(values: Values, result: CellResult) -> Answer:
    first_us, second_us = values[1]
    return answer(
        first_us < 0.5e6 * _PAUSE_S,
        f"with a peer that came {format_time(1e6 * _PAUSE_S)} late the first irecv of the group returned "
        f"after {format_time(first_us)}, the second after {format_time(second_us)}",
        first_us,
    )


CHECKS = {
    "call-time": Check(_times, _call_time, deadline_s=30.0),
    "wait": Check(_times, _wait, deadline_s=30.0),
    "is-completed": Check(_completed, _is_completed),
    "first-irecv": Check(_irecvs, _first_irecv),
}
