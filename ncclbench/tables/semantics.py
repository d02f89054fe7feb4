"""SEMANTICS: what torch says of point-to-point operations and their Works, each a question to ask of it.

Sources: the page of torch.distributed ("Synchronous and asynchronous collective operations"), and the
docstrings of isend, irecv and Work.wait in torch 2.15.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the self-test.

    Attributes:
        name: in the run and in ``--json``.
        question: what is asked.
        documented: what torch documents; where it is silent, what one would think, and then it says so.
        silent: torch documents nothing of it, and what is held against what it does is what one would think.
        devices: kinds of device on which there is something to ask.
        elsewhere: why there is nothing to ask on others; None where there are none.
    """

    name: str
    question: str
    documented: str
    silent: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    elsewhere: str | None = None


_ENTRIES = (
    Question(
        "call-time",
        "Is the time of the call the time of the operation?",
        "isend returns before the operation is done: clocks stop after wait(), on CUDA after a synchronize",
    ),
    Question(
        "wait",
        "Is the operation done when wait() returns?",
        "on CUDA wait() lets the current stream wait, not the host: torch.cuda.synchronize() does that",
        devices=("cuda",),
        elsewhere="tensors are on the CPU, where wait() itself blocks until the operation is done",
    ),
    Question(
        "is-completed",
        "Does is_completed() tell that the operation is done?",
        "on the CPU it is True once the operation is done, on CUDA once it is in the stream",
    ),
    Question(
        "first-irecv",
        "Does the first irecv of a group return before its peer comes?",
        "irecv does not block, the first as little as later ones",
    ),
    Question(
        "dropped-isend",
        "Does a message arrive whose Work nobody keeps?",
        "torch is silent; one would think that it arrives, or that somebody is told",
        silent=True,
    ),
    Question(
        "dropped-irecv",
        "Is a buffer filled whose irecv's Work nobody keeps?",
        "torch is silent; one would think that it is filled, or that somebody is told",
        silent=True,
    ),
    Question(
        "early-overwrite",
        "What arrives when the buffer of an isend is overwritten before wait()?",
        "undefined: either of the two, or some of both",
    ),
    Question(
        "memory-scatter",
        "Does scatter keep its source alive?",
        "torch is silent; one would think that memory is free once tensors and Work are deleted",
        silent=True,
    ),
    Question(
        "memory-gather",
        "Does gather keep its source alive?",
        "torch is silent; one would think that memory is free once tensors and Work are deleted",
        silent=True,
    ),
    Question(
        "memory-all_to_all",
        "Does all_to_all keep its source alive?",
        "torch is silent; one would think that memory is free once tensors and Work are deleted",
        silent=True,
    ),
)

SEMANTICS: dict[str, Question] = {entry.name: entry for entry in _ENTRIES}
