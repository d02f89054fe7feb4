"""Damage done to dumps on purpose, seeded: to their bytes, and to what they say."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
from typing import Any

_ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 62,
    1 << 63,
    1 << 200,
    1.5,
    float("inf"),
    "",
    "x" * 3000,
    "\ud800",
    "\x00\x1b[31m\n",
    "<script>alert(1)</script>",
    "[0, 1, 99999999999]",
    [],
    [[[[]]]],
    [-1],
    ["0"],
    {},
    {"name": 1},
    {"entries": []},
    [None] * 50,
]
_ODD_BYTES = [
    *(b"\x00", b"\xff", b".", b"(", b"u", b"R", b"c", b"h\x05", b"\x86", b"}", b"]", b"q\x00", b'"', b"{"),
    *(b"X\xff\xff\xff\x7f", b"r\xff\xff\xff\xff", b"\x95" + b"\xff" * 8, b"I9\n", b"\x8b\xff\xff\xff\x7f"),
]


def mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    """A few bytes lost, doubled, moved, changed or cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 1, 4, 30, 500)))
        kind = rng.randrange(7)
        if kind == 0:
            data[start:stop] = bytes(byte ^ (1 << rng.randrange(8)) for byte in data[start:stop])
        elif kind == 1:
            del data[start:stop]
        elif kind == 2:
            data[start:start] = data[start:stop]
        elif kind == 3:
            data[start:start] = rng.choice(_ODD_BYTES)
        elif kind == 4:
            data[start:stop] = rng.randbytes(stop - start)
        elif kind == 5:
            place = rng.randrange(len(data) + 1)
            data[start:stop] = data[place : place + stop - start]
        elif rng.random() < 0.3:
            del data[start:]
    return bytes(data)


def mutated_document(rng: random.Random, document: dict[str, Any]) -> bytes:
    """Some values of a document are others, or gone; written as JSON or as a pickle of any protocol."""
    document = pickle.loads(pickle.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        _change(rng, document)
    with contextlib.suppress(ValueError):  # parts in a circle, which JSON cannot have
        if rng.random() < 0.5:
            return json.dumps(document, default=str).encode("utf-8", "surrogatepass")
    return pickle.dumps(document, rng.randrange(6))


def _change(rng: random.Random, document: Any) -> None:
    """Somewhere below: a value is another, or goes, or is shared with another place."""
    place: Any = document
    for _ in range(rng.randint(0, 6)):
        inner = [value for value in _values(place) if isinstance(value, dict | list) and value]
        if not inner:
            break
        place = rng.choice(inner)
    if not place:
        return
    key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
    kind = rng.random()
    if kind < 0.6:
        place[key] = rng.choice(_ODD_VALUES)
    elif kind < 0.8:
        del place[key]
    else:
        place[key] = place[rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))]


def _values(place: Any) -> list[Any]:
    return list(place.values()) if isinstance(place, dict) else list(place)
