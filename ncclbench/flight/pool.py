"""What many operations and many dumps share, each once in memory; and operations made of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, make_dataclass
from typing import Any

from ncclbench.flight.model import Frame, Operation

# Of a word in a dump.
MOST_LETTERS = 500
MOST_NUMBER = 1 << 63
_MOST_SHARED_NUMBERS = 1 << 20


class OddEntry(ValueError):
    """An entry, or its place among others, is not what a recorder writes: why, in a few words."""


class Pool:
    """What many entries and many dumps share, each once in memory."""

    def __init__(self) -> None:
        self.words = _Words()
        self.groups = _Groups(self.words)
        self.names = _Names(self.words)
        self.sizes = _Sizes()
        self.dtypes = _Dtypes(self.words)
        self.numbers = _Numbers()
        self._frames: dict[tuple[str, str, int], Frame] = {}
        self._stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}

    def frame(self, function: str, file: str, line: int) -> Frame:
        """The frame with these words, which are clean."""
        key = function, file, line
        return self._frames.get(key) or self._frames.setdefault(key, Frame(*key))

    def stack(self, frames: Sequence[Frame]) -> tuple[Frame, ...]:
        """These frames, each of which this pool gave, as one."""
        return self._stacks.setdefault(tuple(map(id, frames)), tuple(frames))


# An operation that is not frozen yet: to set each field of a frozen one takes five times as long.
_Draft: Any = make_dataclass("_Draft", [one.name for one in fields(Operation)], slots=True)


def made_operations(*columns: Iterable[Any]) -> list[Operation]:
    """Operations of their fields, one column for each, in the order of the fields."""
    made: list[Any] = list(map(_Draft, *columns))
    for draft in made:
        draft.__class__ = Operation
    return made


def cleaned(text: str, most: int = MOST_LETTERS) -> str:
    """Text that can be printed on one line, in bounded length."""
    text = text[:most]
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


class _Words(dict[str, str]):
    def __missing__(self, key: Any) -> str:
        if type(key) is not str:
            raise OddEntry("a word that is none")
        found = self[key] = cleaned(key)
        return found


class _Groups(dict[tuple[Any, ...], tuple[str, str]]):
    """Name and description, from what ``process_group`` holds."""

    def __init__(self, words: _Words) -> None:
        super().__init__()
        self._words = words

    def __missing__(self, key: tuple[Any, ...]) -> tuple[str, str]:
        if len(key) != 2:
            raise OddEntry("no process_group of a name and a description")
        found = self[key] = self._words[key[0]], self._words[key[1]]
        return found


class _Names(dict[str, tuple[str, str]]):
    """Backend and collective, from a name like "gloo:all_reduce" or "nccl:send 0->1"."""

    def __init__(self, words: _Words) -> None:
        super().__init__()
        self._words = words

    def __missing__(self, key: Any) -> tuple[str, str]:
        if type(key) is not str or not key:
            raise OddEntry("no profiling_name")
        backend, colon, collective = key.partition(":")
        if not colon:
            backend, collective = "unknown", key
        found = self[key] = self._words[backend], self._words[collective]
        return found


class _Sizes(dict[tuple[tuple[Any, ...], ...], tuple[tuple[int, ...], ...]]):
    def __missing__(self, key: tuple[tuple[Any, ...], ...]) -> tuple[tuple[int, ...], ...]:
        for size in key:
            if not all(type(number) is int and 0 <= number < MOST_NUMBER for number in size):
                raise OddEntry("a size that is none")
        self[key] = key
        return key


class _Dtypes(dict[tuple[Any, ...], tuple[str, ...]]):
    def __init__(self, words: _Words) -> None:
        super().__init__()
        self._words = words

    def __missing__(self, key: tuple[Any, ...]) -> tuple[str, ...]:
        found = self[key] = tuple(self._words[word] for word in key)
        return found


class _Numbers(dict[int, int]):
    """Small numbers, each once: the same ones stand in every dump."""

    def __missing__(self, key: Any) -> int:
        if type(key) is not int or not 0 <= key < MOST_NUMBER:
            raise OddEntry("a number that is none")
        if len(self) < _MOST_SHARED_NUMBERS:
            self[key] = key
        return key
