"""Entries from outside, one for each table, and the real command line with them: ``main()`` as ncclbench's.

Nothing of the package is edited: what is here could stand in a module of somebody else's.
"""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
from ncclbench.kernels import KINDS

from ncclbench.cli import app
from ncclbench.importing import IMPORTERS
from ncclbench.importing.model import Importer, Reading, Section
from ncclbench.report.model import Report
from ncclbench.report.panels import PANELS, Panel
from ncclbench.store.printed import Printed
from ncclbench.tables.backends import BACKENDS, Backend
from ncclbench.tables.collectives import COLLECTIVES, Binding, Call
from ncclbench.tables.dtypes import DTYPES, Dtype
from ncclbench.tables.faults import FAULTS, Fault
from ncclbench.tables.orderings import ORDERINGS, Ordering
from ncclbench.tables.redops import REDOPS, RedOp
from ncclbench.tables.settings import SETTINGS, Setting
from ncclbench.tables.strategies import REPLACED, STRATEGIES, Strategy
from ncclbench.tables.topologies import TOPOLOGIES, Cut, Groups, Placement, Topology
from ncclbench.tables.ways import WAYS, Way


def _reduce_then_broadcast(b: Binding) -> Call:
    def run() -> None:
        b.dist.reduce(b.send, op=b.redop, group=b.group, group_dst=b.root)
        b.dist.broadcast(b.send, group=b.group, group_src=b.root)

    return run


def _outside_in(place: Placement) -> Groups | str:
    return tuple((rank, place.nranks - 1 - rank) for rank in range(place.nranks // 2))


# What the tool does not tell is None.
_WITHOUT_DEFAULT = [field.name for field in msgspec.structs.fields(Printed) if field.required]


def _read_line(file: Path, op: str | None) -> Reading:
    """``stopwatch all_reduce 1048576 2 120.5``: an operation, bytes, ranks and microseconds."""
    section = Section("stopwatch", 1, nranks=2)
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        _, name, nbytes, nranks, time_us = line.split()
        row: dict[str, Any] = dict.fromkeys(_WITHOUT_DEFAULT)
        row |= {"arm": "", "op": name, "op_from": "text", "nbytes": int(nbytes), "nranks": int(nranks)}
        section.rows.append(Printed(**row | {"time_us": float(time_us), "line": number}))
        section.row_lines += 1
    return Reading(file, "stopwatch", [section])


def _slowest(report: Report) -> dict[str, Any] | None:
    row = max(report.rows, key=lambda row: float(row["median_us"] or 0), default=None)
    if row is None:
        return None
    entry = {"status": "slowest of all", "reason": row["op"], "count": row["nbytes"], "which": row["dtype"]}
    return {"groups": [entry], "problems": [], "several_runs": False}


def __getattr__(name: str) -> Any:
    """The class that the strategy below names; only ranks of a drill ask for it, and they have torch."""
    if name != "Again":
        raise AttributeError(name)
    from ncclbench.faults.membership import Rebuilt

    class Again(Rebuilt):
        """Another way from group to group."""

    return Again


def add() -> None:
    """One entry in each table."""
    both = (("irecv", "isend", "wait"), ("irecv", "isend", "wait"))
    way = WAYS["isend"]
    COLLECTIVES["reduce_broadcast"] = replace(
        COLLECTIVES["all_reduce"],
        name="reduce_broadcast",
        description="all_reduce in two steps",
        bind=_reduce_then_broadcast,
        rooted=True,
        asynchronous=False,
    )
    BACKENDS["gloo-twin"] = Backend("gloo-twin", "gloo", "cpu", "gloo by another name")
    DTYPES["complex32"] = Dtype("complex32", 4, "complex", 2**11, 65504.0, ("chalf",))
    REDOPS["lowest"] = RedOp("lowest", "MIN", "minimum", "extremes", ("float", "int"))
    SETTINGS["plain"] = Setting("plain", "changes nothing", "form")
    TOPOLOGIES["outside-in"] = Topology(
        "outside-in", "the first and the last", lambda parameters: (Cut("outside-in", _outside_in),)
    )
    WAYS["isend-recv"] = Way("isend-recv", "isend against recv", way.send, WAYS["send"].recv)
    ORDERINGS["irecv-isend"] = Ordering("irecv-isend", "both irecv, then isend", both, safe=True)
    FAULTS["segfault"] = Fault("segfault", "SIGSEGV", "orchestrator", "death", _segfault)
    STRATEGIES["again"] = Strategy("again", "a new group", REPLACED, membership="adding:Again")
    KINDS["triad-twin"] = replace(KINDS["triad"], name="triad-twin")
    PANELS["slowest"] = Panel("slowest", 1, "Slowest case", "Where time goes.", _slowest, "unmeasured.html")
    IMPORTERS["stopwatch"] = Importer(
        "stopwatch",
        "lines of a stopwatch",
        lambda text, name: 99 if re.match(r"stopwatch \w+ \d+ \d+ [\d.]+$", text, re.MULTILINE) else 0,
        _read_line,
    )
    app.COMMANDS["hello"] = "Greet."
    module = ModuleType("ncclbench.cli.hello")
    module.command = click.Command("hello", callback=lambda: click.echo("hello"))  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def _segfault(stroke: Any) -> None:
    import os

    os.kill(stroke.pid, signal.SIGSEGV)


def main() -> None:
    """ncclbench with all of it."""
    add()
    app.main()
