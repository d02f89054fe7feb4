"""Cells on real processes: what deadlocks on gloo and what does not, and that nothing is ever left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import psutil
import pytest
import torch

from ncclbench.cells.cell import CellResult, NotHere, run_cell
from ncclbench.cells.ordering import play, run_ordering
from ncclbench.cells.rank import CellRank, CellTask
from ncclbench.cells.run import Cells
from ncclbench.errors import Interrupted, MeasurementError
from ncclbench.faults.leftover import children
from ncclbench.plan.model import Arm
from ncclbench.store.lines import Line
from ncclbench.store.p2p import LeftOut, OrderingCell
from ncclbench.supervise.p2p import P2pPlan
from ncclbench.supervise.signals import EndSignals
from ncclbench.tables.orderings import ORDERINGS

GLOO = Arm("gloo", "gloo")
DEADLINE_S = 1.0


def cell(work: object, deadline_s: float = DEADLINE_S, timeout_s: float = 30.0) -> CellResult:
    """A cell of two ranks on gloo; none of its processes is left."""
    before = children()
    with EndSignals() as signals:
        result = run_cell(CellTask(GLOO, 2, timeout_s, False), work, deadline_s, signals)  # type: ignore[arg-type]
    assert children() <= before
    assert result.leftover_processes == 0
    return result


def ordering(*names: str, sizes: tuple[int, ...]) -> list[OrderingCell]:
    kept: list[OrderingCell] = []
    with EndSignals() as signals:
        run_ordering(names, GLOO, sizes, DEADLINE_S, False, lambda each, result: kept.append(each), signals)
    return kept


class TestOrdering:
    @pytest.mark.parametrize("name", ["send-send", "recv-recv"])
    def test_both_sending_or_both_receiving_first_deadlocks_from_one_byte_on(self, name: str) -> None:
        """gloo's send waits until its receiver has asked, however small the message is."""
        (only,) = ordering(name, sizes=(1, 1 << 20))
        assert (only.nbytes, only.outcome) == (1, "deadlocked")
        assert only.said == dict.fromkeys("01", f"in {name.partition('-')[0]}")
        assert only.seconds >= DEADLINE_S

    @pytest.mark.parametrize("name", ["isend-wait-recv", "send-collective"])
    def test_waiting_for_ones_own_message_deadlocks(self, name: str) -> None:
        (only,) = ordering(name, sizes=(8,))
        assert only.outcome == "deadlocked"

    @pytest.mark.parametrize(
        "name", [name for name, entry in ORDERINGS.items() if entry.safe] + ["isend-recv", "irecv-send"]
    )
    def test_others_complete_on_the_smallest_and_the_largest(self, name: str) -> None:
        cells = ordering(name, sizes=(1, 4096, 16 << 20))
        assert [(each.nbytes, each.outcome, each.wrong) for each in cells] == [
            (1, "completed", 0),
            (16 << 20, "completed", 0),
        ]

    def test_wrong_bytes_are_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ncclbench.cells.ordering import Hand

        monkeypatch.setattr(Hand, "recv", lambda hand: setattr(hand, "_received", True))
        monkeypatch.setattr(Hand, "send", lambda hand: None)
        (small,) = ordering("send-recv", sizes=(8,))
        assert (small.outcome, small.wrong) == ("completed", 2)

    def test_an_arm_that_cannot_be_had_says_why(self) -> None:
        with EndSignals() as signals, pytest.raises(NotHere, match="CUDA device"):
            run_ordering(
                ["batched"],
                Arm("nccl2", "nccl2"),
                (8,),
                DEADLINE_S,
                False,
                lambda each, result: None,
                signals,
            )
        assert not children()


class TestCells:
    def test_values_of_all_ranks(self) -> None:
        result = cell(lambda rank: 10 + rank.rank)
        assert (result.outcome, result.values) == ("completed", {0: 10, 1: 11})
        assert result.implementation == "ProcessGroupGloo (gloo)"

    def test_what_a_rank_raises_stands_with_its_step(self) -> None:
        def work(rank: CellRank) -> None:
            rank.says("thinking")
            if rank.rank == 1:
                raise ValueError("no\nmore")

        result = cell(work)
        assert result.outcome == "raised"
        assert result.errors == {1: "thinking: ValueError: no"}

    def test_a_rank_that_dies_is_no_deadlock(self) -> None:
        def work(rank: CellRank) -> None:
            rank.says("dying")
            if rank.rank == 0:
                os.kill(os.getpid(), signal.SIGSEGV)

        result = cell(work)
        assert result.outcome == "raised"
        assert result.errors == {0: "dying: the process was killed by SIGSEGV"}

    def test_a_rank_that_is_at_work_is_given_more_time(self) -> None:
        def work(rank: CellRank) -> str:
            until = time.thread_time() + 1.2
            while rank.rank == 0 and time.thread_time() < until:
                torch.ones(1000).sum()
            return "done"

        result = cell(work, deadline_s=1.0)
        assert result.outcome == "completed"
        assert result.seconds > 1.0

    def test_a_rank_that_gets_no_core_is_at_work(self) -> None:
        """Its core is another's: it is left 1.5 % of it, less than ranks at work use, and is no deadlock."""
        core = min(os.sched_getaffinity(0))

        def work(rank: CellRank) -> None:
            rank.says("starving")
            if rank.rank == 0:
                os.nice(19)
                os.sched_setaffinity(0, {core})
                while True:
                    pass

        spin = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        with subprocess.Popen([sys.executable, "-c", spin]) as hog:
            try:
                result = cell(work, deadline_s=0.2)
            finally:
                hog.kill()
        assert result.standing == {0: "starving, still at work"}

    def test_a_rank_that_is_at_work_for_ever_is_told_apart(self) -> None:
        def work(rank: CellRank) -> None:
            rank.says("spinning")
            while rank.rank == 0:
                torch.ones(1000).sum()

        result = cell(work, deadline_s=0.2)
        assert result.outcome == "deadlocked"
        assert result.standing == {0: "spinning, still at work"}
        assert result.disturbed == {0}

    def test_a_rank_that_sleeps_is_not(self) -> None:
        result = cell(lambda rank: time.sleep(60), deadline_s=0.5)
        assert result.outcome == "deadlocked"
        assert result.seconds < 2.0

    def test_a_rank_that_is_stopped_waits_for_nobody_and_is_no_deadlock(self) -> None:
        def work(rank: CellRank) -> None:
            rank.says("sleeping")
            if rank.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)

        result = cell(work, deadline_s=0.5)
        assert result.outcome == "raised"
        assert result.errors == {1: "sleeping: the process was stopped by a signal"}
        assert (result.disturbed, result.standing) == ({1}, {0: "sleeping"})

    def test_time_in_which_the_command_was_stopped_is_no_deadline(self) -> None:
        """Ctrl-Z and fg: command and ranks stand still for longer than the deadline, and go on."""
        ours = os.getpid()

        def work(rank: CellRank) -> str:
            if rank.rank == 0 and os.fork() == 0:
                ranks = [ours, *(each.pid for each in psutil.Process(ours).children())]
                ranks = [pid for pid in ranks if pid == ours or not _serves(pid)]
                for signal_number in (signal.SIGSTOP, signal.SIGCONT):
                    for pid in ranks:
                        os.kill(pid, signal_number)
                    time.sleep(2.0)
                os._exit(0)
            time.sleep(0.5)
            return "done"

        result = cell(work, deadline_s=1.0)
        assert (result.outcome, result.values) == ("completed", {0: "done", 1: "done"})

    def test_a_further_deadline_may_be_refused(self) -> None:
        calls: list[int] = []

        def before() -> None:
            calls.append(1)
            if len(calls) > 1:
                raise NotHere("no time was left")

        def work(rank: CellRank) -> None:
            while True:
                torch.ones(1000).sum()

        with EndSignals() as signals, pytest.raises(NotHere, match="no time was left"):
            run_cell(CellTask(GLOO, 2, 30.0, False), work, 0.5, signals, before)
        assert not children()

    def test_a_signal_ends_it_and_leaves_nothing(self) -> None:
        def interrupt() -> None:
            time.sleep(0.8)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        with EndSignals() as signals:
            thread.start()
            with pytest.raises(Interrupted):
                run_cell(CellTask(GLOO, 2, 30.0, False), partial(play, "recv-recv", 8), 30.0, signals)
            thread.join()
        assert not children()

    def test_ranks_that_never_come_to_their_group_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ncclbench.cells.rank._open", lambda *given: os._exit(7))
        with (
            EndSignals() as signals,
            pytest.raises(MeasurementError, match="a cell on gloo: the process exited with code 7 at start"),
        ):
            run_cell(CellTask(GLOO, 2, 30.0, False), lambda rank: None, DEADLINE_S, signals)
        assert not children()

    def test_children_die_with_a_killed_parent(self) -> None:
        """The process that runs the cell is killed, as the command may be: its ranks go with it."""
        pid = os.fork()
        if pid == 0:
            try:
                with EndSignals() as signals:
                    run_cell(CellTask(GLOO, 2, 30.0, False), partial(play, "send-send", 8), 30.0, signals)
            finally:
                os._exit(1)
        try:
            deadline = time.monotonic() + 20
            # The store of their meeting, and the two ranks.
            ranks: list[psutil.Process] = []
            while len(ranks) < 3 and time.monotonic() < deadline:
                ranks = psutil.Process(pid).children()
                time.sleep(0.02)
            assert len(ranks) == 3
            os.kill(pid, signal.SIGKILL)
        finally:
            os.waitpid(pid, 0)
        _, alive = psutil.wait_procs(ranks, timeout=2.0)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []


def _serves(pid: int) -> bool:
    return psutil.Process(pid).name() == "ncclbench-store"


class TestParts:
    """The parts of a run that take cells, without any of them."""

    def lines(self, arm: Arm, limit_s: float | None) -> list[Line]:
        plan = P2pPlan(
            parts=("ordering", "semantics"),
            arms=(arm,),
            nranks=2,
            sizes=(8,),
            ways=(),
            orders=("batched",),
            peers=(1,),
            iters=1,
            warmup=0,
            check=0,
            epochs=1,
            deadline_s=DEADLINE_S,
            timeout_s=5.0,
            seed=0,
            share_gpu=False,
        )
        kept: list[Line] = []
        with EndSignals() as signals:
            Cells(plan, kept.extend, lambda words: None, signals, (), limit_s).run(plan.arms)
        return kept

    def test_what_has_no_time_left_is_left_out_with_the_reason(self) -> None:
        left = [line for line in self.lines(GLOO, limit_s=-1.0) if isinstance(line, LeftOut)]
        assert [line.part for line in left] == ["ordering", "semantics"]
        said = "no time was left: under a launcher, where others wait, cells have 480 s"
        assert all(line.reason.startswith(said) for line in left)

    def test_an_arm_on_gpus_says_how_many_it_takes(self) -> None:
        kept = self.lines(Arm("nccl2", "nccl2"), limit_s=None)
        assert [line.part for line in kept if isinstance(line, LeftOut)] == ["ordering", "semantics"]
        assert all("2 GPUs on one host" in line.reason for line in kept if isinstance(line, LeftOut))
