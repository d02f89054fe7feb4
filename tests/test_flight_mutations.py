"""Damaged dumps: each is read as far as it can be, or refused; never a traceback, and none takes long."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import time
from pathlib import Path

import pytest
from flight_mutating import mutated_bytes, mutated_document
from flight_reading import make_real_dumps

from ncclbench.errors import RequestError
from ncclbench.flight.dumps import read, read_bytes
from ncclbench.flight.model import Dump, Frame, Operation, Refused

# Of one dump, on a machine that does much else.
MOST_SECONDS = 3.0


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("dumps")
    make_real_dumps(folder)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_mutated_dumps(contents: list[bytes], tmp_path: Path) -> None:
    _mutate(contents, tmp_path, 300)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_many_mutated_dumps(contents: list[bytes], tmp_path: Path) -> None:
    _mutate(contents, tmp_path, 5000)


def _mutate(contents: list[bytes], folder: Path, count: int) -> None:
    rng = random.Random(20261130)
    large = [content for content in contents if len(content) > 1000]
    documents = [pickle.loads(one) if one.startswith(b"\x80") else json.loads(one) for one in large]
    taken = refused = partly = 0
    slowest = 0.0
    for number in range(count):
        if number % 2:
            content = mutated_document(rng, rng.choice(documents))
        else:
            content = mutated_bytes(rng, rng.choice(contents))
        if number % 10 == 0:
            content = mutated_bytes(rng, gzip.compress(content)) if number % 20 else gzip.compress(content)
        began = time.perf_counter()
        dumps, refusals = read_bytes(content, f"rank{number % 4}")
        slowest = max(slowest, time.perf_counter() - began)
        for dump in dumps:
            _check(dump)
        for one in refusals:
            assert isinstance(one, Refused)
            assert one.reason.isprintable()
            assert len(one.reason) < 600
        assert dumps or refusals
        taken += bool(dumps)
        refused += not dumps
        partly += bool(dumps and refusals)
        if number % 50 == 0:
            _read_file(folder, content)
    assert slowest < MOST_SECONDS
    # Neither everything nor nothing: the damage is of all kinds.
    assert taken > count // 10
    assert refused > count // 10
    assert partly > count // 100


def _check(dump: Dump) -> None:
    """Whatever the file said, this has the types that others rely on."""
    assert dump.rank is None or type(dump.rank) is int
    assert dump.version.isprintable()
    for name, status in dump.groups.items():
        assert name.isprintable()
        assert status.words.isprintable()
        assert status.ranks is None or all(type(rank) is int and rank >= 0 for rank in status.ranks)
    records = [one.record for one in dump.operations]
    assert records == sorted(set(records))
    for one in dump.operations:
        assert type(one) is Operation
        assert {type(number) for number in (one.record, one.sequence, one.op_id, one.created_ns)} == {int}
        assert {type(time) for time in (one.started_ns, one.completed_ns, one.timeout_ms)} <= {
            int,
            type(None),
        }
        assert type(one.is_p2p) is type(one.is_retired) is bool
        assert one.state in ("scheduled", "started", "completed")
        for words in (one.group, one.group_words, one.backend, one.collective, *one.input_dtypes):
            assert words.isprintable()
        for size in (*one.input_sizes, *one.output_sizes):
            assert all(type(number) is int for number in size)
        for frame in one.frames:
            assert type(frame) is Frame
            assert str(frame).isprintable()
        assert hash(one) == hash(one)
        str(one).encode()


def _read_file(folder: Path, content: bytes) -> None:
    file = folder / "rank3"
    file.write_bytes(content)
    message = ""
    try:
        assert read([file]).dumps
    except RequestError as error:
        message = str(error)
    assert "\n" not in message


def test_cut_dumps(contents: list[bytes]) -> None:
    """Cut anywhere: refused, in words."""
    for content in (min(contents, key=len), max(contents, key=len)):
        for end in range(0, len(content), max(1, len(content) // 150)):
            dumps, (refusal,) = read_bytes(content[:end], "rank0")
            assert not dumps
            assert refusal.reason
