"""Shared memory between a supervisor and its workers: progress and the gate, over real processes."""

from __future__ import annotations

import os
import time

from ncclbench.worker.board import NOWHERE, Board


def in_children(count: int, work: object) -> None:
    """Run ``work(slot)`` in forked processes and expect every one to end well."""
    children = []
    for slot in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                work(slot)  # type: ignore[operator]
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * count


def test_a_supervisor_reads_what_its_workers_write() -> None:
    board = Board(3)
    assert board.place(1).at == (NOWHERE, NOWHERE, NOWHERE)

    def work(slot: int) -> None:
        place = board.place(slot)
        place.enter(slot, 10 + slot, 20 + slot)
        for _ in range(slot):
            place.step()

    before = [board.place(slot).steps for slot in range(3)]
    in_children(3, work)
    assert [board.place(slot).at for slot in range(3)] == [(slot, 10 + slot, 20 + slot) for slot in range(3)]
    assert [board.place(slot).steps - before[slot] for slot in range(3)] == [1, 2, 3]
    assert board.place(0).idle_s < 10


def test_nobody_passes_the_gate_before_everybody_has_come() -> None:
    """More workers than cores; the last to come each time is another one."""
    board, count, rounds = Board(4), 4, 50
    arrivals = Board(4)

    def work(slot: int) -> None:
        gate = board.gate(slot)
        mine = arrivals.place(slot)
        for number in range(rounds):
            if number % count == slot:
                time.sleep(0.001)
            mine.enter(number, 0, 0)
            gate()
            # Whoever is through sees everybody at this round or one further.
            assert all(arrivals.place(other).at[0] >= number for other in range(count))

    in_children(count, work)


def test_one_worker_passes_alone() -> None:
    gate = Board(1).gate(0)
    before = time.perf_counter()
    for _ in range(1000):
        gate()
    assert time.perf_counter() - before < 1
