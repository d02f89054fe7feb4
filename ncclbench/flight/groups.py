"""What a recorder says of its process groups: ``pg_config`` and ``pg_status``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.flight.model import GroupStatus, Operation
from ncclbench.flight.pool import Pool, cleaned

MOST_RANKS = 1 << 20
_LISTED = re.compile(r"\[?[0-9,\s]*\]?")


class Members:
    """Lists of ranks, as text or as numbers; equal texts are read once for all dumps of a job."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...] | None] = {}
        self._shared: dict[tuple[int, ...], tuple[int, ...]] = {}

    def read(self, said: Any) -> tuple[int, ...] | None:
        """The ranks, or None where they are not listed."""
        if isinstance(said, str):
            if said not in self._known:
                self._known[said] = self._read(said)
            return self._known[said]
        if isinstance(said, list) and len(said) <= MOST_RANKS and all(_is_rank(rank) for rank in said):
            ranks = tuple(said)
            return self._shared.setdefault(ranks, ranks)
        return None

    def _read(self, text: str) -> tuple[int, ...] | None:
        if _LISTED.fullmatch(text) is None:
            return None
        found = re.findall(r"\d+", text)
        if len(found) > MOST_RANKS or any(len(number) > 7 for number in found):
            return None
        ranks = tuple(map(int, found))
        return self._shared.setdefault(ranks, ranks) if ranks and max(ranks) < MOST_RANKS else None


def read_groups(
    document: Mapping[Any, Any],
    operations: Sequence[Operation],
    name_of: Mapping[str, str],
    pool: Pool,
    members: Members,
) -> dict[str, GroupStatus]:
    """Groups by name: those that operations name, and those that the document lists besides.

    gloo lists all its groups as one without a name, with numbers of ranks in that group: it stands here
    under "", and says no more than that so many ranks there are at least.

    Args:
        document: of one recorder.
        operations: that were read of it.
        name_of: names by ``pg_id``.
        pool, members: shared by the dumps of a job.
    """
    words = {one.group: one.group_words for one in operations}
    ranks: dict[str, tuple[int, ...] | None] = dict.fromkeys(words)
    config = document.get("pg_config")
    for key, said in config.items() if isinstance(config, dict) else ():
        if isinstance(key, str) and isinstance(said, dict):
            name = pool.words[key]
            ranks[name] = members.read(said.get("ranks"))
            description = said.get("desc")
            words.setdefault(name, cleaned(description) if isinstance(description, str) else "")
    counts = _counts(document.get("pg_status"), name_of)
    return {
        name: GroupStatus(words[name], listed, *counts.get(name, (None, None, None)))
        for name, listed in ranks.items()
    }


def _counts(status: Any, name_of: Mapping[str, str]) -> dict[str, tuple[int | None, int | None, int | None]]:
    found = {}
    for number, said in status.items() if isinstance(status, dict) else ():
        name = name_of.get(str(number)) if isinstance(number, str | int) else None
        if name is not None and isinstance(said, dict):
            found[name] = (
                _count(said.get("last_enqueued_collective")),
                _count(said.get("last_started_collective")),
                _count(said.get("last_completed_collective")),
            )
    return found


def _count(said: Any) -> int | None:
    """A sequence number; -1, which stands for none yet and for not looked at, is None."""
    if isinstance(said, str) and re.fullmatch(r"[0-9]{1,18}", said):
        return int(said)
    return said if type(said) is int and 0 <= said < 1 << 63 else None


def _is_rank(said: Any) -> bool:
    return type(said) is int and 0 <= said < MOST_RANKS
