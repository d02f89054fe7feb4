"""Looking a name up in a table: one error text for every unknown name in the project."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ncclbench.errors import RequestError

Entry = TypeVar("Entry")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, or None when nothing is near."""
    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def flat(name: str) -> str:
    """What is left of a name however it is written: AllReduce and ALL_REDUCE as all_reduce."""
    return name.lower().replace("_", "").replace("-", "")


def unknown(kind: str, name: str, known: Iterable[str]) -> RequestError:
    """The error for a name that no table has, with the nearest right one."""
    names = list(known)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
    return RequestError(f"unknown {kind} {name!r}: {hint}")


def lookup(table: Mapping[str, Entry], kind: str, name: str) -> Entry:
    """The entry called ``name``.

    Raises:
        RequestError: there is none; the message holds the nearest right name.
    """
    try:
        return table[name]
    except KeyError:
        raise unknown(kind, name, table) from None
