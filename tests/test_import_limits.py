"""No file takes more memory than a log of the same size may: each in a process of its own, at its peak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from import_reading import DATA, V1, reasons

from ncclbench.importing import read_file
from ncclbench.importing.json_parts import Parts, decode

# What starting takes, and what 100,000 rows do.
MOST_MIB = 220

READ = """
import sys
from pathlib import Path
from ncclbench.errors import RequestError
from ncclbench.importing import read_file
from ncclbench.importing.assemble import assemble
try:
    assemble([read_file(Path(sys.argv[1]), sys.argv[2])])
except RequestError as error:
    print(error, file=sys.stderr)
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) >> 10)
"""


def peak_mib(file: Path, format: str = "auto") -> int:
    """The most memory that reading the file took."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file), format], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return int(done.stdout)


NCCL = '{"version":4,"nccl_version":22809,'
DEVICES = "#  Rank  0 on a device  0 [0000:00:00] x\n#  Rank  0 on b device  1 [0000:00:00] y\n"
PARAM = "COMMS-RES-all_reduce-float32 size (B) num-elements Latency(us):p50 Min Max AlgBW(GB/s) BusBW(GB/s)\n"
# Format, then what a file begins with, what it repeats up to 12 MiB, and what it ends with.
BOMBS = {
    "results": ("nccl-tests-json", NCCL + '"results":[', "{},", "{}]}"),
    "cut": ("nccl-tests-json", NCCL + '"results":[', "{},", ""),
    "infinity": ("nccl-tests-json", NCCL + '"results":[inf,', "[],", "0]}"),
    "cells": ("nccl-tests-json", NCCL + '"results":[{"size":[', "[],", "0]}]}"),
    "variables": ("nccl-tests-json", NCCL + '"env":[', '"",', '""],"results":[]}'),
    "devices": ("nccl-tests-json", NCCL + '"config":{"devices":[', "{},", '{}]},"results":[]}'),
    "deep": ("nccl-tests-json", NCCL + '"x":', "[", ""),
    "documents": ("nccl-tests-json", "", '{"version":1}', ""),
    "records": ("rccl-tests-json", "[", "{},", "{}]"),
    "fields": ("rccl-tests-json", "[{", '"a":[],', '"b":0}]'),
    "one line": ("auto", "", "8 2 float sum -1 ", ""),
    "devices listed twice": ("auto", "", DEVICES, ""),
    "hosts without end": ("auto", "", "node: # nThread 1 nGpus 1\nother: # nThread 1 nGpus 1\n", ""),
    "osu": ("auto", "", "# OSU MPI Latency Test v7.0\n", ""),
    "param": ("auto", "", PARAM, ""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_memory_is_bounded_whatever_is_in_a_file(name: str, tmp_path: Path) -> None:
    format, start, piece, end = BOMBS[name]
    file = tmp_path / "file"
    with file.open("w") as stream:
        stream.write(start)
        for _ in range(12):
            stream.write(piece * ((1 << 20) // len(piece)))
        stream.write(end)
    assert peak_mib(file, format) < MOST_MIB


def test_rows_beyond_what_is_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("nccl_json", "nccl_json_document"):
        monkeypatch.setattr(f"ncclbench.importing.{place}.MOST_ROWS", 2)
    reading = read_file(V1)
    assert reading.rows_taken == 2
    assert "more than 2 rows" in reasons(reading)
    for place, name in (("param", "param.txt"), ("osu", "osu-pt2pt.txt")):
        monkeypatch.setattr(f"ncclbench.importing.{place}.MOST_ROWS", 1)
        reading = read_file(DATA / name)
        assert reading.rows_taken == 1
        assert "more than 1 rows" in reasons(reading)


@pytest.mark.parametrize(
    ("text", "members", "is_whole"),
    [
        (b'"a":1,"b":[{"c":"}"}],"d":"x\\"]"}', {"a": b"1", "b": b'[{"c":"}"}]', "d": b'"x\\"]"'}, True),
        (b' "a" : inf , "b" : {} } ', {"a": b"inf", "b": b"{}"}, True),
        (b'"a":1,"b":[1,2', {"a": b"1"}, False),
        (b'"a":1,"b":"cut', {"a": b"1"}, False),
        (b"", {}, False),
        (b"}", {}, True),
    ],
)
def test_members_one_by_one(text: bytes, members: dict[str, bytes], is_whole: bool) -> None:
    parts = Parts(text, 0)
    found = {key: value for key, _ in parts if (value := parts.value()) is not None}
    assert (found, parts.is_whole) == (members, is_whole)
    passed_over = Parts(text, 0)
    assert [key for key, _ in passed_over][: len(members)] == list(members)
    assert passed_over.is_whole is is_whole


def test_numbers_that_are_none_are_texts() -> None:
    assert decode(b'{"a":-inf,"b":"inf x","c":nan}', dict[str, str | float]) == {
        "a": "-inf",
        "b": "inf x",
        "c": "nan",
    }
    with pytest.raises(ValueError, match="Expected"):
        decode(b'{"a":[]}', dict[str, float])
