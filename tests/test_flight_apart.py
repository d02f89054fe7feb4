"""Many dumps are read by several processes: the same is found, and none of them is left behind."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
from flight_reading import as_json, document, entry

from ncclbench.flight import apart, dumps
from ncclbench.flight.dumps import read
from ncclbench.flight.model import Dump, Refused
from ncclbench.flight.pool import Pool

NFILES = 70


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Dumps of every kind, one of them large, one silent, some damaged."""
    frames = [
        {"name": "step", "filename": "train.py", "line": 7},
        {"name": "main", "filename": "run.py", "line": 1},
    ]
    for rank in range(NFILES):
        numbers = range(4000 if rank == 1 else 12)
        entries = [entry(n, process_group=[str(n % 3), "g"], collective_seq_id=1 + n // 3) for n in numbers]
        if rank % 2:
            entries = [{**one, "frames": frames[record % 2 :]} for record, one in enumerate(entries)]
        content = pickle.dumps(document(entries), 2) if rank % 2 else as_json(document(entries))
        if rank == 9:
            content = as_json(document([]))
        (tmp_path / f"rank{rank}").write_bytes(content[:-5] if rank % 10 == 8 else content)
    return tmp_path


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_the_same_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files(), children()
    monkeypatch.setattr(dumps, "nprocesses", lambda nfiles: 1)
    alone = read([folder])
    monkeypatch.setattr(dumps, "nprocesses", lambda nfiles: 3)
    together = read([folder])
    assert together == alone
    assert len(together.dumps) == NFILES - 7
    assert sum(len(dump.operations) for dump in together.dumps) > 4000
    assert together.dumps[1].operations[0].frames[0].function == "step"
    assert {type(operation).__name__ for operation in together.dumps[0].operations} == {"Operation"}
    assert (open_files(), children()) == before


def test_the_number_of_processes() -> None:
    assert apart.nprocesses(0) == apart.nprocesses(1) == apart.nprocesses(apart.FILES_PER_PROCESS) == 1
    assert 1 <= apart.nprocesses(1_000_000) <= apart.MOST_PROCESSES


def named(number: int) -> tuple[list[Dump], list[Refused]]:
    return [], [Refused(str(number), "x" * 200_000)]


@pytest.mark.parametrize("ending", ["killed", "raises"])
def test_a_process_that_ends_leaves_its_files_to_the_others(ending: str) -> None:
    before = open_files(), children()
    parent = os.getpid()

    def one(number: int) -> tuple[list[Dump], list[Refused]]:
        if number == 4 and os.getpid() != parent:
            if ending == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("no more")
        return named(number)

    found = list(apart.read_apart(range(10), one, 2, Pool()))
    assert [refused[0].source for _, refused in found] == [str(number) for number in range(10)]
    assert (open_files(), children()) == before


def test_leaving_early_leaves_nothing_behind() -> None:
    before = open_files(), children()
    everything = apart.read_apart(range(1000), named, 3, Pool())
    assert next(everything)[1][0].source == "0"
    everything.close()
    assert (open_files(), children()) == before


def test_where_no_process_can_be_started_one_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files(), children()
    started = 0
    fork = os.fork

    def failing() -> int:
        nonlocal started
        started += 1
        if started > 1:
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", failing)
    found: list[Any] = list(apart.read_apart(range(5), named, 3, Pool()))
    assert [refused[0].source for _, refused in found] == list("01234")
    assert (open_files(), children()) == before


def test_more_operations_than_memory_holds_are_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files(), children()
    monkeypatch.setattr(dumps, "MOST_OPERATIONS", 100)
    evidence = read([folder])
    assert [dump.rank for dump in evidence.dumps] == [0, 1]
    assert evidence.refused[-1].reason == f"and {NFILES - 2} more were not read: 100 operations were"
    assert (open_files(), children()) == before
