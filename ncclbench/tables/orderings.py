"""ORDERINGS: in which order two ranks may call send and recv, and whether that can end."""

from __future__ import annotations

from dataclasses import dataclass

# What a rank can do, one after the other: names of the steps of an ordering.
STEPS = {
    "send": "send",
    "recv": "recv",
    "isend": "isend",
    "irecv": "irecv",
    "wait": "wait() of what isend or irecv returned",
    "batch": "batch_isend_irecv of both",
    "all_reduce": "all_reduce in the same group",
}


@dataclass(frozen=True, slots=True)
class Ordering:
    """What two ranks call, rank 0 and rank 1.

    Attributes:
        name: as typed after ``--orders``.
        description: in words.
        steps: of rank 0 and of rank 1, names of STEPS in the order of calling.
        safe: it ends with every backend, whatever the size. Of the others torch promises nothing: they end
            only where the backend takes a message before the receiver asks for it.
    """

    name: str
    description: str
    steps: tuple[tuple[str, ...], tuple[str, ...]]
    safe: bool = False


_ENTRIES = (
    Ordering("send-send", "both send, then both receive", (("send", "recv"), ("send", "recv"))),
    Ordering("recv-recv", "both receive, then both send", (("recv", "send"), ("recv", "send"))),
    Ordering(
        "send-recv",
        "one sends and then receives, the other the other way round",
        (("send", "recv"), ("recv", "send")),
        safe=True,
    ),
    Ordering(
        "batched", "both give their send and their recv as one batch", (("batch",), ("batch",)), safe=True
    ),
    Ordering(
        "isend-recv",
        "both isend, receive, and wait for their isend last",
        (("isend", "recv", "wait"), ("isend", "recv", "wait")),
    ),
    Ordering(
        "irecv-send",
        "both irecv, send, and wait for their irecv last",
        (("irecv", "send", "wait"), ("irecv", "send", "wait")),
    ),
    Ordering(
        "isend-wait-recv",
        "both isend, wait for it, and receive last",
        (("isend", "wait", "recv"), ("isend", "wait", "recv")),
    ),
    Ordering(
        "send-collective",
        "one sends before an all_reduce of the group, the other receives after it",
        (("send", "all_reduce"), ("all_reduce", "recv")),
    ),
    Ordering(
        "isend-collective",
        "one calls isend before an all_reduce of the group and waits after it, the other receives after it",
        (("isend", "all_reduce", "wait"), ("all_reduce", "recv")),
    ),
)

ORDERINGS: dict[str, Ordering] = {entry.name: entry for entry in _ENTRIES}
