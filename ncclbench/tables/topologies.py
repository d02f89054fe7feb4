"""TOPOLOGIES: how the ranks of a job are cut into process groups that run at the same time.

A cut is a list of groups of one size that share no rank, so that a case has one group size and every rank one
part in it. What cannot be cut so says why, and its cases are skipped with that reason.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclbench.errors import RequestError
from ncclbench.names import unknown
from ncclbench.units import count_text, format_memory

# Global ranks of each group, in group order.
Groups = tuple[tuple[int, ...], ...]

_MOST_PARTS = 1 << 20
_LARGEST_FILE_BYTES = 16 << 20
# As the lines of a run can hold it.
_LONGEST_NAME = 100
# Of what stands in a file, in an error.
_LONGEST_QUOTE = 40


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ranks of a job are.

    Attributes:
        hosts: number of its host, by rank; hosts are numbered in the order of their first ranks.
    """

    hosts: tuple[int, ...]

    @classmethod
    def in_blocks(cls, nranks: int, local_ranks: int) -> Placement:
        """As most launchers place: host after host, ``local_ranks`` on each."""
        return cls(tuple(rank // max(1, local_ranks) for rank in range(nranks)))

    @property
    def nranks(self) -> int:
        """World size."""
        return len(self.hosts)

    def by_host(self) -> Groups:
        """The ranks of each host."""
        found: dict[int, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            found.setdefault(host, []).append(rank)
        return tuple(tuple(ranks) for ranks in found.values())


@dataclass(frozen=True, slots=True)
class Cut:
    """One topology as it was asked for, parameters filled in.

    Attributes:
        name: as it stands on every row: the topology with its parameters, no space, no slash.
        groups: of a placement; a text says why there are none.
        mesh: names and sizes of the dimensions where it is one of a device mesh's.
    """

    name: str
    groups: Callable[[Placement], Groups | str]
    mesh: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to cut the world into groups.

    Attributes:
        name: as typed after ``--topologies``.
        description: which ranks talk to each other.
        parse: what is typed behind its colon ("" for nothing) to the cuts that it stands for. Raises
            RequestError.
        parameters: what may or must stand behind the colon, as help shows it; None takes none.
        alone: it can be typed without parameters.
    """

    name: str
    description: str
    parse: Callable[[str], tuple[Cut, ...]]
    parameters: str | None = None
    alone: bool = True


def _world(place: Placement) -> Groups:
    return (tuple(range(place.nranks)),)


def _node(place: Placement) -> Groups | str:
    hosts = place.by_host()
    sizes = sorted({len(ranks) for ranks in hosts})
    if len(sizes) > 1:
        return f"node: hosts have {sizes[0]} to {sizes[-1]} ranks, and groups of a cut have one size"
    return hosts


def _cross_node(place: Placement) -> Groups | str:
    hosts = place.by_host()
    if len(hosts) == 1:
        return "cross-node: all ranks are on one host"
    most = max(map(len, hosts))
    if min(map(len, hosts)) < most:
        return f"cross-node: some hosts have fewer than {most} ranks, so that some rails lack an end"
    return tuple(zip(*hosts, strict=True))


def _pairs(place: Placement) -> Groups | str:
    if place.nranks % 2:
        return f"pairs: {count_text(place.nranks, 'rank is', 'ranks are')} an odd number"
    return tuple((rank, rank + 1) for rank in range(0, place.nranks, 2))


def _ring(place: Placement) -> Groups | str:
    if place.nranks % 2 or place.nranks < 4:
        return f"ring: takes an even number of at least 4 ranks, there are {place.nranks}"
    between = [(rank, rank + 1) for rank in range(1, place.nranks - 1, 2)]
    return ((0, place.nranks - 1), *between)


def _halves(place: Placement) -> Groups | str:
    if place.nranks % 2:
        return f"halves: {count_text(place.nranks, 'rank is', 'ranks are')} an odd number"
    middle = place.nranks // 2
    return (tuple(range(middle)), tuple(range(middle, place.nranks)))


def _strided(parts: int) -> Callable[[Placement], Groups | str]:
    def groups(place: Placement) -> Groups | str:
        if place.nranks % parts:
            return (
                f"strided: {count_text(place.nranks, 'rank does', 'ranks do')} not divide into {parts} groups"
            )
        return tuple(tuple(range(first, place.nranks, parts)) for first in range(parts))

    return groups


def _mesh_groups(dims: Sequence[tuple[str, int]], along: int) -> Callable[[Placement], Groups | str]:
    """Groups along one dimension of a mesh whose last dimension changes fastest, as torch lays it out."""
    shape = [size for _, size in dims]
    stride = math.prod(shape[along + 1 :])
    size = shape[along]

    def groups(place: Placement) -> Groups | str:
        if math.prod(shape) != place.nranks:
            return f"mesh: {'x'.join(map(str, shape))} is {math.prod(shape)} ranks, there are {place.nranks}"
        firsts = (rank for rank in range(place.nranks) if rank // stride % size == 0)
        return tuple(tuple(first + step * stride for step in range(size)) for first in firsts)

    return groups


def _plain(name: str, groups: Callable[[Placement], Groups | str]) -> Callable[[str], tuple[Cut, ...]]:
    def parse(parameters: str) -> tuple[Cut, ...]:
        if parameters:
            raise RequestError(f"topology {name} takes no parameters: write it without {parameters!r}")
        return (Cut(name, groups),)

    return parse


def _parse_strided(parameters: str) -> tuple[Cut, ...]:
    parts = parameters or "2"
    if not re.fullmatch(r"[0-9]{1,7}", parts) or not 2 <= int(parts) <= _MOST_PARTS:
        raise RequestError(
            f"topology strided:{parameters!s} is not strided:N: take a number of groups from 2"
        )
    return (Cut(f"strided:{int(parts)}", _strided(int(parts))),)


def _parse_mesh(parameters: str) -> tuple[Cut, ...]:
    """``dp=2,tp=4``, or ``dp=2,tp=4@tp`` for one of its dimensions alone."""
    shape, at, chosen = parameters.partition("@")
    dims: list[tuple[str, int]] = []
    for entry in shape.split(","):
        found = re.fullmatch(r"([A-Za-z][A-Za-z0-9_]{0,15})=([0-9]{1,7})", entry)
        if found is None or not 1 <= int(found[2]) <= _MOST_PARTS:
            raise RequestError(
                f"topology mesh:{parameters} is not mesh:NAME=SIZE,...: write it like mesh:dp=2,tp=4"
            )
        dims.append((found[1], int(found[2])))
    names = [name for name, _ in dims]
    for name, count in Counter(names).items():
        if count > 1:
            raise RequestError(
                f"topology mesh:{parameters} has two dimensions {name}: give each a name of its own"
            )
    if at and chosen not in names:
        raise unknown("dimension of the mesh", chosen, names)
    text = ",".join(f"{name}={size}" for name, size in dims)
    if len(f"mesh:{text}@{max(names, key=len)}") > _LONGEST_NAME:
        raise RequestError(
            f"topology mesh:{_quoted(text)} has a name of more than {_LONGEST_NAME} characters: "
            "take shorter names, and leave out dimensions of 1"
        )
    return tuple(
        Cut(f"mesh:{text}@{name}", _mesh_groups(dims, number), tuple(dims))
        for number, name in enumerate(names)
        if chosen in ("", name)
    )


def _parse_file(parameters: str) -> tuple[Cut, ...]:
    """Groups from a text file: one a line, ranks and ranges of ranks: ``0-3,8 10``."""
    if not parameters:
        raise RequestError("topology file: names no file: write it like file:groups.txt")
    path = Path(parameters)
    groups = _listed(_lines(path), path)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem) or "groups"
    if len(f"file:{name}") > _LONGEST_NAME:
        raise RequestError(
            f"{_quoted(path.name)} has a name of more than {_LONGEST_NAME - len('file:')} characters, and "
            "rows are called by it: name the file shorter"
        )

    def placed(place: Placement) -> Groups | str:
        largest = max(map(max, groups))
        if largest >= place.nranks:
            return f"{name}: names rank {largest}, there are {place.nranks} ranks"
        return groups

    return (Cut(f"file:{name}", placed),)


def _parse_dump(parameters: str) -> tuple[Cut, ...]:
    """One of a job's own groups by name; which ranks it has, ``--cases-from`` puts in its place."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", parameters):
        raise RequestError(
            f"topology dump:{_quoted(parameters)} is no dump:GROUP: write it as plan --cases-from shows it"
        )
    reason = f"dump:{parameters}: the groups of a job come from its dumps: name them with --cases-from"
    return (Cut(f"dump:{parameters}", lambda place: reason),)


def _lines(path: Path) -> list[str]:
    """What a file of groups holds.

    Raises:
        RequestError: it is no text file, cannot be read, or is too large.
    """
    try:
        # Before it is opened: opening a pipe waits for who writes to it. Unlike Path's, it never raises.
        if os.path.exists(path) and not os.path.isfile(path):
            what = "folder" if os.path.isdir(path) else "device or a pipe"
            raise RequestError(f"{path} is a {what}: name a file with a group a line")
        with path.open("rb") as file:
            # Its size is not asked for: files of /proc have none.
            content = file.read(_LARGEST_FILE_BYTES + 1)
        if len(content) > _LARGEST_FILE_BYTES:
            raise RequestError(
                f"{path} has more than {format_memory(_LARGEST_FILE_BYTES)}: that is no list of groups"
            )
        # Editors of another system put a mark in front.
        return content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read ({error.strerror}): name a file with a group a line"
        ) from None
    except UnicodeError:
        raise RequestError(f"{path} is no text: write a group a line, like 0-3") from None
    except ValueError:  # a NUL in it
        raise RequestError(f"{str(path)!r} cannot be read: no file can be called that") from None


def _listed(lines: Sequence[str], path: Path) -> Groups:
    """The groups in the lines of a file, none of whose ranks is in two."""
    groups, room = [], _MOST_PARTS
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            groups.append(_ranks(text, f"{path}, line {number}", room))
            room -= len(groups[-1])
    _check_listed(tuple(groups), path)
    return tuple(groups)


def _quoted(text: str) -> str:
    """As it can stand in an error, however long it is."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def _ranks(text: str, where: str, room: int) -> tuple[int, ...]:
    """The ranks of one line.

    Args:
        room: how many there may be: of so many ranks some would be there twice, and no memory holds all that
            short lines can name.
    """
    ranks: list[int] = []
    for entry in re.split(r"[\s,]+", text.strip(" ,")):
        found = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", entry)
        if found is None:
            raise RequestError(f"{where}: {_quoted(entry)!r} is no rank: write ranks and ranges, like 0-3,8")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last >= _MOST_PARTS:
            raise RequestError(f"{where}: {entry!r} is no range of ranks: write it like 0-3")
        ranks += range(first, last + 1)
        if len(ranks) > room:
            raise RequestError(
                f"{where}: more than {_MOST_PARTS:,} ranks up to here, so that some are there twice: "
                "the groups of a cut share no rank"
            )
    return tuple(sorted(ranks))


def _check_listed(groups: Groups, path: Path) -> None:
    if not groups:
        raise RequestError(f"{path} names no groups: write one a line, like 0-3")
    rank, count = Counter(rank for group in groups for rank in group).most_common(1)[0]
    if count > 1:
        raise RequestError(f"{path} names rank {rank} {count} times: the groups of a cut share no rank")
    sizes = sorted({len(group) for group in groups})
    if len(sizes) > 1:
        raise RequestError(
            f"{path} has groups of {sizes[0]} to {sizes[-1]} ranks: groups of a cut have one size, "
            "name those of another size in another file"
        )


_ENTRIES = (
    Topology("world", "all ranks in one group", _plain("world", _world)),
    Topology("node", "the ranks of each host", _plain("node", _node)),
    Topology(
        "cross-node",
        "the ranks with the same place on every host (rails)",
        _plain("cross-node", _cross_node),
    ),
    Topology("pairs", "neighbours: 0 and 1, 2 and 3, and so on", _plain("pairs", _pairs)),
    Topology(
        "ring",
        "the other neighbours: 1 and 2, 3 and 4, the last and 0; with pairs every link of a ring",
        _plain("ring", _ring),
    ),
    Topology("halves", "the lower and the upper half of the ranks", _plain("halves", _halves)),
    Topology(
        "strided",
        "every N-th rank, N groups: strided:N, 2 if N is not given",
        _parse_strided,
        parameters=":N [2]",
    ),
    Topology(
        "mesh",
        "along each dimension of a torch DeviceMesh: mesh:dp=2,tp=4, or along one: mesh:dp=2,tp=4@tp",
        _parse_mesh,
        parameters=":NAME=SIZE,...[@NAME]",
        alone=False,
    ),
    Topology(
        "file",
        "groups from a file, one a line, like 0-3,8: file:PATH",
        _parse_file,
        parameters=":PATH",
        alone=False,
    ),
    Topology(
        "dump",
        "groups of a job, from its flight recorder dumps: dump:GROUP, with --cases-from",
        _parse_dump,
        parameters=":GROUP",
        alone=False,
    ),
)

TOPOLOGIES: dict[str, Topology] = {entry.name: entry for entry in _ENTRIES}
(WORLD,) = TOPOLOGIES["world"].parse("")


def parse_topology(text: str) -> tuple[Cut, ...]:
    """The cuts that one entry of ``--topologies`` stands for.

    Raises:
        RequestError: no such topology, or parameters that it does not take.
    """
    name, colon, parameters = text.partition(":")
    if name == "hierarchical":
        raise RequestError(
            "hierarchical is a way to do all_reduce on all ranks, so it is an arm: "
            "--arms 'gloo; gloo hierarchical'"
        )
    if name not in TOPOLOGIES:
        raise unknown("topology", name, TOPOLOGIES)
    entry = TOPOLOGIES[name]
    if not colon and not entry.alone:
        raise RequestError(f"topology {name} takes parameters: write it as {name}{entry.parameters}")
    return entry.parse(parameters)
