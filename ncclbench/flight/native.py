"""Pickles as torch's own writer and Python's make them of dumps, decoded quickly.

2,000 dumps are some billion bytes, and their instructions one by one would take minutes. So the file is
looked over first, at the speed of regular expressions, and only if it holds nothing but the few instructions
that these writers need for lists, tables, texts and numbers it is given to ``pickle``. Why that is safe:

* None of these instructions imports, calls or builds; the class below would refuse names all the same.
* Every length was held against the file before, and so was every number in the memo, which ``pickle`` would
  have made room for. Numbers have 64 bits at most.
* Keys are strings, numbers of 64 bits, or pairs of strings; so there are no hashes that a writer could have
  made alike in great numbers, and none that take long. Tuples in tuples could take for ever, or overflow the
  C stack. So a pair must stand right behind its two parts, each a string or from the memo, and of the memo
  it is known which are pairs: none holds another, but in a list or table, where no hash goes. What is
  remembered must just have been made or filled, so it is a string, a list, a table or such a pair.
* What is given back can contain itself, and can share parts: whoever reads it must not walk it freely.

Whatever is not like this goes the slow way, in ``restricted``, which says what is wrong.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from typing import Any, NoReturn

# Constants, marks, lists, tables, and what fills them; BINGET, BININT1, BININT2, LONG_BINGET, BININT, LONG1
# of up to 8 bytes, BINFLOAT; a table that is filled (SETITEMS) and not remembered.
_TOKEN = (
    rb"[Naes\x88\x89(]++|[\]}](?![qr\x94])"
    rb"|[hK].|M..|[jJ].{4}|G.{8}"
    rb"|\x8a\x05.{5}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x08.{8}"
    rb"|u(?![qr])"
)
# Pairs of what the memo holds (BINGET, LONG_BINGET), as long as it holds no pairs.
_PAIRS = rb"|".join(
    first + second + rb"\x86(?![qr\x94])" for first in (rb"h.", rb"j.{4}") for second in (rb"h.", rb"j.{4}")
)
# As many at once: each holds memory until all are matched. A possessive quantifier would hold none, but goes
# wrong on alternatives before Python 3.11.5 (python/cpython#106052).
_MOST_AT_ONCE = 1000
_RUN = re.compile(rb"(?:%b|%b){0,%d}" % (_PAIRS, _TOKEN, _MOST_AT_ONCE), re.DOTALL)
_RUN_APART = re.compile(rb"(?:%b){0,%d}" % (_TOKEN, _MOST_AT_ONCE), re.DOTALL)
_ONE = re.compile(_PAIRS + rb"|" + _TOKEN, re.DOTALL)

# Protocols 2 to 5.
_HEADS = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_STOP, _STRING, _SHORT_STRING, _TUPLE2, _SETITEMS, _MARK, _FRAME, _MEMOIZE = b".X\x8c\x86u(\x95\x94"
_GETS = {ord("h"): 2, ord("j"): 5}
_PUTS = {ord("q"): 2, ord("r"): 5, _MEMOIZE: 1}
_CONTAINERS = b"]}"
_WITH_ARGUMENT = b"hjKMJ\x8aG"
_LENGTH, _LONG_LENGTH = struct.Struct("<I"), struct.Struct("<Q")
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
    """Whether there are only the instructions of these writers in it, in the ways they use them."""
    if not content.startswith(_HEADS):
        return False
    memo = _Memo(content)
    run = _RUN
    place, end = len(_HEADS[0]), len(content)
    # Where the last string began, and the run or string before it; each ends where the next begins.
    string = before = -1
    while True:
        stop = _end_of_run(run, content, place)
        if stop >= end:
            return False
        code = content[stop]
        if code in (_STRING, _SHORT_STRING):
            following = _end_of_string(content, code, stop)
            if following >= end:
                return False
            size = memo.put(following)
            if size is None:
                return False
            before = string if stop == place else place
            string = stop
            following += size
        elif code in _CONTAINERS:
            # Python remembers lists and tables before they are filled.
            size = memo.put(stop + 1)
            if size is None:
                return False
            following = stop + 1 + size
            string = -1
        elif code == _SETITEMS:
            # What is remembered is a table that was just filled; filled with nothing, it could be anything.
            size = None if _ends_with_mark(content, place, stop) else memo.put(stop + 1)
            if size is None:
                return False
            following = stop + 1 + size
            string = -1
        elif code == _TUPLE2:
            if not _is_pair(content, before, string, place, stop, memo.pairs):
                return False
            size = memo.put(stop + 1, is_pair=True)
            if size is None:
                return False
            if memo.pairs:
                run = _RUN_APART
            following = stop + 1 + size
            string = -1
        elif code == _FRAME:
            following = stop + 1 + _LONG_LENGTH.size
            if following > end or _LONG_LENGTH.unpack_from(content, stop + 1)[0] > end - following:
                return False
            string = -1
        else:
            return code == _STOP and stop == end - 1
        place = following


class _Memo:
    """What is remembered: how many, and which of them are pairs."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._count = 0
        self.pairs: set[int] = set()

    def put(self, place: int, is_pair: bool = False) -> int | None:
        """Bytes of the instruction there that remembers an object; 0 if it is none.

        None if the number it gives is neither the next nor one that was given before.
        """
        content = self._content
        size = _PUTS.get(content[place], 0) if place < len(content) else 0
        if not size:
            return 0
        if place + size >= len(content):
            return None
        number = self._count
        if size > 1:
            number = content[place + 1] if size == 2 else _LENGTH.unpack_from(content, place + 1)[0]
            if number > self._count:
                return None
        # As many as ``pickle`` remembers: its next number is theirs.
        self._count += number == self._count
        if is_pair:
            self.pairs.add(number)
        elif self.pairs:
            self.pairs.discard(number)
        return size


def _end_of_string(content: bytes, code: int, place: int) -> int:
    """Where the text ends that begins there; past the end of the file where it is cut off."""
    if code == _SHORT_STRING:
        return place + 2 + content[place + 1] if place + 1 < len(content) else len(content)
    if place + 5 > len(content):
        return len(content)
    return place + 5 + int(_LENGTH.unpack_from(content, place + 1)[0])


def _end_of_run(run: re.Pattern[bytes], content: bytes, place: int) -> int:
    """Where the instructions end that begin there and are none of those looked at one by one."""
    while True:
        end = run.match(content, place).end()  # type: ignore[union-attr]
        # Each instruction takes a byte or more.
        if end - place < _MOST_AT_ONCE:
            return end
        place = end


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


def _is_get(content: bytes, place: int, stop: int, pairs: set[int]) -> bool:
    """Whether that instruction takes one object from the memo, and no pair."""
    if not stop > place >= 0 or _GETS.get(content[place]) != stop - place:
        return False
    number = content[place + 1] if stop - place == 2 else _LENGTH.unpack_from(content, place + 1)[0]
    return number not in pairs


def _is_pair(content: bytes, before: int, string: int, place: int, stop: int, pairs: set[int]) -> bool:
    """Whether the last two objects are strings, or from the memo.

    Args:
        before: where the run or string before the last string begins.
        string: where the last string begins, behind which the last run began at ``place``; -1: none there.
        place: where the last run begins.
        stop: where it ends.
        pairs: numbers in the memo that are pairs.
    """
    if stop > place:
        last = _last(content, place, stop)
        if not _is_get(content, last, stop, pairs):
            return False
        return string >= 0 if last == place else _is_get(content, _last(content, place, last), last, pairs)
    if string < 0 or before < 0:
        return False
    if content[before] in (_STRING, _SHORT_STRING):
        return True
    return _is_get(content, _last(content, before, string), string, pairs)
