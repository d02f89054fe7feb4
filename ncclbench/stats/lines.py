"""Lines of a run picked by kind and put together by what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ncclbench.store.model import Result

Kind = TypeVar("Kind")


def of_kind(results: Sequence[Result], kind: type[Kind]) -> list[Kind]:
    """Those of one kind, in their order."""
    return [line for line in results if isinstance(line, kind)]


def grouped(lines: Sequence[Kind], *names: str) -> dict[tuple[Any, ...], list[Kind]]:
    """Lines that agree in the named fields, in the order in which they first came."""
    groups: dict[tuple[Any, ...], list[Kind]] = {}
    for line in lines:
        groups.setdefault(tuple(getattr(line, name) for name in names), []).append(line)
    return groups
