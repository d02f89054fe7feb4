"""Pickles that would do something when they are loaded: each makes a folder, if it may."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator

# Registered in the process that shows that they work.
EXTENSION = 0x77
_HEAD = b"\x80\x02"


def _text(text: str | bytes) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return b"X" + struct.pack("<I", len(content)) + content


def _short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def malicious(marker: str) -> Iterator[tuple[str, bytes, str | None]]:
    """Name, bytes, and the instruction that is refused first; None where the file is refused for another
    reason.

    Args:
        marker: the folder that loading makes.
    """
    make = b"cos\nmkdir\n"
    path = _text(marker)
    call = make + path + b"\x85R"
    line = b"V" + marker.encode() + b"\n"
    lazy = b"cbuiltins\nmap\n" + make + b"](" + path + b"e\x86"
    yield "global-0", make + b"(" + line + b"tR.", "GLOBAL"
    yield "global-1", make + b"(" + line + b"tR.", "GLOBAL"
    yield "global-2", _HEAD + call + b".", "GLOBAL"
    yield (
        "stack-global",
        b"\x80\x04" + _short("os") + _short("mkdir") + b"\x93" + path + b"\x85R.",
        "STACK_GLOBAL",
    )
    yield (
        "stack-global-memo",
        b"\x80\x04" + _short("os") + b"\x94" + _short("mkdir") + b"\x940h\x00h\x01\x93" + path + b"\x85R.",
        "STACK_GLOBAL",
    )
    yield "inst", b"(" + line + b"ios\nmkdir\n.", "INST"
    yield "obj", b"(" + make + path + b"o.", "GLOBAL"
    yield "newobj", _HEAD + b"cbuiltins\ntuple\n" + lazy + b"\x81\x85\x81.", "GLOBAL"
    yield "newobj-ex", b"\x80\x04cbuiltins\ntuple\n" + lazy + b"}\x92\x85}\x92.", "GLOBAL"
    state = _HEAD + b"ctypes\nSimpleNamespace\n)\x81}" + _text("__setstate__") + make + b"sb" + path + b"b."
    yield "build", state, "GLOBAL"
    code = f"__import__('os').mkdir({marker!r})"
    yield "eval", _HEAD + b"cbuiltins\neval\n" + _text(code) + b"\x85R.", "GLOBAL"
    yield "eval-old-name", _HEAD + b"c__builtin__\neval\n" + _text(code) + b"\x85R.", "GLOBAL"
    yield "system", _HEAD + b"cos\nsystem\n" + _text(f"mkdir '{marker}'") + b"\x85R.", "GLOBAL"
    yield "ext1", _HEAD + b"\x82" + bytes([EXTENSION]) + path + b"\x85R.", "EXT1"
    yield "ext2", _HEAD + b"\x83" + struct.pack("<H", EXTENSION) + path + b"\x85R.", "EXT2"
    yield "ext4", _HEAD + b"\x84" + struct.pack("<I", EXTENSION) + path + b"\x85R.", "EXT4"
    getter = b"cbuiltins\ngetattr\n" + b"cos\npath\n" + _text("os") + b"\x86R"
    attribute = b"cbuiltins\ngetattr\n" + getter + _text("mkdir") + b"\x86R"
    yield "getattr", _HEAD + attribute + path + b"\x85R.", "GLOBAL"
    yield "thrown-away", _HEAD + call + b"0}.", "GLOBAL"
    yield "in-a-value", _HEAD + b"}(" + _text("version") + call + b"u.", "GLOBAL"
    yield "in-a-key", _HEAD + b"}(" + call + _text("version") + b"u.", "GLOBAL"
    yield (
        "in-an-entry",
        _HEAD + b"}(" + _text("entries") + b"](}(" + _text("state") + call + b"ueu.",
        "GLOBAL",
    )
    yield "after-a-mark", _HEAD + b"(" + call + b"1}.", "GLOBAL"
    frame = b"\x95" + struct.pack("<Q", len(call) + 1) + call + b"."
    yield "in-a-frame", b"\x80\x04" + frame, "GLOBAL"
    yield "remembered", _HEAD + make + b"q\x000h\x00" + path + b"\x85R.", "GLOBAL"
    yield "duplicated", _HEAD + make + b"2" + b"0" + path + b"\x85R.", "GLOBAL"
    yield "without-protocol", call + b".", "GLOBAL"
    yield "protocol-5", b"\x80\x05" + call + b".", "GLOBAL"
    yield "as-a-default", _HEAD + b"ccollections\ndefaultdict\n" + make + b"\x85R.", "GLOBAL"
    yield "written-by-pickle", pickle.dumps(_Maker(marker), 4), "STACK_GLOBAL"
    yield "written-by-pickle-0", pickle.dumps(_Maker(marker), 0), "GLOBAL"
    yield "in-a-dump", pickle.dumps({"version": "2.10", "entries": [_Maker(marker)]}, 2), "GLOBAL"
    # Nothing is made by these alone; what asks the reader for objects is refused all the same.
    yield "reduce-alone", b"NNR.", "REDUCE"
    yield "build-alone", b"}}b.", "BUILD"
    yield "obj-alone", b"(No.", "OBJ"
    yield "newobj-alone", _HEAD + b"N)\x81.", "NEWOBJ"
    yield "newobj-ex-alone", b"\x80\x04N)}\x92.", "NEWOBJ_EX"
    yield "persid", b"Pfrom outside\n.", "PERSID"
    yield "binpersid", _HEAD + _text("from outside") + b"Q.", "BINPERSID"
    yield "next-buffer", b"\x80\x05\x97.", "NEXT_BUFFER"
    yield "readonly-buffer", b"\x80\x05N\x98.", "READONLY_BUFFER"
    yield "bytearray", b"\x80\x05\x96" + struct.pack("<Q", 1) + b"a.", "BYTEARRAY8"
    yield "behind-the-end", _HEAD + b"}." + _HEAD + call + b".", None


class _Maker:
    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.mkdir, (self._marker,)
