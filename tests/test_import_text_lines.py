"""Lines of any file: prefixes, encodings, endings, and lines of any length in bounded memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest

from ncclbench.errors import RequestError
from ncclbench.importing.lines import clean, lines, raw_lines
from ncclbench.importing.model import LONGEST_LINE
from ncclbench.importing.nccl_tests import read

ROW = (
    "     1048576        262144     float     sum      -1    28.56   36.71   64.24      0"
    "    28.37   36.96   64.68      0"
)
HEADER = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong"
)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "    ",
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[prterun-node-a-4711@1,0]<stdout>: ",
        "[1,0]<stderr>:",
        "<stdout>:",
        "Mon May  3 12:00:00 2021<stdout>:",
        "0: ",
        " 13: ",
        "[0] ",
        "[default0]:",
        "node01: ",
        "gpu-a.cluster.local: ",
        "worker-0  | ",
        "[pod/nccl-launcher-x1/main] ",
        "2024-05-01T12:00:00.123456789Z ",
        "2024-05-01 12:00:00,123 ",
        "[2024-05-01T12:00:00Z] ",
        "[12:00:00] ",
        "2024-05-01T12:00:00Z [1,0]<stdout>:",
        "> ",
        "\x1b[32m",
    ],
)
def test_prefixes_of_launchers_are_taken_off(tmp_path: Path, prefix: str) -> None:
    assert clean(prefix + HEADER).split() == HEADER.split()
    file = tmp_path / "log.txt"
    file.write_text("\n".join(prefix + line for line in (HEADER, ROW)))
    reading = read(file)
    assert reading.rows_rejected == 0
    assert [row.time_us for row in reading.sections[0].rows] == [28.56, 28.37]
    assert reading.sections[0].missing == ["parameters", "devices", "footer"]


@pytest.mark.parametrize("place", range(0, len(ROW), 7))
def test_a_tag_within_a_row_changes_nothing(tmp_path: Path, place: int) -> None:
    file = tmp_path / "log.txt"
    file.write_text(f"{HEADER}\n{ROW[:place]}[1,0]<stdout>:{ROW[place:]}\n")
    assert [row.time_us for row in read(file).sections[0].rows] == [28.56, 28.37]


@pytest.mark.parametrize(
    "text",
    ["2.13: no", "rccl-tests: Version develop:448c4c7", "node-a: Test NCCL failure common.cu:12 'x / y'"],
)
def test_lines_of_the_tools_keep_what_looks_like_a_prefix(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_endings_and_encodings(tmp_path: Path, ending: str, encoding: str) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(ending.join([HEADER, ROW, ""]).encode(encoding))
    assert [number for number, _ in raw_lines(file)] == [1, 2]
    row = read(file).sections[0].rows[0]
    assert (row.time_us, row.line) == (28.56, 2)


def test_bytes_that_are_no_text_do_not_hide_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    noise = random.Random(3).randbytes(100_000).replace(b"\n", b"").replace(b"\r", b"")
    file.write_bytes(HEADER.encode() + b"\n" + noise + b"\n\0\0" + ROW.encode() + b"\n\xff\xfe\n")
    assert [row.time_us for row in read(file).sections[0].rows] == [28.56, 28.37]


def test_a_line_of_any_length_takes_the_memory_of_a_short_one(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    with file.open("wb") as stream:
        stream.write(HEADER.encode() + b"\n")
        for _ in range(60):
            stream.write(b"1 float " * 131_072)
        stream.write(b"\n" + ROW.encode() + b"\n")
    tracemalloc.start()
    started = time.process_time()
    found = list(lines(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [number for number, _ in found] == [1, 2, 3]
    assert max(len(text) for _, text in found) <= LONGEST_LINE
    assert found[-1][1].split() == ROW.split()
    assert peak < 4 << 20
    assert time.process_time() - started < 20


def test_a_file_that_cannot_be_read_is_a_request_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"missing\.txt"):
        list(raw_lines(tmp_path / "missing.txt"))


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_large_log_with_few_rows_is_read_quickly(tmp_path: Path) -> None:
    """100 MB with 1 % rows."""
    rng = random.Random(4)
    info = (
        "[1,{0}]<stdout>:node-a:{0}:{1} [3] NCCL INFO Channel {0:02d}/0 : {0}[{0}] -> 1[1] via P2P/IPC/read"
    )
    step = "2026-05-01 12:00:00,123 INFO trainer step {1} loss 1.{0} grad_norm 0.{1} tokens/s {1} mem 62.1GiB"
    noise = [
        form.format(rng.randrange(90), rng.randrange(10**6)) + "\n"
        for form in (info, step)
        for _ in range(500)
    ]
    file = tmp_path / "large.txt"
    size = rows = 0
    with file.open("w") as stream:
        stream.write(HEADER + "\n")
        while size < 100_000_000:
            line = ROW + "\n" if rng.random() < 0.01 else rng.choice(noise)
            rows += line[-2:] == "0\n" and "float" in line
            size += stream.write(line)
    started = time.process_time()
    reading = read(file)
    seconds = time.process_time() - started
    assert (reading.rows_taken, reading.rows_rejected) == (rows, 0)
    assert rows > 5_000
    assert seconds < 10
