"""Dumps from files: what real recorders of gloo write, and documents of other versions and backends."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
from pathlib import Path

import pytest
from flight_reading import NRANKS, REPEATS, as_json, document, entry, make_real_dumps

from ncclbench.errors import RequestError
from ncclbench.flight import native
from ncclbench.flight.dumps import read, read_bytes
from ncclbench.flight.model import Dump
from ncclbench.flight.naming import rank_of
from ncclbench.flight.restricted import read_any


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    make_real_dumps(folder)
    return folder


def one(content: bytes, source: str = "rank0") -> Dump:
    (dump,), refused = read_bytes(content, source)
    assert not refused
    return dump


def test_real_dumps(real: Path) -> None:
    evidence = read([real / f"comm_lib_trace_rank_{rank}" for rank in range(NRANKS)])
    assert [dump.rank for dump in evidence.dumps] == list(range(NRANKS))
    assert not evidence.refused
    assert evidence.nranks == NRANKS
    for dump in evidence.dumps:
        assert dump.version == "2.10"
        assert not dump.is_wrapped
        assert len(dump.operations) == 2 * REPEATS + 1 + (REPEATS if dump.rank < 2 else 0)
        assert {(o.backend, o.state, o.timeout_ms) for o in dump.operations} == {
            ("gloo", "scheduled", 1800000)
        }
        world = [o for o in dump.operations if o.group == "0"]
        assert [o.sequence for o in world] == list(range(1, 2 * REPEATS + 2))
        assert [o.collective for o in world] == ["all_reduce", "all_gather"] * REPEATS + ["barrier"]
        assert {o.group_words for o in world} == {"default_pg"}
        assert world[0].input_sizes == world[0].output_sizes == ((4, 3),)
        assert world[1].output_sizes == ((NRANKS, 4, 3),)
        assert world[0].input_dtypes == ("Float",)
        assert (world[-1].input_sizes, world[-1].input_dtypes) == ((), ())
        assert all(o.is_retired and o.started_ns is None and o.completed_ns is None for o in dump.operations)
        assert world[0].frames[0].function == "all_reduce"
        assert world[0].frames[0].file.endswith("distributed_c10d.py")
        assert world[0].frames[-1].function == "<module>"
        assert dump.groups["0"].last_enqueued == 2 * REPEATS + 1
        assert dump.groups["0"].last_completed is not None  # two threads set it, the earlier operation's last
        assert dump.groups["0"].ranks is None  # gloo does not say which group its list is of
        others = [o for o in dump.operations if o.group != "0"]
        assert {o.group_words for o in others} == ({"pair"} if dump.rank < 2 else set())
        assert [o.input_dtypes for o in others] == [("Int",)] * len(others)


def test_pickles_and_json_say_the_same(real: Path) -> None:
    for rank in range(NRANKS):
        pickled = one((real / f"comm_lib_trace_rank_{rank}").read_bytes())
        printed = one((real / f"rank{rank}.json").read_bytes())
        assert [o.key for o in pickled.operations] == [o.key for o in printed.operations]
        for left, right in zip(pickled.operations, printed.operations, strict=True):
            assert left.frames
            assert not right.frames
            assert _without_frames(left) == _without_frames(right)
        assert pickled.groups == printed.groups


def _without_frames(operation: object) -> str:
    return repr(operation).partition(", frames=")[0]


def test_real_pickles_go_the_quick_way(real: Path) -> None:
    """Both readers find the same in them, and so does pickle, which may be asked here."""
    for rank in range(NRANKS):
        content = (real / f"comm_lib_trace_rank_{rank}").read_bytes()
        assert native.read_native(content) == (read_any(content),) == (pickle.loads(content),)


def test_a_pickle_written_by_python_is_read(real: Path) -> None:
    data = pickle.loads((real / "comm_lib_trace_rank_1").read_bytes())
    expected = one((real / "comm_lib_trace_rank_1").read_bytes())
    for protocol in range(6):
        assert one(pickle.dumps(data, protocol)).operations == expected.operations


def test_a_folder_of_everything(real: Path) -> None:
    """Of each recorder the fuller dump; what was not taken is summed up; other recorders held nothing."""
    evidence = read([real])
    assert [Path(dump.source).name for dump in evidence.dumps] == [
        f"comm_lib_trace_rank_{rank}" for rank in range(NRANKS)
    ]
    assert len(evidence.refused) == NRANKS
    assert all("fuller dump" in refused.reason for refused in evidence.refused)


def test_the_wrong_recorder_holds_nothing(real: Path) -> None:
    dumps, (refused,) = read_bytes((real / "other0.json").read_bytes(), "other0.json")
    assert not dumps
    assert "another backend" in refused.reason
    with pytest.raises(RequestError, match=r"another backend.*no flight recorder's dump"):
        read([real / "other0.json", real / "other1.json"])


def test_a_rank_that_issued_nothing_is_there() -> None:
    silent = document([])
    del silent["entries"]
    dump = one(as_json(silent), "rank2.json")
    assert (dump.rank, dump.operations, dump.is_wrapped) == (2, (), False)
    assert dump.groups["0"].ranks == (0, 1, 2, 3)


def test_a_document_of_nccl() -> None:
    hung = entry(1, state="started", retired=False, time_discovered_completed_ns=0)
    dump = one(as_json(document([entry(0), hung])))
    first, second = dump.operations
    assert (first.backend, first.state, first.is_retired) == ("nccl", "completed", True)
    assert first.completed_ns == entry(0)["time_discovered_completed_ns"]
    assert (second.state, second.is_retired, second.completed_ns) == ("started", False, None)
    status = dump.groups["0"]
    assert status.ranks == (0, 1, 2, 3)
    assert (status.last_enqueued, status.last_started, status.last_completed) == (5, 4, None)


@pytest.mark.parametrize(
    ("name", "backend", "collective"),
    [
        ("gloo:all_reduce", "gloo", "all_reduce"),
        ("nccl:_all_gather_base", "nccl", "_all_gather_base"),
        ("nccl2:all_reduce", "nccl2", "all_reduce"),
        ("nccl-lazy:broadcast", "nccl-lazy", "broadcast"),
        ("nccl:send 0->1", "nccl", "send 0->1"),
        ("nccl:recv 1<-?", "nccl", "recv 1<-?"),
        ("all_reduce", "unknown", "all_reduce"),
    ],
)
def test_names_of_operations(name: str, backend: str, collective: str) -> None:
    (operation,) = one(as_json(document([entry(0, profiling_name=name)]))).operations
    assert (operation.backend, operation.collective) == (backend, collective)


def test_point_to_point_operations_have_numbers_of_their_own() -> None:
    send = entry(0, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=7, collective_seq_id=3)
    (operation,) = one(as_json(document([send]))).operations
    assert operation.key == ("0", True, 7)


def test_older_versions_lack_keys() -> None:
    old = entry(0, seq_id=1, process_group=["0", "default_pg"])
    for key in ("collective_seq_id", "p2p_seq_id", "op_id", "is_p2p", "timeout_ms", "retired", "thread_id"):
        del old[key]
    send = {**old, "record_id": 1, "profiling_name": "nccl:send 0->1", "p2p_seq_id": 4, "state": "scheduled"}
    dump = one(as_json({"version": "2.1", "entries": [old, send]}))
    first, second = dump.operations
    assert dump.version == "2.1"
    assert (first.sequence, first.is_p2p, first.is_retired, first.timeout_ms) == (1, False, True, None)
    assert (second.key, second.is_retired) == (("0", True, 4), False)
    assert dump.groups["0"].ranks is None


def test_a_ring_that_wrapped() -> None:
    assert not one(as_json(document([entry(0), entry(1)]))).is_wrapped
    assert one(as_json(document([entry(3), entry(4)]))).is_wrapped
    assert one(as_json(document([entry(0, collective_seq_id=9)]))).is_wrapped  # the recorder was reset


def test_one_file_of_several_backends() -> None:
    other = document([entry(0, profiling_name="gloo:barrier")])
    content = as_json({"nccl2": document([entry(0)]), "gloo": other, "empty": {"version": "2.10"}})
    dumps, (refused,) = read_bytes(content, "rank5.json")
    assert [(dump.rank, dump.source) for dump in dumps] == [
        (5, "rank5.json (nccl2)"),
        (5, "rank5.json (gloo)"),
    ]
    assert refused.source == "rank5.json (empty)"


def test_the_document_tells_the_rank_before_the_name() -> None:
    assert one(as_json(document([entry(0)], rank=6)), "rank2").rank == 6


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("comm_lib_trace_rank_3", 3),
        ("/tmp/nccl_trace_rank_12", 12),
        ("rank7.json", 7),
        ("rank7-gloo.json", 7),
        ("rank-7.pkl.gz", 7),
        ("job42_rank=0.pickle", 0),
        ("rank_5_20261130T0200", 5),
        ("dump3", 3),
        ("trace_20261130_11", 11),
        ("7.json", 7),
        ("trace_7.nccl2.json", 7),
        ("trace-7-nccl-lazy.json", 7),
        ("rank4/dump.json", 4),
        ("local_rank_3_dump", None),
        ("dump.json", None),
        ("trace_20261130", None),
        ("rank99999999999", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank
    assert one(as_json(document([entry(0)])), name).rank == rank


def test_packed_files(tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(as_json(document([entry(0)]))))
    (tmp_path / "rank1.json.gz").write_bytes(gzip.compress(as_json(document([entry(0)])))[:-20])
    (tmp_path / "rank2.json.gz").write_bytes(gzip.compress(bytes(80 << 20)))
    evidence = read([tmp_path])
    assert [dump.rank for dump in evidence.dumps] == [0]
    reasons = {Path(refused.source).name: refused.reason for refused in evidence.refused}
    assert "damaged gzip" in reasons["rank1.json.gz"]
    assert "64 MiB" in reasons["rank2.json.gz"]


def test_a_folder_with_much_else(tmp_path: Path) -> None:
    for rank in (0, 9, 10):
        (tmp_path / f"rank{rank}.json").write_bytes(as_json(document([entry(0)])))
    for number in range(30):
        (tmp_path / f"log{number}.txt").write_text("step 1\n")
    (tmp_path / "empty").touch()
    (tmp_path / ".hidden").write_text("{")
    (tmp_path / "other.json").write_text('{"a": [1]}')
    (tmp_path / "outside").symlink_to("/etc/passwd")
    (tmp_path / "outside-too").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "rank3.json").write_bytes(as_json(document([entry(0)])))
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(65 << 20)
    evidence = read([tmp_path], hosts={0: "a"})
    assert [dump.rank for dump in evidence.dumps] == [0, 9, 10, 3]
    assert evidence.host_of == {0: "a"}
    assert evidence.nranks == 11
    reasons = {Path(refused.source).name: refused.reason for refused in evidence.refused}
    assert reasons[tmp_path.name] == (
        "30 files (log0.txt, log1.txt, log2.txt and 27 more), the first: is neither JSON nor a pickle"
    )
    assert "empty" in reasons["empty"]
    assert "not of a flight recorder" in reasons["other.json"]
    assert "is a link" in reasons["outside"]
    assert "is a link" in reasons["outside-too"]
    assert "pipe" in reasons["pipe"]
    assert "64 MiB" in reasons["huge"]
    assert ".hidden" not in reasons


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "rank1.json").write_bytes(as_json(document([entry(0)])))
    (tmp_path / "rank1.json").symlink_to(tmp_path / "real" / "rank1.json")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    assert [dump.rank for dump in read([tmp_path / "rank1.json"]).dumps] == [1]
    assert [dump.rank for dump in read([tmp_path / "folder"]).dumps] == [1]


def test_the_fuller_dump_of_a_rank_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a_rank0").write_bytes(as_json(document([entry(0)])))
    (tmp_path / "b_rank0").write_bytes(as_json(document([entry(0), entry(1)])))
    (tmp_path / "c_rank0").write_bytes(as_json(document([entry(0, profiling_name="gloo:barrier")])))
    evidence = read([tmp_path])
    assert [Path(dump.source).name for dump in evidence.dumps] == ["b_rank0", "c_rank0"]
    (refused,) = evidence.refused
    assert (Path(refused.source).name, "b_rank0" in refused.reason) == ("a_rank0", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profiling_name": None}, "profiling_name"),
        ({"record_id": "1"}, "number"),
        ({"collective_seq_id": -1}, "number"),
        ({"process_group": ["0"]}, "process_group"),
        ({"process_group": 7}, "another type"),
        ({"input_sizes": [["4"]]}, "size"),
        ({"input_sizes": 4}, "another type"),
        ({"input_dtypes": [4]}, "word"),
        ({"state": "dreaming"}, "state"),
        ({"state": []}, "another type"),
        ({"retired": 1}, "retired"),
        ({"time_created_ns": None}, "time_created_ns"),
        ({"time_created_ns": 1 << 63}, "no clock"),
        ({"time_discovered_started_ns": "1"}, "time_discovered_started_ns"),
        ({"timeout_ms": 1.5}, "number"),
        ({"frames": {}}, "frames"),
        ({"frames": [{"name": "f"}]}, "frame"),
    ],
)
def test_odd_entries_are_left_out_alone(changes: dict[str, object], words: str) -> None:
    odd = entry(1, **changes)
    dumps, (refused,) = read_bytes(as_json(document([entry(0), odd, entry(2)])), "rank0")
    assert [operation.record for operation in dumps[0].operations] == [0, 2]
    assert refused.reason.startswith("1 of 3 entries were left out: ")
    assert words in refused.reason


def test_entries_out_of_order_and_twice() -> None:
    dumps, (refused,) = read_bytes(as_json(document([entry(2), entry(0), entry(2)])), "rank0")
    assert [operation.record for operation in dumps[0].operations] == [0, 2]
    assert refused.reason == "1 of 3 entries have the number of another"


def test_text_is_cleaned() -> None:
    odd = entry(0, process_group=["a\x1b[31m\n", "b" * 9000], profiling_name="gloo:\u202ebarrier")
    (operation,) = one(as_json(document([odd], version="2\n"))).operations
    assert operation.group.isprintable()
    assert operation.collective.isprintable()
    assert len(operation.group_words) == 500


def test_shared_entries_that_explode_are_refused() -> None:
    size = [1] * 3000
    frames = [{"name": "f", "filename": "f.py", "line": 1}]
    shared = entry(0, input_sizes=[size] * 300, frames=frames)
    for entries in (
        [shared] * 30_000,
        [{**entry(number), "input_sizes": [size] * 300} for number in range(900)],
    ):
        dumps, (refused,) = read_bytes(pickle.dumps(document(entries), 2), "rank0")
        assert not dumps
        assert "explode" in refused.reason or "more entries" in refused.reason


def test_endless_numbers_and_brackets_are_refused() -> None:
    long = pickle.dumps(
        document([entry(0, pg_id=1 << 100_000, timeout_ms=1), entry(1, op_id=1 << 100_000)]), 2
    )
    dumps, (refused,) = read_bytes(long, "rank0")
    assert len(dumps[0].operations) == 1
    assert "number" in refused.reason
    for content, words in (
        (b'{"entries":' + b"[" * 900 + b"]" * 900 + b"}", "deep|not taken|no tables"),
        (b'{"entries":[' + b"[]," * 30_000 + b"[]]}", "more lists"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "not of a flight recorder|deep"),
    ):
        dumps, (refused,) = read_bytes(content, "rank0")
        assert not dumps
        assert re.search(words, refused.reason)


@pytest.mark.parametrize(
    "ranks", ["[10000001]", "[0, 99999999999]", "[a]", "0-3", [0, -1], ["0"], 4, None, "[]"]
)
def test_ranks_that_are_none(ranks: object) -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    assert one(as_json(document([entry(0)], pg_config=config))).groups["0"].ranks is None


def test_nothing_to_read(tmp_path: Path) -> None:
    for paths, words in (
        ([tmp_path], "there is no file in it"),
        ([tmp_path / "missing"], "cannot be read: No such file"),
        ([Path("/dev/zero")], "device"),
        ([Path("a\0b")], "cannot be read"),
    ):
        with pytest.raises(RequestError, match=words) as refused:
            read(paths)
        assert "\n" not in str(refused.value)


def test_infinities_stand_in_the_way_of_nothing() -> None:
    content = json.dumps(document([entry(0, duration_ms=float("nan"))])).encode()
    assert b"NaN" in content
    assert len(one(content).operations) == 1
