"""Pickles from anybody: plain data come out of them, and nothing else happens."""

from __future__ import annotations

import gzip
import pickle
import pickletools
import random
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from flight_malice import EXTENSION, malicious
from flight_reading import document, entry

from ncclbench.flight.dumps import read_bytes
from ncclbench.flight.native import read_native
from ncclbench.flight.restricted import PickleRefused, read_any, read_pickle

CORPUS = {name: (content, opcode) for name, content, opcode in malicious("marker-that-loading-makes")}


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_is_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, opcode = CORPUS[name]
    for read in (read_pickle, read_any):
        with pytest.raises(PickleRefused) as refused:
            read(content)
        message = str(refused.value)
        assert "\n" not in message
        if opcode is not None:
            assert message.startswith(f"{opcode} at byte "), message
            assert content[int(message.split()[3])] == ord(_code_of(opcode))
    assert read_native(content) is None
    for packed in (content, gzip.compress(content)):
        dumps, (refusal,) = read_bytes(packed, "rank0")
        assert not dumps
        assert opcode is None or opcode in refusal.reason
    assert not list(tmp_path.iterdir())


def _code_of(name: str) -> str:
    return next(one.code for one in pickletools.opcodes if one.name == name)


def test_the_corpus_bites(tmp_path: Path) -> None:
    """What is refused would have done something: pickle makes the folder."""
    assert len(CORPUS) >= 40
    (tmp_path / "files").mkdir()
    names = [name for name in CORPUS if not name.endswith("-alone")]
    for name in names:
        (tmp_path / "files" / name).write_bytes(CORPUS[name][0])
    script = f"""
import copyreg, os, pickle, sys
copyreg.add_extension("os", "mkdir", {EXTENSION})
for name in sorted(os.listdir("files")):
    try:
        pickle.loads(open("files/" + name, "rb").read())
    except Exception:
        pass
    if os.path.exists("marker-that-loading-makes"):
        os.rmdir("marker-that-loading-makes")
        print(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    bitten = set(done.stdout.split())
    asking = {"persid", "binpersid", "next-buffer", "readonly-buffer", "bytearray", "behind-the-end"}
    assert set(names) - bitten - asking == {"as-a-default"}
    assert len(bitten) >= 25


PLAIN: list[Any] = [
    None,
    True,
    -1,
    255,
    65536,
    1 << 40,
    -(1 << 200),
    1.5,
    "",
    "gloo:all_reduce",
    "é\n\\",
    b"\x00\xff",
    [],
    [[1], [2, [3]]],
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, 2, 3, 4),
    {},
    {"a": {"b": [1, (2, "c")]}, 2: None, None: 2.5, True: b"x"},
    {1, 2, "a"},
    frozenset({3, "b"}),
    [list(range(3000)), {str(number): number for number in range(3000)}],
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(PLAIN)))
def test_plain_data_come_out(protocol: int, number: int) -> None:
    data = PLAIN[number]
    names = [one.name for one, _, _ in pickletools.genops(pickle.dumps(data, protocol))]
    if "GLOBAL" in names:
        # Before protocols 3 and 4, bytes and sets are calls.
        assert any(part in repr(data) for part in ("b'", 'b"', "set", "{1", "{'a', "))
        with pytest.raises(PickleRefused, match="GLOBAL"):
            read_pickle(pickle.dumps(data, protocol))
        return
    for content in (pickle.dumps(data, protocol), pickletools.optimize(pickle.dumps(data, protocol))):
        found = read_pickle(content)
        assert found == data
        assert type(found) is type(data)


def test_shared_parts_stay_shared() -> None:
    frame = {"name": "step", "filename": "train.py", "line": 7}
    found = read_pickle(pickle.dumps([frame, frame], 2))
    assert found == [frame, frame]
    assert found[0] is found[1]


def _laughs(levels: int) -> bytes:
    """Ten references to what holds ten references to ..."""
    content = b"\x80\x02]q\x00"
    for level in range(levels):
        content += b"](" + (b"h" + bytes([level])) * 10 + b"eq" + bytes([level + 1])
    return content + b"."


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "pickle exhausted|does not end|no"),
    "no-end": (b"\x80\x02}", "exhausted"),
    "unknown-instruction": (b"\x80\x02\xff.", "unknown"),
    "protocol-6": (b"\x80\x06N.", "protocol 6"),
    "long-string": (b"\x80\x02X\xff\xff\xff\x7fabc.", "expected 2147483647 bytes"),
    "long-string-8": (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc.", "BINUNICODE8|expected|size|bytes"),
    "long-bytes": (b"\x80\x03B\xff\xff\xff\xffabc.", "expected 4294967295 bytes"),
    "long-number": (b"\x80\x02\x8b\xff\xff\xff\x7f\x01.", "LONG4|not enough|expected"),
    "negative-length": (b"\x80\x02\x8b\xff\xff\xff\xff\x01.", "negative|long4"),
    "digits": (b"I" + b"9" * 10_000 + b"\n.", "digits|invalid"),
    "frame-beyond": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.", "FRAME"),
    "memo-far": (b"\x80\x02Nr\xff\xff\xff\x7f.", "remembers as number 2147483647"),
    "memo-unknown": (b"\x80\x02h\x07.", "asks for number 7"),
    "memo-negative": (b"Np-3\n.", "remembers as number -3"),
    "nothing-on-the-stack": (b"\x80\x020.", "finds nothing"),
    "no-mark": (b"\x80\x02NNt.", "finds nothing"),
    "append-to-none": (b"\x80\x02NNa.", "finds no list"),
    "set-in-a-list": (b"\x80\x02]NNs.", "finds no dict"),
    "odd": (b"\x80\x02}(Nu.", "without a value"),
    "list-as-key": (b"\x80\x02}]Ns.", "a list for a key"),
    "tuple-as-key": (b"\x80\x02}))\x86Ns.", "a tuple for a key"),
    "long-key": (b"\x80\x02}\x8a\x09" + b"\x01" * 9 + b"Ns.", "64 bits"),
    "marks": (b"\x80\x02" + b"(" * 200 + b".", "deeper than 100"),
    "nested": (b"\x80\x04" + b"]" * 400 + b"a" * 399 + b".", "deeper than 100"),
    "lists": (b"\x80\x02(" + b"]" * 100_000 + b"l.", "more lists"),
    "contains-itself": (b"\x80\x02]q\x00h\x00a.", "contains itself"),
    "tables-in-a-circle": (b"\x80\x02}q\x00(K\x01}(K\x02h\x00uu.", "contains itself"),
    "laughs": (_laughs(30), "explode"),
    "more": (b"\x80\x02N.N.", "more follows"),
}


# Plain data all the same, of a shape that no dump has: whoever reads entries does not walk them.
ODD = {"nested", "contains-itself", "tables-in-a-circle"}


@pytest.mark.parametrize("name", sorted(ODD))
def test_data_of_an_odd_shape_are_no_dump(name: str) -> None:
    found, refused = read_bytes(BAD[name][0], "rank_0")
    assert (found, len(refused)) == ([], 1)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    "key", ["frames", "input_sizes", "input_dtypes", "process_group", "profiling_name", "state"]
)
def test_an_entry_that_contains_itself_is_left_out(key: str, protocol: int) -> None:
    endless: list[Any] = []
    endless.append(endless)
    data = document([{**entry(0), "frames": []}, {**entry(1), "frames": [], key: endless}])
    data |= {"version": endless, "rank": endless, "pg_status": {"0": endless}, "more": endless}
    (found,), refused = read_bytes(pickle.dumps(data, protocol), "rank_0")
    assert [one.sequence for one in found.operations] == [1]
    assert "1 of 2 entries were left out" in refused[0].reason


@pytest.mark.parametrize("name", BAD)
def test_what_is_damaged_or_too_much_is_refused(name: str) -> None:
    content, words = BAD[name]
    tracemalloc.start()
    began = time.perf_counter()
    try:
        for read in (read_any,) if name in ODD else (read_pickle, read_any):
            with pytest.raises(PickleRefused, match=words):
                read(content)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - began < 5
    assert most < 30 * len(content) + (1 << 20)


def _native(*parts: bytes | str) -> bytes:
    content, number = b"\x80\x02", 0
    for part in parts:
        if isinstance(part, str):
            content += b"X" + struct.pack("<I", len(part)) + part.encode() + b"q" + bytes([number])
            number += 1
        else:
            content += part
    return content + b"."


def test_torchs_own_writer_is_read_quickly() -> None:
    pair = _native(b"}(", "group", "0", "words", b"\x86u")
    assert read_native(pair) == ({"group": ("0", "words")},)
    known = _native("a", "b", b"00".replace(b"0", b""), b"h\x00h\x01\x86")
    assert read_native(known) == (("a", "b"),)
    mixed = _native("a", b"h\x00", "b", b"\x86")
    assert read_native(mixed) == (("a", "b"),)
    behind = _native("a", "b", b"h\x00\x86")
    assert read_native(behind) == (("b", "a"),)
    frame = _native("line", b"}(h\x00K\x28uq\x01", b"h\x01")
    assert read_native(frame) == ({"line": 40},)


@pytest.mark.parametrize(
    "content",
    [
        _native("a", "b", b"\x86h\x00\x86"),
        _native("a", "b", b"h\x00h\x01\x86h\x00\x86"),
        _native("a", "b", b"h\x00h\x01\x86q\x02h\x02h\x02\x86"),
        _native("a", "b", b"h\x00h\x01\x86q\x02h\x02h\x00\x86"),
        _native("a", "b", b"q\x00"),
        _native("a", "b", b"h\x00h\x01\x86q\x07"),
        _native("a", "b", b"X\1\0\0\0cq\x00h\x00h\x01\x86\x94h\x02h\x02\x86"),
        _native("a", "b", b"](q\x02"),
        _native("a", "b", b"K]q\x02"),
        _native("a", b"\x95\xff\0\0\0\0\0\0\0"),
        _native("a", b"\x8c\xffa"),
        _native("a", "b", b"h\x00h\x01\x86(uq\x02"),
        _native("a", b"K\x07(uq\x01"),
        _native("a", b"K\x07q\x01"),
        _native("a", b"h\x00r\xff\xff\xff\x7f"),
        _native("a", b"}(uq\x01"),
        _native("a", b"NN\x86"),
        _native("a", b"K\x01K\x02\x86"),
        _native("a", b"K\x68h\x00\x86"),
        b"\x80\x02" + b"]" * 5000 + b".",
    ],
)
def test_what_torch_does_not_write_goes_the_slow_way(content: bytes) -> None:
    assert read_native(content) is None


def test_no_stream_of_torchs_instructions_makes_a_key_that_costs() -> None:
    """Whatever they are: a tuple is a pair, and holds no tuple itself; and both readers find the same."""
    rng = random.Random(6)
    parts = [b"h\x00", b"h\x01", b"h\x02", b"j\x01\0\0\0", b"\x86", b"(", b"u", b"e", b"a", b"]", b"}", b"N"]
    parts += [
        b"K\x68",
        b"K\x28",
        b"q\x00",
        b"q\x01",
        b"q\x02",
        b"r\x03\0\0\0",
        b"X\1\0\0\0h",
        b"X\1\0\0\0aq\x02",
    ]
    parts += [b"h\x00h\x01\x86", b"](e", b"}(u", b"X\1\0\0\0b"]
    # As Python writes: what is remembered before it is filled, pairs too, and without a number.
    parts += [b"]q\x02", b"}\x94", b"\x86q\x02", b"\x86\x94", b"\x8c\1c", b"\x8c\1d\x94", b"s", b"h\x03"]
    parts += [b"\x95\4\0\0\0\0\0\0\0", b"h\x00h\x01\x86q\x02", b"h\x02h\x00\x86"]
    found = 0
    for _ in range(120_000):
        body = b"".join(rng.choices(parts, k=rng.randint(1, 9)))
        content = rng.choice((b"\x80\x02", b"\x80\x04")) + b"X\1\0\0\0xq\x00X\1\0\0\0yq\x01" + body + b"."
        data = read_native(content)
        if data is None:
            continue
        found += 1
        assert not _has_nested_tuple(data[0], 12), content
        assert _is_the_same_or_refused(content, data[0]), content
    assert found > 1000


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("group", [("0", "default_pg"), ["0", "default_pg"]])
def test_pythons_writer_is_read_quickly_too(protocol: int, group: Any) -> None:
    """Whoever makes dumps of dumps: thousands of them would take minutes the other way."""
    frames = [
        {"name": "step", "filename": "/opt/train.py", "line": 88},
        {"name": "main", "filename": "t", "line": 1},
    ]
    entries = [
        {**entry(number), "process_group": group, "frames": frames, "x": 1.5} for number in range(3000)
    ]
    data = {**document(entries), "one": {"key": [1]}}
    content = pickle.dumps(data, protocol)
    assert read_native(content) == (data,)
    assert read_any(content) == data


def _has_nested_tuple(value: Any, depth: int, inside: bool = False) -> bool:
    """Whether a hash would go from tuple to tuple; it does not go through a list or a table."""
    if not depth:
        return False
    if isinstance(value, tuple):
        return inside or len(value) != 2 or any(_has_nested_tuple(part, depth - 1, True) for part in value)
    if isinstance(value, dict):
        return any(_has_nested_tuple(part, depth - 1) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(_has_nested_tuple(part, depth - 1) for part in value)


def _is_the_same_or_refused(content: bytes, data: Any) -> bool:
    """The other reader finds the same; or it says that a tuple is a key, that parts are in a circle, or that
    there is nothing to fill, where pickle fills it with nothing.
    """
    try:
        return repr(read_any(content)) == repr(data)
    except PickleRefused as refused:
        return any(words in str(refused) for words in ("key", "itself", "finds no "))
