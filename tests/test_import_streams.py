"""Several tests that write into one log: told apart by their prefixes, or not believed."""

from __future__ import annotations

import random
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from import_reading import reasons, rows_of
from import_writer import Printer, Shape

from ncclbench.importing import Reading, read_file
from ncclbench.importing.lines import unprefixed

SIZES = [1 << power for power in range(10, 28)]


def printed(op: str, host: str = "host-0", seed: int = 1) -> str:
    printer = Printer(op, 8, Shape(version="2.17.4"), random.Random(seed))
    return printer.whole(SIZES).replace("host-0", host)


def labelled(text: str, prefix: str) -> list[str]:
    return [prefix + line for line in text.splitlines()]


def interleaved(*outputs: list[str]) -> str:
    lines = chain.from_iterable(zip_longest(*outputs))
    return "\n".join(line for line in lines if line is not None) + "\n"


def read(tmp_path: Path, text: str) -> Reading:
    file = tmp_path / "log.txt"
    file.write_text(text)
    return read_file(file)


def figures(reading: Reading) -> list[list[tuple[object, ...]]]:
    """Of each invocation with rows what its rows say, wherever they stand."""
    return [
        [(row.op, row.redop, row.nbytes, row.in_place, row.time_us, row.busbw_GBs) for row in section.rows]
        for section in reading.sections
        if section.rows
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("node1: ", "node2: "),
        ("node1:", "node2:"),
        ("[1,0]<stdout>:", "[2,0]<stdout>:"),
        ("[1,0]<stdout>:", "[1,1]<stdout>:"),
        ("[prterun-head-77@1,0]<stdout>: ", "[prterun-head-78@1,0]<stdout>: "),
        ("0: ", "1: "),
        ("2024-05-01T12:00:00Z node1: ", "2024-05-01T12:00:01Z node2: "),
        ("worker-0  | ", "worker-1  | "),
    ],
)
@pytest.mark.parametrize("ops", [("all_reduce", "all_gather"), ("all_reduce", "all_reduce")])
def test_two_tests_are_read_as_if_each_had_a_file(
    first: str, second: str, ops: tuple[str, str], tmp_path: Path
) -> None:
    one, two = printed(ops[0], "node1", 1), printed(ops[1], "node2", 2)
    apart = [*figures(read(tmp_path, one)), *figures(read(tmp_path, two))]
    together = read(tmp_path, interleaved(labelled(one, first), labelled(two, second)))
    assert figures(together) == apart
    assert together.rows_rejected == 0
    assert [section.hosts for section in together.sections] == [["node1"], ["node2"]]
    assert [section.average_fits for section in together.sections] == [True, True]
    assert "2 tests write into one file" in reasons(together)


def test_what_no_test_printed_is_of_all_and_a_failure_of_its_own(tmp_path: Path) -> None:
    one, two = labelled(printed("all_reduce"), "node1: "), labelled(printed("all_reduce"), "node2: ")
    command = "pdsh -w node[1-2] NCCL_ALGO=Ring ./all_reduce_perf -b 1K\n"
    failed = "node2: node2: Test NCCL failure common.cu:1005 'unhandled system error'\n"
    reading = read(tmp_path, command + interleaved(one, two[:-4]) + failed)
    first, second = reading.sections
    assert [section.environment for section in reading.sections] == [{"NCCL_ALGO": "Ring"}] * 2
    assert first.failure is None
    assert "unhandled system error" in str(second.failure)


def test_ranks_of_one_job_are_one_test_whoever_else_writes(tmp_path: Path) -> None:
    whole = printed("all_reduce")
    lines = labelled(whole, "[1,0]<stdout>:")
    for rank in range(16):
        info = f"[1,{rank}]<stderr>:node-{rank // 8}:1:2 [{rank % 8}] NCCL INFO Channel 00/0 : 0[0] -> 1[1]"
        lines.insert(3 * rank, info)
    lines.append("[1,5]<stderr>:node-0: Test NCCL failure common.cu:1005 'remote process exited'")
    reading = read(tmp_path, "\n".join(lines))
    assert figures(reading) == figures(read(tmp_path, whole))
    assert "remote process exited" in str(reading.sections[0].failure)


def test_a_rank_that_prints_no_table_is_of_its_own_job(tmp_path: Path) -> None:
    one, two = (labelled(printed("all_reduce"), f"[{job},0]<stdout>:") for job in (1, 2))
    failed = "[2,3]<stderr>:node2: Test NCCL failure common.cu:1005 'remote process exited'\n"
    reading = read(tmp_path, interleaved(one, two[:-4]) + failed)
    assert [section.failure is None for section in reading.sections] == [True, False]


def test_two_hosts_without_prefixes_are_not_believed(tmp_path: Path) -> None:
    one, two = printed("all_reduce", "node1"), printed("all_reduce", "node2", 2)
    reading = read(tmp_path, interleaved(one.splitlines(), two.splitlines()))
    assert rows_of(reading) == []
    assert reading.rows_rejected == 2 * len(SIZES)
    assert "rank 0 is listed on node1 and on node2" in reasons(reading)


def test_two_jobs_on_one_host_without_prefixes_are_not_believed(tmp_path: Path) -> None:
    one = printed("all_gather")
    two = printed("alltoall", seed=2).replace("device  ", "device 1")
    reading = read(tmp_path, interleaved(one.splitlines(), two.splitlines()))
    assert rows_of(reading) == []


@pytest.mark.parametrize(
    ("op", "old", "new"),
    [
        ("all_reduce", " sum      -1", " none     -1"),
        ("all_reduce", " sum      -1", " sum       0"),
        ("all_reduce", " sum      -1", "          -1"),
        ("all_gather", " none      -1", " sum       -1"),
        ("broadcast", " none       0", " none      -1"),
    ],
)
def test_rows_that_their_collective_never_prints_are_rejected(
    op: str, old: str, new: str, tmp_path: Path
) -> None:
    text = printed(op)
    wanted = old.split()
    lines = []
    changed = 0
    for line in text.splitlines():
        cells = line.split()
        if changed < 3 and len(cells) > 10 and cells[0].isdigit():
            assert cells[3:5] == wanted
            line = "  ".join([*cells[:3], *new.split(), *cells[5:]])
            changed += 1
        lines.append(line)
    reading = read(tmp_path, "\n".join(lines))
    assert (reading.rows_taken, reading.rows_rejected) == (len(SIZES) - 3, 3)
    assert "another test's, or damaged" in reasons(reading)


@pytest.mark.parametrize(
    ("line", "text", "writer"),
    [
        ("[1,3]<stdout>:# size", "# size", "1,3"),
        ("[1,3]<stderr>: # size", "# size", "1,3"),
        ("node1: # size", "# size", "node1"),
        ("[0]: 8 2 float", "8 2 float", "0"),
        ("[pod/launcher/main] # size", "# size", "pod/launcher/main"),
        ("2024-05-01T12:00:00Z # size", "# size", ""),
        ("# size", "# size", ""),
        ("host:1:1 [0] NCCL INFO x", "host:1:1 [0] NCCL INFO x", ""),
        # Of two ranks in one line nobody can tell whose the rest is.
        ("[1,3]<stdout>:a[1,0]<stdout>:b", "ab", ""),
    ],
)
def test_who_wrote_a_line(line: str, text: str, writer: str) -> None:
    found, who = unprefixed(line)
    assert (found.strip(), who) == (text, writer)
