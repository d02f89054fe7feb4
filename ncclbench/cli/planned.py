"""``--plan FILE``: a plan from a file, if it is one for the ranks and hosts that are here."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncclbench.cli import values
from ncclbench.cli.declaring import option, under
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import RequestError
from ncclbench.plan.arms import arms_device
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Plan
from ncclbench.plan.runnable import check_hosts
from ncclbench.supervise.launcher import Seat
from ncclbench.tables.topologies import Placement

if TYPE_CHECKING:
    from ncclbench.store.plans import PlanFile

plan_option = under(
    "What is measured",
    option(
        "--plan",
        metavar="FILE",
        parse=values.path,
        help="Just what ncclbench plan --out wrote; takes the place of all that says what and how.",
    ),
)


def source_of_plan(path: Path) -> dict[str, Any]:
    """What run.json says of a plan's file, and of the dumps that its cases came from."""
    cases_from = _load(path).cases_from
    return {"plan_file": path.name, **({"cases_from": cases_from} if cases_from is not None else {})}


@lru_cache(maxsize=1)
def _load(path: Path) -> PlanFile:
    from ncclbench.store.plans import load_plan

    return load_plan(path)


def plan_from_file(
    path: Path, seat: Seat | None, nproc_per_node: int | None, placement: Placement | None
) -> Plan:
    """The plan in a file, to be run as it stands.

    Args:
        seat: from a launcher; without one all ranks are on this machine, as many as were planned.
        nproc_per_node: as asked for on the command line.
        placement: which rank is on which host; None where all are here.

    Raises:
        RequestError: no plan, or one for other ranks, other hosts or more memory.
    """
    file = _load(path)
    plan = file.plan
    here = seat.world_size if seat is not None else nproc_per_node or file.local_ranks
    if here != plan.nranks:
        hosts = -(-plan.nranks // file.local_ranks)
        where = f" on {hosts} hosts" if hosts > 1 else ""
        if seat is None and hosts > 1:  # nobody has asked for as many as there would be here
            raise RequestError(
                f"{path} is for {plan.nranks} ranks{where}: start them with torchrun, srun or mpirun, "
                "or plan it anew"
            )
        raise RequestError(
            f"{path} is for {plan.nranks} ranks{where}, here are {here}: start as many, or plan it anew"
        )
    device = arms_device(plan.arms, "cuda" if count_gpus() else "cpu")
    local_ranks = seat.local_size if seat is not None else plan.nranks
    place = placement or Placement((0,) * plan.nranks)
    try:
        check_hosts(plan, place, device, Machine.here(device, local_ranks), local_ranks)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    return plan
