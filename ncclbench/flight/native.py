"""Pickles as torch's own writer makes them, decoded quickly.

2,000 dumps are some billion bytes, and their instructions one by one would take minutes. So the file is
looked over first, at the speed of regular expressions, and only if it holds nothing but the few instructions
of torch's writer it is given to ``pickle``. Why that is safe:

* None of these instructions imports, calls or builds; the class below would refuse names all the same.
* Every length was held against the file before, and so was every number in the memo, which ``pickle`` would
  have made room for. Numbers have 64 bits at most.
* Keys are strings, numbers of 64 bits, or pairs of strings; so there are no hashes that a writer could have
  made alike in great numbers, and none that take long. Tuples in tuples could take for ever, or overflow the
  C stack. So a pair must stand right behind its two parts, each a string or from the memo, and the memo
  holds strings, lists and tables, never a tuple: what is remembered must just have been made or filled.
* What is given back can contain itself, and can share parts: whoever reads it must not walk it freely.

Whatever is not like this goes the slow way, in ``restricted``, which says what is wrong.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from typing import Any, NoReturn

# Constants, marks, lists, tables, and what fills them; pairs of what the memo holds (BINGET, LONG_BINGET);
# BINGET, BININT1, BININT2, LONG_BINGET, BININT, LONG1 of 8 bytes, BINFLOAT; a table that is filled (SETITEMS)
# and not remembered. No groups: with possessive quantifiers they go wrong in some releases of Python.
_TOKEN = (
    rb"[Nae\x88\x89\](}]++"
    rb"|h.h.\x86|h.j.{4}\x86|j.{4}h.\x86|j.{4}j.{4}\x86"
    rb"|[hK].|M..|[jJ].{4}|\x8a\x08.{8}|G.{8}"
    rb"|u(?![qr])"
)
_RUN = re.compile(rb"(?:" + _TOKEN + rb")*+", re.DOTALL)
_ONE = re.compile(_TOKEN, re.DOTALL)

_HEAD = b"\x80\x02"
_STOP, _STRING, _TUPLE2, _SETITEMS, _MARK = b".X\x86u("
_GETS = {ord("h"): 2, ord("j"): 5}
_PUTS = {ord("q"): 2, ord("r"): 5}
_WITH_ARGUMENT = b"hjKMJ\x8aG"
_LENGTH = struct.Struct("<I")
# An empty list takes one byte of the file and eighty in memory.
_BYTES_PER_CONTAINER = 6
_FREE_CONTAINERS = 1000


def read_native(content: bytes) -> tuple[Any] | None:
    """The data in a pickle of torch's writer; None where it is not surely one, or is damaged."""
    containers = content.count(b"]") + content.count(b"}")
    if containers > _FREE_CONTAINERS + len(content) // _BYTES_PER_CONTAINER or not _is_native(content):
        return None
    try:
        return (_Plain(_Ahead(content)).load(),)
    except (pickle.UnpicklingError, ValueError, TypeError, AttributeError, IndexError, KeyError, EOFError):
        return None


class _Ahead(io.BytesIO):
    """A file that shows all that is left of it: ``pickle`` would read byte by byte from any other."""

    def peek(self, nbytes: int) -> bytes:
        place = self.tell()
        return self.getvalue()[place:] if place else self.getvalue()


class _Plain(pickle.Unpickler):
    """The second lock: names and objects from outside are refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("an object from outside is no plain data")


def _is_native(content: bytes) -> bool:
    """Whether there are only the instructions of torch's writer in it, in the ways it uses them."""
    if not content.startswith(_HEAD):
        return False
    place, nputs, end = len(_HEAD), 0, len(content)
    # Where the last string began, and the run or string before it; each ends where the next begins.
    string = before = -1
    while True:
        stop = _RUN.match(content, place).end()  # type: ignore[union-attr]
        if stop >= end:
            return False
        code = content[stop]
        if code == _STRING:
            following = stop + 5
            if following > end:
                return False
            following += _LENGTH.unpack_from(content, stop + 1)[0]
            if following >= end:
                return False
            size = _PUTS.get(content[following], 0)
            if size and not _is_next(content, following, size, nputs):
                return False
            before = string if stop == place else place
            string = stop
            nputs += size > 0
            following += size
        elif code == _SETITEMS:
            # What is remembered is a table that was just filled; filled with nothing, it could be anything.
            size = _PUTS[content[stop + 1]]
            if _ends_with_mark(content, place, stop) or not _is_next(content, stop + 1, size, nputs):
                return False
            nputs += 1
            following = stop + 1 + size
            string = -1
        elif code == _TUPLE2:
            if not _is_pair(content, before, string, place, stop):
                return False
            following = stop + 1
            string = -1
        else:
            return code == _STOP and stop == end - 1
        place = following


def _last(content: bytes, place: int, stop: int) -> int:
    """Where the last instruction of a run begins; constants and the like in a row are one."""
    last = -1
    for match in _ONE.finditer(content, place, stop):
        last = match.start()
    return last


def _ends_with_mark(content: bytes, place: int, stop: int) -> bool:
    """Whether the last instruction of a run is MARK, and not an argument that looks like it."""
    if stop == place or content[stop - 1] != _MARK:
        return False
    return content[_last(content, place, stop)] not in _WITH_ARGUMENT


def _is_get(content: bytes, place: int, stop: int) -> bool:
    """Whether that instruction takes one object from the memo."""
    return stop > place >= 0 and _GETS.get(content[place]) == stop - place


def _is_pair(content: bytes, before: int, string: int, place: int, stop: int) -> bool:
    """Whether the last two objects are strings, or from the memo.

    Args:
        before: where the run or string before the last string begins.
        string: where the last string begins, behind which the last run began at ``place``; -1: none there.
        place: where the last run begins.
        stop: where it ends.
    """
    if stop > place:
        last = _last(content, place, stop)
        if not _is_get(content, last, stop):
            return False
        return string >= 0 if last == place else _is_get(content, _last(content, place, last), last)
    if string < 0 or before < 0:
        return False
    return content[before] == _STRING or _is_get(content, _last(content, before, string), string)


def _is_next(content: bytes, place: int, size: int, nputs: int) -> bool:
    """Whether the object that is remembered there gets the next number, or one that was given before."""
    if place + size >= len(content):
        return False
    number = content[place + 1] if size == 2 else _LENGTH.unpack_from(content, place + 1)[0]
    return bool(number <= nputs)
