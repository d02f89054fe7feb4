"""What ``ncclbench groups`` can find out: parts, ways of making a group, orders of calling in two groups."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.errors import RequestError
from ncclbench.tables.topologies import Cut, Groups, Placement, parse_topology

PARTS = {
    "costs": "what so many groups cost: time until they have worked, communicators, memory, what stays",
    "together": "collectives in several groups at the same time against each of them alone",
    "crossed": "ranks in two groups that call in one order or in another: completed, deadlocked or raised",
}

# What is called in crossed groups: nobody leaves it before all have come, so that an order can deadlock.
CROSSED_OP = "all_reduce"

# Those whose ranks may hang for good: they get processes of their own, which are killed.
IN_CELLS = ("crossed",)

MAKINGS = {
    "new_group": "a group of its own",
    "split_group": "split from a group of all ranks, where the backend can",
}

# When a rank's memory, files and connections are read.
MOMENTS = ("before", "made", "used", "destroyed")


@dataclass(frozen=True, slots=True)
class IssueOrder:
    """How ranks that are in two groups call a collective in each.

    Attributes:
        name: as typed after ``--orders``.
        description: in words.
        crossed: some ranks begin with the other group.
        async_op: both calls are issued before either is waited for.
    """

    name: str
    description: str
    crossed: bool
    async_op: bool

    @property
    def safe(self) -> bool:
        """It ends with every backend. Of calls in another order torch and NCCL promise nothing."""
        return not self.crossed


_ENTRIES = (
    IssueOrder("same", "every rank calls in its groups in the same order", False, False),
    IssueOrder("same-async", "the same order, both issued and then waited for", False, True),
    IssueOrder("crossed", "some ranks begin with the other group", True, False),
    IssueOrder(
        "crossed-async", "some begin with the other group, both issued and then waited for", True, True
    ),
)

ISSUE_ORDERS: dict[str, IssueOrder] = {entry.name: entry for entry in _ENTRIES}


def _singletons(place: Placement) -> Groups:
    return tuple((rank,) for rank in range(place.nranks))


SINGLETON = Cut("singleton", _singletons)


def parse_kind(text: str) -> Cut:
    """Which ranks are in the groups that ``costs`` makes: a topology that is one cut, or singleton.

    Raises:
        RequestError: no such topology, or one that stands for several cuts.
    """
    if text == SINGLETON.name:
        return SINGLETON
    cuts = parse_topology(text)
    if len(cuts) > 1:
        names = ", ".join(cut.name for cut in cuts)
        raise RequestError(f"--kind {text} stands for {len(cuts)} cuts: take one of {names}")
    return cuts[0]
