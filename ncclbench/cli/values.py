"""Parsers of option values: text and the option's name to the value, or one line saying what is wrong.

``Parse`` is also the shape of ``ncclbench.units``' parsers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ncclbench.errors import RequestError
from ncclbench.names import lookup, unknown
from ncclbench.plan.environments import ArmEnvironment, parse_environment
from ncclbench.plan.model import Injection
from ncclbench.tables.topologies import TOPOLOGIES, Cut, parse_topology
from ncclbench.units import parse_percent, parse_seconds

Parse = Callable[[str, str], Any]

_WHOLE = re.compile(r"-?[0-9]{1,19}")


def whole(least: int, most: int = 1_000_000) -> Parse:
    """A whole number from ``least`` to ``most``."""

    def parse(text: str, option: str) -> int:
        # Read is what was looked at: strip() takes away what int() stumbles over.
        stripped = text.strip()
        if not _WHOLE.fullmatch(stripped):
            raise RequestError(f"{option} {text!r} is not a whole number: write it like {max(least, 1)}")
        number = int(stripped)
        if not least <= number <= most:
            raise RequestError(f"{option} {number} is out of range: take {least} to {most:,}")
        return number

    return parse


LONGEST_DEADLINE_S = 60.0


def deadline(text: str, option: str) -> float:
    """Of a cell, seconds: long enough for processes to be scheduled, and no longer than anybody waits."""
    seconds = parse_seconds(text, option)
    if not 0.2 <= seconds <= LONGEST_DEADLINE_S:
        raise RequestError(f"{option} {text} is out of range: take 200ms to {LONGEST_DEADLINE_S:.0f}s")
    return seconds


def environments(text: str, option: str) -> dict[str, ArmEnvironment]:
    """Environments by name, of ``NAME=PATH`` separated by semicolons."""
    found: dict[str, ArmEnvironment] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, environment = parse_environment(entry, option)
        if name in found:
            raise RequestError(f"{option} names {name} twice")
        found[name] = environment
    return found


def one_of(words: Collection[str]) -> Parse:
    """One word of a few."""

    def parse(text: str, option: str) -> str:
        if text not in words:
            raise unknown(f"{option} value", text, words)
        return text

    return parse


def names(table: Mapping[str, Any], find: Callable[[str], str]) -> Parse:
    """Names of one table, distinct, or ``all``; ``find`` gives the table's name for one as typed."""

    def parse(text: str, option: str) -> tuple[str, ...]:
        if text.strip() == "all":
            return tuple(table)
        return _distinct([find(name) for name in separated(text, option)], option)

    return parse


def named(table: Mapping[str, Any], kind: str) -> Parse:
    """``names`` for a table without other spellings."""

    def find(name: str) -> str:
        lookup(table, kind, name)
        return name

    return names(table, find)


def topologies(text: str, option: str) -> tuple[Cut, ...]:
    """Cuts of the world, distinct; ``all`` is every topology that needs no parameters.

    The commas of a mesh's dimensions belong to it: ``world,mesh:dp=2,tp=4``.
    """
    entries: list[str] = []
    for entry in separated(text, option):
        if entry == "all":
            entries += [name for name, topology in TOPOLOGIES.items() if topology.alone]
        elif entries and entries[-1].startswith("mesh:") and "=" in entry and ":" not in entry:
            entries[-1] += f",{entry}"
        else:
            entries.append(entry)
    cuts = [cut for entry in entries for cut in parse_topology(entry)]
    _distinct([cut.name for cut in cuts], option)
    return tuple(cuts)


def yes_no(text: str, option: str) -> tuple[bool, ...]:
    """The forms to measure: ``no``, ``yes`` or both."""
    words = {"no": False, "yes": True}
    return tuple(words[word] for word in named(words, f"{option} value")(text, option))


def roots(text: str, option: str) -> tuple[int, ...] | None:
    """Ranks, or None for ``all``."""
    if text.strip() == "all":
        return None
    ranks = []
    for entry in separated(text, option):
        if not (entry.isascii() and entry.isdigit() and len(entry) < 10):
            raise RequestError(f"{option} {entry!r} is not a rank: write 0, a list like 0,1, or all")
        ranks.append(int(entry))
    return _distinct(ranks, option)


def margin(text: str, option: str) -> tuple[float, float]:
    """A fraction and microseconds, from ``3%,1us`` or one of the two."""
    ratio, time_us = 0.0, 0.0
    for entry in separated(text, option):
        if entry.endswith("%") and not ratio:
            ratio = parse_percent(entry, option)
        elif entry.endswith("s") and not time_us:
            time_us = parse_seconds(entry, option) * 1e6
        else:
            raise RequestError(f"{option} {text!r} is not a margin: write it like 3%, 1us or 3%,1us")
    return ratio, time_us


def text(value: str, option: str) -> str:
    """A text that is there and can be written anywhere.

    Raises:
        RequestError: it is empty, or holds bytes that are not UTF-8.
    """
    if not value:
        raise RequestError(f"{option} is empty: leave it out, or check the variable it was made of")
    try:
        # In a locale without UTF-8 Python keeps the bytes of an argument in disguise.
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise RequestError(f"{option} is not valid UTF-8: take other characters") from None


def path(value: str, option: str) -> str:
    """A path that can be written into a run and a page.

    Raises:
        RequestError: it is empty, or not UTF-8 in this locale.
    """
    if "\0" in value:
        raise RequestError(f"{option} {value!r} cannot be: no file can be called that")
    if text(value, option) != value:
        raise RequestError(f"{option} holds characters that this locale lacks: set LANG=C.UTF-8")
    return value


def injection(text: str, option: str) -> Injection:
    """What is slowed, where and by how much: ``gloo#2:all:10%``, ``nccl2:0,3:50us``."""
    parts = text.split(":")
    if len(parts) != 3 or not parts[0]:
        raise RequestError(f"{option} {text!r} is not ARM:RANKS:AMOUNT: write it like gloo#2:all:10%")
    arm, where, amount = parts
    fraction = parse_percent(amount, option) if amount.endswith("%") else None
    time_us = None if fraction is not None else parse_seconds(amount, option) * 1e6
    return Injection(arm, roots(where, option), time_us, fraction)


def slow_rank(text: str, option: str) -> tuple[int, float]:
    """A rank and the factor by which it is slowed: ``2:1.9``."""
    rank, colon, factor = text.partition(":")
    times = _factor(factor)
    if not colon or not re.fullmatch(r"[0-9]{1,9}", rank) or times is None:
        raise RequestError(f"{option} {text!r} is not RANK:FACTOR: write it like 2:1.9")
    return int(rank), times


def factor(text: str, option: str) -> float:
    """By how many times something takes longer: ``4`` or ``1.5``."""
    times = _factor(text)
    if times is None:
        raise RequestError(f"{option} {text!r} is not a number of at least 1: write it like 4 or 1.5")
    return times


def _factor(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) and float(text) >= 1 else None


def separated(text: str, option: str) -> list[str]:
    """The entries of a comma-separated list.

    Raises:
        RequestError: one of them is empty.
    """
    entries = [entry.strip() for entry in text.split(",")]
    if "" in entries:
        raise RequestError(f"{option} {text!r} has an empty entry: separate entries by single commas")
    return entries


def _distinct(entries: list[Any], option: str) -> tuple[Any, ...]:
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            raise RequestError(f"{option} names {entry} twice: name it once")
    return tuple(entries)
