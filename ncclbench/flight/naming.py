"""The rank in the name of a file, where the dump in it does not tell."""

from __future__ import annotations

import re
from pathlib import PurePath

MOST_RANKS = 1 << 20

# "rank" and a number: comm_lib_trace_rank_3, nccl_trace_rank_3, rank7-gloo.json, rank=7; not local_rank_3.
_RANK = re.compile(r"(?<!local)(?<!local[_\-.])rank[_\-.=]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(r"local[_\-.]?rank", re.IGNORECASE)
# torch writes <prefix><rank>, whatever the prefix.
_LAST = re.compile(r"(?<!\d)(\d{1,7})$")
_ENDINGS = re.compile(
    r"(?:[._\-](?:json|pickle|pkl|bin|dump|dmp|fr|txt|gz|out|trace|gloo|nccl2|nccl-lazy|nccl-legacy|nccl))+$",
    re.IGNORECASE,
)


def rank_of(source: str) -> int | None:
    """The rank that the name of a file tells, or the name of its folder (``rank7/dump.json``)."""
    path = PurePath(source)
    stem = _ENDINGS.sub("", path.name)
    match = _RANK.search(path.name)
    if match is None and _LOCAL.search(path.name) is None:
        match = _LAST.search(stem)
    match = match or _RANK.fullmatch(path.parent.name)
    if match is None or int(match[1]) >= MOST_RANKS:
        return None
    return int(match[1])
