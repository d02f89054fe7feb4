"""Inputs damaged on purpose, the same ways for every parser: as bytes, as text, as numbers, as JSON."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Damage = Callable[[random.Random, bytes], bytes]

# In place of a number. Python converts no more than 4300 digits, and takes digits of other scripts.
NUMBERS = (
    "0", "-1", "-0", "1e999", "-1e999", "1e-999", "nan", "NaN", "inf", "-Infinity", "0x10", "1_000", "007",
    "18446744073709551616", "9223372036854775807", "1" * 400, "1" * 5000, "0." + "0" * 400 + "1", "1.", ".5",
    "1.2.3", "𝟙𝟚", "٣", "²", "½", "+5", "1e5", "1,5", "99999999999", "0-99999999999", "2(x99999999999)",
)  # fmt: skip
# Between or around words.
SEPARATORS = (
    "\0", "\r", "\r\n", "\n", "\t", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029",
    " ", "\u3000", "\u200b", "\ufeff", ",", ";", ":", "=", "|", "/", "\\", "%", "@", "[", "]", "{", "}", '"',
    "'",
)  # fmt: skip
WORDS = (
    *SEPARATORS, *NUMBERS, "", "-", "--", "..", "../..", "/dev/zero", "\x1b[31m", "\x07", "\ud800", "\udcff",
    "ſ", "K", "µs", "ﬁ", "é", "e\u0301", "\u202e", "😀", "a" * 300, "(" * 500, "[" * 2000, "all", "none",
    "null", "true", "%s%n", "{0}", "{{7*7}}", "$(id)", "<script>", "nan%", "1e999s", "60ſ", "8K",
    "[1-99999999]" * 4,
    "[0-9]" * 12, "a[0-9999999999999]",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, 1.5, 1e15, 1e308, -1e308, 5e-324, "",
    "x", "1", "\ud800", "\0\x1b[31m\n", "x" * 3000, [], {}, [[]], [None], [0, 1], ["a"], {"a": 1}, {"": None},
    [1e308] * 9,
)  # fmt: skip


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def cut_start(rng: random.Random, content: bytes) -> bytes:
    return content[rng.randrange(len(content) + 1) :]


def flip(rng: random.Random, content: bytes, most: int = 4) -> bytes:
    flipped = bytearray(content)
    for _ in range(rng.randint(1, most) if flipped else 0):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def lose(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + content[at + rng.randint(1, 30) :]


def double(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    stop = min(len(content), start + rng.choice((1, 8, 200, len(content))))
    return content[:stop] + content[start:]


def put_word(rng: random.Random, content: bytes) -> bytes:
    at = rng.choice((0, len(content), rng.randrange(len(content) + 1)))
    return content[:at] + rng.choice(WORDS).encode("utf-8", "surrogatepass") + content[at:]


def put_bytes(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.randint(1, 12)) + content[at:]


def swap_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def double_line(rng: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[:at], *[lines[at]] * rng.choice((2, 2, 50)), *lines[at + 1 :]])


def drop_line(rng: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def other_number(rng: random.Random, content: bytes) -> bytes:
    places = list(re.finditer(rb"[0-9][0-9.]*", content))
    if not places:
        return put_word(rng, content)
    place = rng.choice(places)
    return content[: place.start()] + rng.choice(NUMBERS).encode() + content[place.end() :]


def other_ends(rng: random.Random, content: bytes) -> bytes:
    return content.replace(b"\n", rng.choice(SEPARATORS).encode())


def marked(rng: random.Random, content: bytes) -> bytes:
    return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\x80\x02")) + content


def as_utf16(rng: random.Random, content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode("utf-16")


def nested(rng: random.Random, content: bytes) -> bytes:
    depth = rng.choice((50, 1000, 100_000))
    return rng.choice(
        (b"[" * depth + content + b"]" * depth, b'{"a":' * depth + content, content + b"(" * depth)
    )


def other_value(rng: random.Random, content: bytes) -> bytes:
    """Where the input, or a line of it, is JSON: a value somewhere in it is another, or gone."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    for start, text in ((0, content), (at, lines[at])):
        with suppress(ValueError, RecursionError):
            document = json.loads(text)
            if isinstance(document, dict | list) and document:
                changed = _changed(rng, document)
                return (
                    changed if text is content else b"\n".join([*lines[:start], changed, *lines[start + 1 :]])
                )
    return other_number(rng, content)


def _changed(rng: random.Random, document: Any) -> bytes:
    place = document
    for _ in range(rng.randint(0, 7)):
        inner = [
            one
            for one in (place.values() if isinstance(place, dict) else place)
            if isinstance(one, dict | list)
        ]
        inner = [one for one in inner if one]
        if not inner:
            break
        place = rng.choice(inner)
    key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    if rng.random() < 0.2:
        del place[key]
    elif rng.random() < 0.2:
        place[key] = place[rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))]
    else:
        place[key] = rng.choice(VALUES)
    with suppress(ValueError, RecursionError):
        return json.dumps(document).encode()
    return b""


DAMAGES: tuple[Damage, ...] = (
    cut, cut_start, flip, lose, double, put_word, put_word, put_bytes, swap_lines, double_line, drop_line,
    other_number, other_number, other_ends, marked, as_utf16, nested, other_value, other_value, other_value,
)  # fmt: skip


def damaged(rng: random.Random, content: bytes) -> bytes:
    """One to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(DAMAGES)(rng, content)
    return content
