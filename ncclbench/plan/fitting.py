"""What becomes of a form of an operation on the ranks there are: groups, sizes, or why it is not measured."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.plan.model import Case, Device
from ncclbench.tables.backends import Backend
from ncclbench.tables.collectives import Collective, Layout
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.topologies import Cut, Groups


@dataclass(frozen=True, slots=True)
class Room:
    """Memory on a rank's device.

    Attributes:
        rotation_bytes: what the slots of a case should exceed together.
        most_bytes: of all of a case; None where unknown.
        shortage: why a case that needs more is skipped.
        backends: that run in it, with copies of their own.
    """

    rotation_bytes: int
    most_bytes: int | None
    shortage: str
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A topology on the ranks there are: its groups, or why it has none."""

    cut: Cut
    found: Groups | str

    @property
    def groups(self) -> Groups:
        """Global ranks of each group; none where the topology has none here."""
        return () if isinstance(self.found, str) else self.found

    @property
    def size(self) -> int:
        """Ranks in each group; 1 where there are none."""
        return len(self.groups[0]) if self.groups else 1

    @property
    def refusal(self) -> str | None:
        """Why it has no groups here; None where it has."""
        return self.found if isinstance(self.found, str) else None


@dataclass(frozen=True, slots=True)
class Sized:
    """One size asked for, trimmed to whole elements per rank; ``reason`` where it holds none."""

    nbytes: int
    count: int
    layout: Layout | None
    reason: str | None


def refusal_of(entry: Collective, form: Case, device: Device) -> str | None:
    """Why this form cannot be measured at any size; None where it can."""
    if form.root is not None and form.root >= form.nranks:
        # One reason for all roots: it is told once, and rows name theirs.
        return f"{form.topology} has groups of {form.nranks} ranks, and none has the root's number"
    if form.nranks < entry.least_ranks:
        return f"{entry.name} needs at least {entry.least_ranks} ranks"
    if device not in MODES[form.mode].devices:
        return f"{form.mode} needs CUDA"
    if form.in_place not in entry.in_place_forms:
        return f"the torch API has {entry.name} {'out of place' if form.in_place else 'in place'} only"
    if form.async_op and not entry.asynchronous:
        return f"{entry.name} has no async form"
    return REDOPS[form.redop].refusal(DTYPES[form.dtype]) if form.redop is not None else None


def trimmed(
    entry: Collective, itemsize: int, sizes: tuple[int, ...], nranks: int, seed: int
) -> tuple[Sized, ...]:
    """The sizes in whole elements per rank; sizes that trim to the same bytes are one.

    A size that holds no element keeps the bytes asked for, so that its row can say so.
    """
    found: dict[int, Sized] = {}
    for asked in sizes if entry.has_data else (0,):
        layout = entry.sizes(asked // itemsize, nranks, seed)
        if isinstance(layout, str):
            found[asked] = Sized(asked, 0, None, layout)
        else:
            nbytes = layout.nelements * itemsize
            found[nbytes] = Sized(nbytes, layout.count, layout, None)
    return tuple(found.values())
