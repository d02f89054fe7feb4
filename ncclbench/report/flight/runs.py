"""The dumps that a run's own workers left when it failed, read and judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ncclbench.errors import RequestError
from ncclbench.flight.model import Evidence, Refused
from ncclbench.report.flight.model import Flight, flight_of
from ncclbench.store.model import Run

# In a run folder, one file for each rank and recorder.
FLIGHT_FOLDER = "flight"


def flights_of(runs: Sequence[Run]) -> list[Flight | None]:
    """What the flight recorders of each run's ranks say; None of one that has no dumps."""
    return [_flight_of(run) for run in runs]


def _flight_of(run: Run) -> Flight | None:
    folder = run.folder / FLIGHT_FOLDER
    if not os.path.isdir(folder):
        return None
    # Only here: most runs leave no dumps.
    from ncclbench.flight.dumps import read
    from ncclbench.flight.judge import judge

    environment = run.meta.get("environment") or {}
    try:
        evidence = replace(read([folder], hosts_of(environment)), nranks=run.plan.nranks)
    except RequestError as error:
        evidence = Evidence((), (Refused(FLIGHT_FOLDER, str(error)),), run.plan.nranks)
    return flight_of(evidence, judge(evidence))


def hosts_of(environment: dict[str, Any]) -> dict[int, str]:
    """The host of each rank, as the environment of the run has it."""
    hosts = [str(host.get("name") or "") for host in environment.get("hosts") or ()]
    ranks = environment.get("ranks") or ()
    return {entry["rank"]: hosts[entry["host"]] for entry in ranks if hosts and hosts[entry["host"]]}
