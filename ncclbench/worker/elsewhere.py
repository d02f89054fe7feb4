"""A worker's first steps where it was not forked but started, by another Python or with other libraries."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from ncclbench.worker.board import Board
from ncclbench.worker.main import run_worker
from ncclbench.worker.meeting import StorePlace
from ncclbench.worker.protocol import WorkerTask
from ncclbench.worker.stacks import answer_with_stacks


@dataclass(frozen=True, slots=True)
class Entry:
    """What a worker finds when it starts, in memory that the process it was has written.

    Attributes:
        store: where it meets the others.
        slot, slots: its place on the board, and how many there are.
        has_gate: one supervisor has all ranks.
        pipe, board, recorders: file descriptors; the last -1 where nobody asks for flight recorders.
    """

    task: WorkerTask
    store: StorePlace
    slot: int
    slots: int
    has_gate: bool
    pipe: int
    board: int
    recorders: int


def begin(descriptor: int) -> None:
    """Do the task that stands in the memory behind a descriptor, and end the process."""
    code = 1
    try:
        answer_with_stacks()
        with os.fdopen(descriptor, "rb") as memory:
            # Written by the process that this one was, a moment ago.
            entry: Entry = pickle.load(memory)  # noqa: S301
        board = Board(entry.slots, entry.board)
        run_worker(
            entry.task,
            entry.store.connect(),
            Connection(entry.pipe),
            board.place(entry.slot),
            board.gate(entry.slot) if entry.has_gate else None,
            socket.socket(fileno=entry.recorders) if entry.recorders >= 0 else None,
        )
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
