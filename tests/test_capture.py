"""Flight recorders of real ranks that hang, asked while they do: who answers, what it tells, what is left."""

from __future__ import annotations

import glob
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from ncclbench.cli.app import run as run_command
from ncclbench.errors import MeasurementError
from ncclbench.supervise.capture import RankDump, Recorders, clear_dumps, judged, write_dumps
from ncclbench.supervise.launch import Assignment, join, launch
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Slot, Slots
from ncclbench.worker.board import Board
from ncclbench.worker.groups import prepare_environment
from ncclbench.worker.protocol import Program
from ncclbench.worker.recorder import answering, dumps

NRANKS = 3
HANGS_AT = 5  # operations before this one are done by everybody


@contextmanager
def hanging(how: Callable[[int], None]) -> Iterator[tuple[Recorders, Slots]]:
    """Real ranks of which each calls ``how(rank)`` before its sixth all_reduce; ended with the context."""
    meeting = meet_alone()
    board = Board(NRANKS)

    def work(slot: int, pipe: Connection) -> None:
        prepare_environment(one_host=True, share_gpu=False, ranks_per_gpu=1)
        torch.set_num_threads(1)
        with answering(recorders.line, slot):
            dist.init_process_group(
                "gloo",
                rank=slot,
                world_size=NRANKS,
                store=meeting.worker_store(0),
                timeout=timedelta(seconds=60),
            )
            data = torch.ones(4)
            for _ in range(HANGS_AT):
                dist.all_reduce(data)
            pipe.send("there")
            how(slot)
            dist.all_reduce(data)
            pipe.send("done")
            dist.barrier()

    with EndSignals() as signals, Recorders() as recorders, Slots() as slots:
        slots.start(range(NRANKS), board, work)
        there: set[int] = set()
        deadline = time.monotonic() + 60
        while len(there) < NRANKS and time.monotonic() < deadline:
            there |= {
                found.slot.rank for found in slots.happenings(0.2, signals.wakeup) if found.message == "there"
            }
        assert len(there) == NRANKS
        time.sleep(1.2)  # so long in an operation is a wait, and not one that is in flight
        yield recorders, slots


def nothing_left() -> list[str]:
    """Folders and sockets of ranks' servers, which only exist while they start."""
    return glob.glob(f"{tempfile.gettempdir()}/ncclbench-*/socket")


def names(found: list[RankDump]) -> list[str]:
    return [dump.file_name for dump in found]


def sleep_if_one(rank: int) -> None:
    if rank == 1:
        time.sleep(600)


def test_hung_ranks_answer_at_once_and_the_missing_one_is_named(tmp_path: Path) -> None:
    with hanging(sleep_if_one) as (recorders, _):
        assert nothing_left() == []
        began = time.monotonic()
        found = recorders.ask(range(NRANKS))
        assert time.monotonic() - began < 1.0
    assert names(found) == [f"rank{rank}-gloo.json" for rank in range(NRANKS)]
    entries = [json.loads(dump.content)["entries"] for dump in found]
    assert [len(own) for own in entries] == [HANGS_AT + 1, HANGS_AT, HANGS_AT + 1]
    judgement = judged(found, NRANKS, dict.fromkeys(range(NRANKS), "here"))
    assert judgement.verdict == "stuck"
    assert judgement.findings[0].missing_ranks == (1,)
    assert judgement.findings[0].sequence == HANGS_AT + 1
    assert judgement.findings[0].hosts == ("here",)
    write_dumps(tmp_path / "flight", found)
    assert sorted(path.name for path in (tmp_path / "flight").iterdir()) == names(found)
    clear_dumps(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_rank_does_not_answer_and_costs_a_second_at_most() -> None:
    with hanging(sleep_if_one) as (recorders, slots):
        os.kill(slots.slots[1].pid, signal.SIGSTOP)
        began = time.monotonic()
        found = recorders.ask(range(NRANKS))
        assert time.monotonic() - began < 2.0
    assert names(found) == ["rank0-gloo.json", "rank2-gloo.json"]
    judgement = judged(found, NRANKS, {})
    assert judgement.missing_dumps == (1,)
    assert 1 in (*judgement.findings[0].missing_ranks, *judgement.findings[0].unknown_ranks)


def test_a_rank_that_holds_the_interpreter_answers() -> None:
    def hold(rank: int) -> None:
        if rank == 1:
            # PyDLL keeps the interpreter's lock during the call, so that no Python thread of the rank runs.
            import ctypes

            ctypes.PyDLL(None).sleep(600)

    with hanging(hold) as (recorders, _):
        found = recorders.ask(range(NRANKS))
    assert names(found) == [f"rank{rank}-gloo.json" for rank in range(NRANKS)]


def test_a_dead_rank_costs_nothing() -> None:
    with hanging(sleep_if_one) as (recorders, slots):
        os.kill(slots.slots[1].pid, signal.SIGKILL)
        assert names(recorders.ask([1])) == []


def test_a_long_name_of_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with hanging(sleep_if_one) as (recorders, _):
        assert list(folder.iterdir()) == []
        assert len(recorders.ask(range(NRANKS))) == NRANKS


def test_server_is_gone_after_its_context() -> None:
    threads = psutil.Process().num_threads()
    with Recorders() as recorders:
        # At once after its start, too, when torch's own shutdown would wait for ever.
        for _ in range(20):
            with answering(recorders.line, 0):
                assert psutil.Process().num_threads() > threads
                assert nothing_left() == []
            assert recorders.ask([0]) == []
    assert psutil.Process().num_threads() == threads


def test_server_starts_and_ends_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    with Recorders() as recorders, answering(recorders.line, 0):
        assert len(recorders.ask([0])) == 0
        os.write(2, b"own words")
    assert capfd.readouterr().err == "own words"


def test_process_without_a_group_has_nothing_recorded() -> None:
    assert dumps(0) == []


def test_recorder_that_is_off_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert run_command(["sweep", "--flight-recorder", "--sizes", "8"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "TORCH_FR_BUFFER_SIZE=0 turns torch's flight recorder off: unset it" in line


def test_a_rank_that_raises_hands_its_dump_over_before_it_ends(tmp_path: Path) -> None:
    """All ranks raise here: their program is in no table."""

    def consent(slot: Slot, message: object) -> None:
        if slot.pipe is not None:
            slot.pipe.send(True)

    program = Program("of nobody", {"words": [], "arm": ["gloo", "gloo"]})
    with EndSignals() as signals:
        job = join(None, 2, signals)
        assignment = Assignment(0, None, {}, 0, 20.0, program, flight=str(tmp_path))
        with pytest.raises(MeasurementError, match="of nobody"):
            launch(job, assignment, consent, None)
    assert sorted(path.name for path in (tmp_path / "flight").iterdir()) == [
        "rank0-gloo.json",
        "rank1-gloo.json",
    ]
