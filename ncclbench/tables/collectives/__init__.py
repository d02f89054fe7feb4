"""COLLECTIVES: one entry per collective operation; adding one is adding an entry to one file here."""

from __future__ import annotations

from ncclbench.tables.collectives import moving, pairwise, reducing
from ncclbench.tables.collectives.spec import Binding, Call, Collective, Layout, Segment, Works

COLLECTIVES: dict[str, Collective] = {
    entry.name: entry for entry in (*reducing.ENTRIES, *moving.ENTRIES, *pairwise.ENTRIES)
}

__all__ = ["COLLECTIVES", "Binding", "Call", "Collective", "Layout", "Segment", "Works"]
