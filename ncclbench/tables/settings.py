"""SETTINGS: what may stand behind an arm's backend, so that it is another arm."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.tables.topologies import Groups, Placement

HIERARCHICAL = "hierarchical"
# Names in a plan's ``groups`` of the two tiers; no topology is called so.
TIER_OF_HOST, TIER_OF_LEADERS = "hierarchical@host", "hierarchical@leaders"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of an arm.

    Attributes:
        name: as typed behind the backend.
        description: what it changes, for ``ncclbench list``.
    """

    name: str
    description: str


_ENTRIES = (
    Setting(
        HIERARCHICAL,
        "all_reduce in two tiers: reduce in each host, all_reduce over their first ranks, broadcast in each",
    ),
)

SETTINGS: dict[str, Setting] = {entry.name: entry for entry in _ENTRIES}


def tiers(place: Placement) -> dict[str, Groups]:
    """The groups of a hierarchical arm: the ranks of each host, and the first rank of every host."""
    hosts = place.by_host()
    return {TIER_OF_HOST: hosts, TIER_OF_LEADERS: (tuple(ranks[0] for ranks in hosts),)}
