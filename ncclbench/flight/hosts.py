"""Names of hosts for ranks: from the files that launchers take, and from Slurm's lists."""

from __future__ import annotations

import re
from itertools import product

from ncclbench.errors import RequestError

# More than any machine has; a list like n[1-999999999] would fill the memory.
MOST_HOSTS = 1 << 17
MOST_RANKS = 1 << 20
_MOST_LENGTH = 253
# A file of all of them, with what stands behind the names.
_MOST_LETTERS = 32 << 20

_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_PART = re.compile(r"([A-Za-z0-9_.\-]*)(?:\[([0-9,\-]*)\])?")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_SLOTS = re.compile(r"slots?\s*=\s*([0-9]{1,7})", re.IGNORECASE)
_OPTION = re.compile(r"[a-z_\-]+\s*=\s*[^\s,]+", re.IGNORECASE)
# MPICH's way to write slots.
_COLON = re.compile(r"([^\s:\[\]]+(?:\[[0-9,\-]*\])?):([0-9]{1,7})")


def parse_hosts(text: str, ranks_per_host: int) -> dict[int, str]:
    """The name of each rank's host, ranks being placed host by host in the order of the text.

    Args:
        text: a hostfile ("name", "name slots=8", "name:8"; # begins a comment), or a list as Slurm writes it
            ("gpu[001-004,7],login1"), or both: a line may hold a list, with slots too ("a:2,b:2"). Where a
            name stands on several lines and no line says how many slots it has, each line is of one rank, as
            ``srun hostname`` prints it.
        ranks_per_host: of lines that do not say; of those that say more, too, as slots may stay empty.

    Raises:
        RequestError: no name in it, a name that no host can have, or more than any machine has.
    """
    if ranks_per_host < 1:
        raise RequestError(f"--ranks-per-host {ranks_per_host}: a host holds at least one rank")
    return _filled(_named(text), ranks_per_host)


def place_ranks(text: str, ranks_per_host: int | None, nranks: int | None) -> dict[int, str]:
    """The name of each rank's host; where lines do not say how many ranks a host has, all have as many.

    Args:
        text: as ``parse_hosts`` takes it.
        ranks_per_host: where it was told.
        nranks: world size; None where it is not known.

    Raises:
        RequestError: it is no list of hosts, or there is no telling how the ranks are placed on its hosts.
    """
    if ranks_per_host is not None:
        return parse_hosts(text, ranks_per_host)
    named = _named(text)
    told = [slots for _, slots in named if slots is not None]
    rest = len(named) - len(told)
    if nranks is None:
        return _filled(named, None)
    if _is_per_rank(named) or (told and not rest):
        total = sum(told) if told else len(named)
        # A line more for a rank is that of one without a dump.
        if total < nranks or (told and total > nranks):
            what = "slots" if told else "lines, one for each rank"
            raise RequestError(
                f"--hosts has {total} {what}, and there are {nranks} ranks: say how they are placed "
                "with --ranks-per-host N, or how many there were with --world-size N"
            )
        return _filled(named, None)
    left = nranks - sum(told)
    if not told and left <= rest:
        return _filled(named, 1)
    if left < rest or left % rest:
        raise RequestError(
            f"{nranks} ranks on {len(named)} hosts: say how they are placed with --ranks-per-host N"
        )
    return _filled([(name, slots or left // rest) for name, slots in named], None)


def _named(text: str) -> list[tuple[str, int | None]]:
    """The hosts in the order of the text, each with its slots where it says so.

    Raises:
        RequestError: there is none, or what no host can be called.
    """
    if len(text) > _MOST_LETTERS:
        raise RequestError("--hosts: the file is larger than any list of hosts: name a hostfile")
    found: list[tuple[str, int | None]] = []
    has_lines = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if line:
            has_lines = True
            found += _line(line, number, MOST_HOSTS - len(found))
    if not has_lines:
        raise RequestError("--hosts: there is no host in it: give one name a line, or a list like gpu[01-16]")
    if not found:
        raise RequestError("--hosts: there is no host in it with any slot")
    return found


def _filled(named: list[tuple[str, int | None]], most: int | None) -> dict[int, str]:
    """Ranks host by host: as many as its slots and no more than ``most``, which hosts without slots have."""
    is_per_rank = _is_per_rank(named)
    hosts: list[str] = []
    for name, slots in named:
        count = 1 if is_per_rank else min(slots or most or 1, most or MOST_RANKS)
        hosts += [name] * count
        if len(hosts) > MOST_RANKS:
            raise RequestError(f"--hosts: more than {MOST_RANKS:,} ranks: are names and slots right?")
    return dict(enumerate(hosts))


def expand(text: str, most: int = MOST_HOSTS) -> list[str]:
    """The names in a list as Slurm writes it, in its order; zeros in front are kept.

    Raises:
        RequestError: not such a list, or more than ``most`` names.
    """
    names: list[str] = []
    for part in _split(text):
        names += _expand_one(part, most - len(names))
    return names


def _line(line: str, number: int, most: int) -> list[tuple[str, int | None]]:
    """The hosts of one line, each with its slots where it says so; none without any slot."""
    listed, *options = re.split(r"\s+(?![^\[]*\])", re.sub(r"\s*([,=])\s*", r"\1", line))
    slots: int | None = None
    for option in options:
        found = _SLOTS.fullmatch(option)
        if found is not None:
            slots = int(found[1])
        elif _OPTION.fullmatch(option) is None:
            raise RequestError(
                f"--hosts, line {number}: {option[:40]!r} is neither a comment nor like slots=8: "
                "one host, or one list, a line"
            )
    if slots == 0:
        return []
    hosts: list[tuple[str, int | None]] = []
    for part in _split(listed):
        colon = _COLON.fullmatch(part)
        own = int(colon[2]) or None if colon is not None else slots
        hosts += [(name, own) for name in expand(colon[1] if colon is not None else part, most - len(hosts))]
    return hosts


def _is_per_rank(named: list[tuple[str, int | None]]) -> bool:
    """Whether each name stands for one rank: names come again, and none has slots."""
    return all(slots is None for _, slots in named) and len({name for name, _ in named}) < len(named)


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket."""
    if text.count("[") != text.count("]"):
        raise RequestError(f"--hosts: a bracket is not closed in {text[:60]!r}")
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _expand_one(text: str, most: int) -> list[str]:
    """All names of an expression like ``rack[1-2]node[01-16]``."""
    pieces: list[list[str]] = []
    count, place = 1, 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None or match.end() == place:
            raise RequestError(f"--hosts: {text[:60]!r} is no name of a host, and no list like gpu[01-16]")
        place = match.end()
        pieces.append([match[1]])
        if match[2] is not None:
            pieces.append(_numbers(match[2], most // count, text))
            count *= len(pieces[-1])
    if count > most:
        raise _too_many()
    names = ["".join(parts) for parts in product(*pieces)]
    if not names or not _NAME.fullmatch(names[0]) or max(map(len, names)) > _MOST_LENGTH:
        raise RequestError(f"--hosts: {text[:60]!r} is no name of a host")
    return names


def _numbers(text: str, most: int, whole: str) -> list[str]:
    """The numbers between two brackets, as they are to be printed."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise RequestError(f"--hosts: {part[:40]!r} in {whole[:60]!r} is no range: write it like 001-016")
        first = match[1]
        last = int(match[2] or first)
        if last - int(first) >= most - len(numbers):
            raise _too_many()
        numbers += [str(number).zfill(len(first)) for number in range(int(first), last + 1)]
    return numbers


def _too_many() -> RequestError:
    return RequestError(f"--hosts: more than {MOST_HOSTS:,} hosts: is a range in it too long?")
