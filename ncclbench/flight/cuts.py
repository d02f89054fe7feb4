"""A job's process groups as topologies: which groups stand beside each other, and what they called.

Groups that were made for one purpose (the eight tensor-parallel groups of a mesh) are several in a dump and
one topology here, since they run at the same time: groups of one size that share no rank, under one
description or with the same calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ncclbench.flight.calls import Call, NoCase, calls_of
from ncclbench.flight.join import Group, Joined
from ncclbench.tables.topologies import WORLD, Cut, Groups, Placement
from ncclbench.units import rank_ranges

# What torch calls a group to which nobody gave a description.
_NAMELESS = ("", "undefined", "default_pg")
_LONGEST_NAME = 60
PREFIX = "dump:"


@dataclass(slots=True)
class Team:
    """Process groups that run at the same time, and what each of them called.

    Attributes:
        name: of the topology, behind ``dump:``.
        words: the description that its groups have.
        groups: global ranks of each in the job; empty where a member is not known.
        calls: how often each call was made in one of them.
        others: calls of which no case is made.
        is_world: it is one group of all ranks of the job.
        ranks: members of any of its groups.
    """

    name: str
    words: str
    groups: list[tuple[int, ...]]
    calls: Counter[Call] = field(default_factory=Counter)
    others: Counter[NoCase] = field(default_factory=Counter)
    is_world: bool = False
    ranks: set[int] = field(default_factory=set)

    @property
    def nbytes(self) -> int:
        """Per rank, of all its calls."""
        return sum(call.nbytes * count for call, count in self.calls.items())

    def cut(self, nranks: int, job_ranks: int) -> Cut:
        """The topology on a world of so many ranks; where its groups do not exist there it says why.

        Args:
            nranks: here.
            job_ranks: in the job.
        """
        if self.is_world and nranks == job_ranks:
            return WORLD
        return Cut(f"{PREFIX}{self.name}", self._placing(job_ranks))

    def _placing(self, job_ranks: int) -> Callable[[Placement], Groups | str]:
        def placed(place: Placement) -> Groups | str:
            inside = tuple(group for group in self.groups if max(group) < place.nranks)
            if inside:
                return inside
            if not self.groups:
                return f"{PREFIX}{self.name}: its members are not all known: give the dumps of all ranks"
            ranks = rank_ranges(self.groups[0])
            return (
                f"{PREFIX}{self.name}: its group of {ranks} is of a job of {job_ranks} ranks, here are "
                f"{place.nranks}: --topologies world measures its calls on these"
            )

        return placed

    def outside(self, nranks: int) -> int:
        """How many of its groups have ranks that a world of so many has not."""
        return sum(max(group) >= nranks for group in self.groups)


def teams_of(joined: Joined, job_ranks: int) -> list[Team]:
    """The teams of a job, those that move most bytes first.

    Args:
        joined: its operations by group.
        job_ranks: world size of the job.
    """
    # Who was not seen may be a member too, where a dump is missing or begins late.
    is_whole = not joined.missing and not joined.wrapped
    teams: list[Team] = []
    by_members: dict[tuple[int, ...], Team] = {}
    names: set[str] = set()
    for group in joined.groups:
        calls, others = calls_of(group)
        members = group.members if group.is_known or is_whole else ()
        twin = by_members.get(members) if members else None
        if twin is not None:
            # Of the same ranks: what both called was called one after the other.
            twin.calls += calls
            twin.others += others
            continue
        beside = _beside(teams, group, members, calls)
        if beside is not None:
            beside.groups.append(members)
            beside.ranks.update(members)
            # At the same time: one of them tells how often.
            beside.calls |= calls
            beside.others += others
            continue
        name = _name(group, names)
        made = Team(name, group.words, [members] if members else [], calls, others)
        made.ranks.update(members)
        made.is_world = members == tuple(range(job_ranks))
        teams.append(made)
        if members:
            by_members[members] = made
    for team in teams:
        team.groups.sort()
    return sorted(teams, key=lambda team: -team.nbytes)


def _beside(
    teams: list[Team], group: Group, members: tuple[int, ...], calls: Mapping[Call, int]
) -> Team | None:
    """The team that a group belongs to; None where it begins one."""
    if not members:
        return None
    for team in teams:
        is_one = team.words == group.words and (
            group.words not in _NAMELESS or team.calls.keys() == calls.keys()
        )
        if is_one and team.groups and len(team.groups[0]) == len(members) and team.ranks.isdisjoint(members):
            return team
    return None


def _name(group: Group, taken: set[str]) -> str:
    """What its topology is called: its description, else its name, as a row can hold it."""
    words = group.name if group.words in ("", "undefined") else group.words
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)[:_LONGEST_NAME].strip("_") or "group"
    name, count = plain, 1
    while name in taken:
        count += 1
        name = f"{plain}.{count}"
    taken.add(name)
    return name
