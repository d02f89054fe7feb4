"""Pickles from anybody as plain data: nothing that they name is imported, called or built.

A pickle is a program for a stack machine. This is such a machine, with the instructions that make None,
bool, int, float, str, bytes, list, tuple, dict and sets, and with no other. ``pickletools`` decodes the
arguments of instructions and carries none out; it holds a length against what is left of the file before it
reads on. ``pickle`` itself has no part in it (but see ``native``, which takes what torch's own writer makes).

What is given back is a tree: shared parts that would explode when walked, and parts that contain themselves,
are refused, as are keys whose hashes somebody could have made alike (tuples, very long numbers).
"""

from __future__ import annotations

import io
import pickletools
import warnings
from collections.abc import Callable
from typing import Any

from ncclbench.flight.native import read_native
from ncclbench.units import format_memory

# Instructions that have another object made, or take one from outside of the file.
_FOREIGN = {
    "GLOBAL": "imports a name",
    "STACK_GLOBAL": "imports a name",
    "REDUCE": "calls a function",
    "BUILD": "sets an object's state",
    "INST": "imports a name and calls it",
    "OBJ": "calls a class",
    "NEWOBJ": "makes an object of a class",
    "NEWOBJ_EX": "makes an object of a class",
    "PERSID": "asks the reader for an object",
    "BINPERSID": "asks the reader for an object",
    "EXT1": "imports a registered name",
    "EXT2": "imports a registered name",
    "EXT4": "imports a registered name",
    "NEXT_BUFFER": "takes a buffer from outside",
    "READONLY_BUFFER": "changes a buffer from outside",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
# pickletools has decoded their argument to a bool, int, float, str or bytes.
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_NESTED = (dict, list, tuple, set, frozenset)
_KEYS = (str, int, float, bool, bytes, type(None))

MOST_PROTOCOL = 5
# Of what torch has not written: a microsecond an instruction.
MOST_BYTES = 16 << 20
# A dump has five levels.
MOST_DEPTH = 100
# An empty list takes one byte of the file and some seventy in memory; of dumps, one byte in forty is one.
_BYTES_PER_CONTAINER = 4
_FREE_CONTAINERS = 1000
# Frames are shared by those who stood in them: a reference of two bytes to what has seven parts.
_NODES_PER_BYTE = 8
# Numbers of a pickle are of any length; to print one takes time that grows with its square.
_MOST_KEY = 1 << 63


class PickleRefused(ValueError):
    """The bytes are not plain data: why and where, in a few words.

    Attributes:
        is_foreign: it would have imported, called or built something, so a pickle it is.
    """

    is_foreign = False


def read_pickle(content: bytes) -> Any:
    """The data in a pickle.

    Args:
        content: the whole file; in memory its data take a small multiple of it.

    Raises:
        PickleRefused: it wants more than plain data, is damaged, or is more than its bytes can mean.
    """
    found = read_native(content)
    return read_any(content) if found is None else found[0]


def read_any(content: bytes) -> Any:
    """As ``read_pickle``, instruction by instruction, whoever wrote it.

    Raises:
        PickleRefused: as there.
    """
    if len(content) > MOST_BYTES:
        raise PickleRefused(f"torch did not write it so, and it has more than {format_memory(MOST_BYTES)}")
    data = _Machine(content).run()
    _check_tree(data, _NODES_PER_BYTE * len(content) + 1000)
    return data


class _Machine:
    """The stack, the marks in it, and the memo."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # what lies under each mark
        self._memo: list[Any] = []
        self._ncontainers = 0
        self._do: dict[str, Callable[[], None]] = {
            "MARK": self._mark,
            "APPEND": self._append,
            "APPENDS": self._appends,
            "SETITEM": self._setitem,
            "SETITEMS": self._setitems,
            "ADDITEMS": self._additems,
            "LIST": lambda: self._made(self._popped()),
            "TUPLE": lambda: self._made(tuple(self._popped())),
            "DICT": self._dict,
            "FROZENSET": self._frozenset,
            "DUP": lambda: self._stack.append(self._stack[-1]),
            "POP": self._pop,
            "POP_MARK": lambda: self._popped().clear(),
            "MEMOIZE": lambda: self._memo.append(self._stack[-1]),
        }

    def run(self) -> Any:
        """Carry out all instructions; what lies on top of the stack at the end."""
        name, position = "the beginning", 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of escapes in texts
                for opcode, argument, place in pickletools.genops(io.BytesIO(self._content)):
                    name, position = opcode.name, place or 0
                    if name == "STOP":
                        if self._content[position + 1 :].strip():
                            raise PickleRefused(f"more follows its end at byte {position}")
                        return self._stack.pop()
                    self._step(name, argument)
        except PickleRefused:
            raise
        except IndexError:
            raise PickleRefused(f"{name} at byte {position} finds nothing to work on") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise PickleRefused(f"{_first_line(error)} (after {name} at byte {position})") from None
        except _Refusal as refusal:
            refused = PickleRefused(f"{name} at byte {position} {refusal}")
            refused.is_foreign = name in _FOREIGN
            raise refused from None
        raise PickleRefused("it does not end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _GETS:
            self._stack.append(self._got(argument))
        elif name in self._do:
            self._do[name]()
        elif name in _PUTS:
            self._put(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._made(_EMPTY[name]())
        elif name in _TUPLES:
            self._tuple(_TUPLES[name])
        elif name == "PROTO":
            if argument > MOST_PROTOCOL:
                raise _Refusal(f"names protocol {argument}, which is not known")
        elif name == "FRAME":
            if argument > len(self._content):
                raise _Refusal("tells of more bytes than the file has")
        else:
            raise _Refusal(f"is not plain data: it {_FOREIGN.get(name, 'makes another object')}")

    def _made(self, container: Any) -> None:
        self._ncontainers += 4 if isinstance(container, set | frozenset) else 1
        if self._ncontainers > _FREE_CONTAINERS + len(self._content) // _BYTES_PER_CONTAINER:
            raise _Refusal("makes more lists and tables than its bytes can mean")
        self._stack.append(container)

    def _mark(self) -> None:
        if len(self._below) >= MOST_DEPTH:
            raise _Refusal(f"goes deeper than {MOST_DEPTH} levels")
        self._below.append(self._stack)
        self._stack = []

    def _popped(self) -> list[Any]:
        """Everything above the last mark, which goes, too."""
        above = self._stack
        self._stack = self._below.pop()
        return above

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._popped()

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError
        parts = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._made(parts)

    def _append(self) -> None:
        value = self._stack.pop()
        _as(list, self._stack[-1]).append(value)

    def _appends(self) -> None:
        values = self._popped()
        _as(list, self._stack[-1]).extend(values)

    def _setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _as(dict, self._stack[-1])[_key(key)] = value

    def _setitems(self) -> None:
        flat = self._popped()
        _fill(_as(dict, self._stack[-1]), flat)

    def _additems(self) -> None:
        values = self._popped()
        _as(set, self._stack[-1]).update(_key(value) for value in values)

    def _dict(self) -> None:
        table: dict[Any, Any] = {}
        _fill(table, self._popped())
        self._made(table)

    def _frozenset(self) -> None:
        self._made(frozenset(_key(value) for value in self._popped()))

    def _put(self, number: int) -> None:
        # Writers number what they remember one after the other, from 0 or from 1.
        if not 0 <= number <= len(self._memo) + 1:
            raise _Refusal(f"remembers as number {number} what is number {len(self._memo)}")
        value = self._stack[-1]
        if number == len(self._memo) + 1:
            self._memo.append(_NOTHING)
        if number == len(self._memo):
            self._memo.append(value)
        else:
            self._memo[number] = value

    def _got(self, number: int) -> Any:
        if not 0 <= number < len(self._memo) or self._memo[number] is _NOTHING:
            raise _Refusal(f"asks for number {number}, which is not remembered")
        return self._memo[number]


class _Refusal(Exception):
    """What an instruction does that is refused; its name and place are put before it."""


_NOTHING = object()


def _as(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise _Refusal(f"finds no {kind.__name__}")
    return value


def _fill(table: dict[Any, Any], flat: list[Any]) -> None:
    if len(flat) % 2:
        raise _Refusal("finds a key without a value")
    for index in range(0, len(flat), 2):
        table[_key(flat[index])] = flat[index + 1]


def _key(value: Any) -> Any:
    """A key, or a member of a set, whose hash costs little and is not chosen by the writer."""
    if type(value) not in _KEYS:
        raise _Refusal(f"has a {type(value).__name__} for a key")
    if type(value) is int and not -_MOST_KEY <= value < _MOST_KEY:
        raise _Refusal("has a number for a key that is longer than 64 bits")
    return value


def _check_tree(data: Any, most_nodes: int) -> None:
    """Refuse what is deeper, or has more parts when walked, than any file of that size.

    Level by level; what is there several times in one is looked at once and counted as often as it is there.
    """
    level, nnodes = {id(data): (data, 1)}, 1
    for _ in range(MOST_DEPTH):
        below: dict[int, tuple[Any, int]] = {}
        for value, times in level.values():
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, _NESTED) else ()
            nnodes += times * len(parts)
            if nnodes > most_nodes:
                raise PickleRefused("its parts refer to one another so often that they explode when read")
            for part in parts:
                if isinstance(part, _NESTED):
                    _, before = below.get(id(part), (None, 0))
                    below[id(part)] = part, before + times
        if not below:
            return
        level = below
    raise PickleRefused(f"it goes deeper than {MOST_DEPTH} levels, or contains itself")


def _first_line(error: Exception) -> str:
    """What an error of the standard library says, in little room and on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:150]
