"""WAYS: how a message can be sent from one rank to another through torch.distributed.

An entry's functions get one end of the pair and torch.distributed itself, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

# What is left to wait for.
Works = Sequence[Any]

# Messages that are under way at once in the way called window.
WINDOW = 16


class End(Protocol):
    """One end of a pair: ``out`` goes to the peer, what comes from it ends in ``into``."""

    out: torch.Tensor
    into: torch.Tensor
    peer: int
    group: Any
    dist: Any


Act = Callable[[End], Works]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to send, timed as one repetition.

    Attributes:
        name: as typed after ``--ways``.
        description: what is called.
        send: what the sender calls; ``recv``: what the receiver calls.
        exchange: what both call where as much goes each way at once; None where that is no other thing.
        messages: that go each way in one repetition.
        round_trip: the message comes back: half of the time is its latency.
    """

    name: str
    description: str
    send: Act
    recv: Act
    exchange: Act | None = None
    messages: int = 1
    round_trip: bool = False


def _send(end: End) -> Works:
    end.dist.send(end.out, group=end.group, group_dst=end.peer)
    return ()


def _recv(end: End) -> Works:
    end.dist.recv(end.into, group=end.group, group_src=end.peer)
    return ()


def _isend(end: End) -> Works:
    return (end.dist.isend(end.out, group=end.group, group_dst=end.peer),)


def _irecv(end: End) -> Works:
    return (end.dist.irecv(end.into, group=end.group, group_src=end.peer),)


def _cross(end: End) -> Works:
    return (*_irecv(end), *_isend(end))


def _batch(end: End, *names: str) -> Works:
    dist = end.dist
    both = {"isend": (dist.isend, end.out), "irecv": (dist.irecv, end.into)}
    operations = [dist.P2POp(*both[name], group=end.group, group_peer=end.peer) for name in names]
    works: Works = dist.batch_isend_irecv(operations)
    return works


def _ping(end: End) -> Works:
    _send(end)
    return _recv(end)


def _pong(end: End) -> Works:
    _recv(end)
    end.dist.send(end.into, group=end.group, group_dst=end.peer)
    return ()


def _many(act: Act) -> Act:
    return lambda end: tuple(work for _ in range(WINDOW) for work in act(end))


_ENTRIES = (
    Way("send", "send and recv", _send, _recv),
    Way("isend", "isend and irecv, then wait()", _isend, _irecv, exchange=_cross),
    Way(
        "batched",
        "batch_isend_irecv, then wait()",
        lambda end: _batch(end, "isend"),
        lambda end: _batch(end, "irecv"),
        exchange=lambda end: _batch(end, "irecv", "isend"),
    ),
    Way(
        "window", f"{WINDOW} isend or irecv at once, then wait()", _many(_isend), _many(_irecv), None, WINDOW
    ),
    Way("ping-pong", "send and recv, and back again", _ping, _pong, round_trip=True),
)

WAYS: dict[str, Way] = {entry.name: entry for entry in _ENTRIES}
