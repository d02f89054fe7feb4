"""PROGRAMS: what workers can do beside a sweep; adding one is adding a file here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncclbench.worker.programs.bench import Bench

# By name the module whose ``run`` is called on every rank; imported when asked for, because each worker
# needs one of them at most.
PROGRAMS = {
    "search": "ncclbench.worker.programs.search",
    "transport": "ncclbench.worker.programs.transport",
    "overlap": "ncclbench.worker.programs.overlap",
    "p2p": "ncclbench.worker.programs.p2p",
    "groups": "ncclbench.worker.programs.groups",
    "settings": "ncclbench.worker.programs.settings",
}


def find_program(name: str) -> Callable[[Bench, dict[str, Any]], None]:
    """The program's ``run``, which all ranks call with the same request."""
    run: Callable[[Bench, dict[str, Any]], None] = importlib.import_module(PROGRAMS[name]).run
    return run
