"""The values in a document of JSON one by one, so that none of any size is ever in memory as a whole.

What is no JSON (a bare ``inf``, a document that ends early) stands in the way of nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ncclbench.units import format_memory

# A number, or the text of one: nothing else is built in memory, whatever stands there.
Cell = str | int | float | bool | None

# Of one value. Decoded it takes some thirty times as much.
MOST_BYTES = 4 << 20

# Deeper than any document; what is so is passed over no further.
_DEEPEST = 500

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TO_KEY = re.compile(rb"[\s,]*(?:(" + _STRING + rb")\s*:\s*)?", re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\s,:"{}\[\]]+', re.DOTALL)
_BRACKET = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
# A string as it stands, or what writers print of a number that is none.
_NO_NUMBER = re.compile(_STRING + rb'|(?<![\w."])-?(?:inf(?:inity)?|nan)\b', re.DOTALL | re.IGNORECASE)


class Parts:
    """The members of an object or a list, from after its opening bracket on.

    Each is (key, place of the value); keys of a list are "". Whoever takes a value says so by ``value``, or
    reads its members and sets ``end`` behind them; others are passed over. When no more come, ``is_whole``
    tells whether the closing bracket was there.
    """

    def __init__(self, content: bytes, place: int) -> None:
        self._content = content
        self._start: int | None = None
        self.end = place
        self.is_whole = False

    def __iter__(self) -> Iterator[tuple[str, int]]:
        while self._start is None or self.end != self._start or self.value() is not None:
            key = _TO_KEY.match(self._content, self.end)
            assert key is not None
            self._start = self.end = key.end()
            following = self._content[self.end : self.end + 1]
            if following in (b"}", b"]", b""):
                self.is_whole = bool(following)
                self.end += len(following)
                return
            yield (key[1] or b'""')[1:-1].decode("utf-8", "replace"), self._start

    def value(self) -> bytes | None:
        """The value of this member; None where the document ends before its end."""
        assert self._start is not None
        stop = _end(self._content, self._start)
        if stop is None:
            return None
        self.end = stop
        return self._content[self._start : stop]


def _end(content: bytes, start: int) -> int | None:
    """The place after the value that begins there."""
    if content[start] in b"{[":
        return _closing(content, start)
    scalar = _SCALAR.match(content, start)
    return None if scalar is None else scalar.end()


def _closing(content: bytes, start: int) -> int | None:
    """The place after the bracket that closes the one at ``start``; None where there is none."""
    depth = 0
    for match in _BRACKET.finditer(content, start):
        if content[match.start()] in b"{[":
            depth += 1
            if depth > _DEEPEST:
                return None
        elif content[match.start()] in b"}]":
            depth -= 1
            if not depth:
                return match.end()
    return None


def decode(value: bytes, type: Any) -> Any:
    """A value as that type; infinity and what is no number become strings.

    Raises:
        ValueError: it is of another type, damaged, or too large.
    """
    if len(value) > MOST_BYTES:
        raise ValueError(f"more than {format_memory(MOST_BYTES)} in one value")
    try:
        return msgspec.json.decode(value, type=type)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        text = value.decode("utf-8", "replace").encode()
        try:
            return msgspec.json.decode(_NO_NUMBER.sub(_quoted, text), type=type)
        except RecursionError:
            raise ValueError("nested too deep") from None


def _quoted(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0][:1] == b'"' else b'"%s"' % match[0]
