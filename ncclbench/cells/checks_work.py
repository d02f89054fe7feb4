"""Checks of Works that nobody keeps, and of buffers that are overwritten before their message has gone."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.cells.cell import CellResult
from ncclbench.cells.question import Answer, Check, Values, answer
from ncclbench.cells.rank import CellRank
from ncclbench.faults.shortening import shortened
from ncclbench.units import format_bytes
from ncclbench.worker.probe import first_line

_NBYTES = 1 << 20
_PAUSE_S = 0.3
# What torch is given: so long a message that never comes is waited for.
_TIMEOUT_S = 2.0

_OVERWRITTEN = (8, 64 << 10, 4 << 20)
_REPETITIONS = 20
# For what the receiver has asked for to reach the sender.
_READY_S = 0.01


def _tensor(rank: CellRank, nbytes: int, value: int) -> torch.Tensor:
    tensor = torch.full((nbytes,), value, dtype=torch.uint8, device=rank.device.torch_device)
    rank.device.synchronize()
    return tensor


def _tried(rank: CellRank, act: Callable[[], Any]) -> str:
    """ "ok", or what was raised in one line."""
    try:
        act()
        rank.device.synchronize()
    except Exception as error:  # whatever torch raises is the answer
        return shortened(first_line(error))
    return "ok"


def _receive(rank: CellRank, message: torch.Tensor, value: int) -> str:
    """What came of a blocking recv: "ok", "wrong data", or what was raised."""
    told = _tried(rank, lambda: dist.recv(message, group=rank.group, group_src=0))
    if told == "ok" and not bool((message == value).all()):
        return "wrong data"
    return told


def _send(rank: CellRank, value: int) -> str:
    message = _tensor(rank, _NBYTES, value)
    return _tried(rank, lambda: dist.send(message, group=rank.group, group_dst=1))


def _warm(rank: CellRank) -> None:
    """One message before the rest: with its first some backends make a communicator, on the host's time."""
    message = _tensor(rank, 1, 0)
    work = (
        dist.isend(message, group=rank.group, group_dst=1)
        if rank.rank == 0
        else dist.irecv(message, group=rank.group, group_src=0)
    )
    work.wait()  # type: ignore[union-attr]
    rank.device.synchronize()


def _forget(rank: CellRank) -> None:
    gc.collect()
    rank.meet()


def _dropped_isend(rank: CellRank) -> dict[str, str]:
    """An isend whose Work is dropped before the receiver has asked; then an ordinary message."""
    message = _tensor(rank, _NBYTES, 7 if rank.rank == 0 else 0)
    _warm(rank)
    rank.meet()
    if rank.rank == 0:
        dist.isend(message, group=rank.group, group_dst=1)
        _forget(rank)
        told = "ok"
    else:
        _forget(rank)
        time.sleep(_PAUSE_S)
        told = _receive(rank, message, 7)
    rank.meet()
    after = _send(rank, 9) if rank.rank == 0 else _receive(rank, message, 9)
    return {"first": told, "next": after}


def _judge_isend(values: Values, result: CellResult) -> Answer:
    told = values[1]["first"]
    arrived = told == "ok"
    seen = (
        "it arrived" if arrived else f"it never arrived; the receiver was told {told!r}, the sender nothing"
    )
    return answer(
        arrived,
        f"{format_bytes(_NBYTES)}, Work dropped before the receiver asked: {seen}; {_next(values)}",
        float(arrived),
    )


def _dropped_irecv(rank: CellRank) -> dict[str, str]:
    """An irecv whose Work is dropped and whose buffer is kept; then an ordinary message."""
    message = _tensor(rank, _NBYTES, 0)
    _warm(rank)
    rank.meet()
    if rank.rank == 0:
        _forget(rank)
        told = _send(rank, 7)
    else:
        dist.irecv(message, group=rank.group, group_src=0)
        _forget(rank)
        time.sleep(_PAUSE_S)
        rank.device.synchronize()
        told = "ok" if bool((message == 7).all()) else "never filled"
    rank.meet()
    other = torch.zeros_like(message)
    after = _send(rank, 9) if rank.rank == 0 else _receive(rank, other, 9)
    return {"first": told, "next": after}


def _judge_irecv(values: Values, result: CellResult) -> Answer:
    filled = values[1]["first"] == "ok"
    sender = "send said ok" if values[0]["first"] == "ok" else f"send raised {values[0]['first']}"
    return answer(
        filled,
        f"{format_bytes(_NBYTES)}, Work dropped, buffer kept: it was {'filled' if filled else 'not filled'}, "
        f"{sender}; {_next(values)}",
        float(filled),
    )


def _next(values: Values) -> str:
    sender, receiver = values[0]["next"], values[1]["next"]
    if sender == receiver == "ok":
        return "the next message arrived"
    told = {"sender": sender, "receiver": receiver}
    wrong = " and ".join(f"the {side} {text!r}" for side, text in told.items() if text != "ok")
    return f"the next message did not arrive: it told {wrong}"


def _overwrite(rank: CellRank) -> dict[str, dict[str, list[int]]]:
    """By size, of messages to a receiver that asks late, and to one that has asked: how many were the former
    data, the new data, some of both, and neither."""
    found: dict[str, dict[str, list[int]]] = {}
    _warm(rank)
    for nbytes in _OVERWRITTEN:
        message = _tensor(rank, nbytes, 0)
        found[str(nbytes)] = {when: [0] * 4 for when in ("late", "ready")}
        for repetition in range(2 * _REPETITIONS):
            when = ("late", "ready")[repetition % 2]
            kind = _overwritten(rank, message, when)
            if kind is not None:
                found[str(nbytes)][when][kind] += 1
    return found


def _overwritten(rank: CellRank, message: torch.Tensor, when: str) -> int | None:
    """One message; on the receiver 0 where it is the former data, 1 the new, 2 some of both, 3 neither."""
    message.fill_(1 if rank.rank == 0 else 0)
    rank.device.synchronize()
    rank.meet()
    # Who is to come later waits until the other has called: no clock decides it.
    if (rank.rank == 0) == (when == "ready"):
        rank.meet()
        time.sleep(_READY_S)
    if rank.rank == 0:
        work: Any = dist.isend(message, group=rank.group, group_dst=1)
        message.fill_(2)
    else:
        work = dist.irecv(message, group=rank.group, group_src=0)
    if (rank.rank == 0) == (when == "late"):
        rank.meet()
    work.wait()
    rank.device.synchronize()
    if rank.rank == 0:
        return None
    former, new = int((message == 1).sum()), int((message == 2).sum())
    if former + new < message.numel():
        return 3
    return 0 if not new else 1 if not former else 2


def _judge_overwrite(values: Values, result: CellResult) -> Answer:
    seen: dict[str, dict[str, list[int]]] = values[1]
    told = "; ".join(
        f"to a receiver that asked {words}: {', '.join(_kinds(size, seen[size][when]) for size in seen)}"
        for when, words in (("late", "afterwards"), ("ready", "before isend"))
    )
    largest = seen[str(_OVERWRITTEN[-1])]["late"]
    neither = sum(counts[3] for by_moment in seen.values() for counts in by_moment.values())
    return answer(
        neither == 0,
        f"what was written after isend arrived, of {_REPETITIONS} messages each, {told}",
        (largest[1] + largest[2]) / _REPETITIONS,
    )


def _kinds(size: str, counts: list[int]) -> str:
    words = f"in {counts[1]} of {format_bytes(int(size))}"
    for count, what in ((counts[2], "some of both"), (counts[3], "neither")):
        words += f" ({what} in {count})" if count else ""
    return words


CHECKS = {
    "dropped-isend": Check(_dropped_isend, _judge_isend, timeout_s=_TIMEOUT_S),
    "dropped-irecv": Check(_dropped_irecv, _judge_irecv, timeout_s=_TIMEOUT_S),
    "early-overwrite": Check(_overwrite, _judge_overwrite, deadline_s=30.0),
}
