"""``ncclbench p2p``: point-to-point from end to end, the orders that deadlock, and what torch really does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    SIZE_PARAMETERS,
    backends_choice,
    check_choice,
    deadline_choice,
    epochs_choice,
    folder_choices,
    iters_choice,
    seed_choice,
    size_choices,
    sizes_from,
    warmup_choice,
)
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import rank_count, run_job
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    launch_options,
)
from ncclbench.cli.programs import conclude_parts, run_program, tell
from ncclbench.cli.recording import recorder_choice
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.machine import Machine
from ncclbench.plan.memory import PATTERN_BYTES, slot_count
from ncclbench.plan.model import SHARED_GPU, Device
from ncclbench.plan.sizes import UsualSizes
from ncclbench.supervise.launcher import find_seat
from ncclbench.tables.orderings import ORDERINGS
from ncclbench.tables.p2p import PARTS
from ncclbench.tables.ways import WAYS

if TYPE_CHECKING:
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.p2p import P2pPlan

# Where nothing is said of them: fewer sizes than a sweep, since each is visited by every way.
_SIZES = UsualSizes("8", "16M", "4")
_USUAL_PARTS = "ways,first,ordering"
_DEADLINE = "3s"

# Parts that an option is for; typed without any of them it would be silently of no use.
_FOR_PARTS = {
    "ways": ("ways",),
    "orders": ("ordering",),
    "peers": ("first", "peers"),
    "deadline": ("ordering",),
    **dict.fromkeys(SIZE_PARAMETERS, ("ways", "ordering", "peers")),
}


measured_options = under(
    "What is measured",
    option(
        "--parts",
        metavar="NAMES",
        otherwise=_USUAL_PARTS,
        parse=values.named(PARTS, "part"),
        help=f"Of {', '.join(PARTS)}, separated by commas, or all.",
    ),
    option(
        "--semantics", flag=True, help="Short for --parts semantics: what torch documents and what it does."
    ),
    option(
        "--ways",
        metavar="NAMES",
        otherwise="all",
        parse=values.named(WAYS, "way"),
        help=f"Of {', '.join(WAYS)}, or all.",
    ),
    option(
        "--orders",
        metavar="NAMES",
        otherwise="all",
        parse=values.named(ORDERINGS, "order"),
        help=f"Of {', '.join(ORDERINGS)}, or all.",
    ),
    option(
        "--peers",
        metavar="RANKS",
        otherwise="all",
        parse=values.roots,
        help="Ranks that rank 0 sends to in the parts first and peers, or all.",
    ),
    *size_choices(_SIZES),
    backends_choice("Backends, interleaved in one job."),
)

method_options = under(
    "How it is measured",
    iters_choice("Timed repetitions of each way and size, in all epochs together.", default="30"),
    warmup_choice("Untimed repetitions before each visit.", default="2"),
    check_choice,
    epochs_choice("Fresh sets of process groups; intervals are over them.", default="3"),
    deadline_choice(
        "Of each cell of the ordering matrix: what has not ended then is deadlocked.", otherwise=_DEADLINE
    ),
    seed_choice,
)


@click.command("p2p", cls=SectionedCommand, epilog="Example: ncclbench p2p --parts ways,ordering -b 8 -e 16M")
@measured_options
@method_options
@launch_options
@under("What is kept", *folder_choices, recorder_choice)
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Measure point-to-point: ways of sending, first messages, orders that deadlock, what torch really does.

    Ends with 1 where a message arrived wrong or a process was left over. What deadlocks, and what torch does
    otherwise than it documents, is said and is no bad answer.
    """
    params = _settled(params)
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    if nranks < 2:
        raise RequestError("a message takes two ranks: give --nproc-per-node 2, or start more")
    machine: Device = "cuda" if count_gpus() else "cpu"
    arms = parse_arms(params["backends"], None, machine)
    params["peers"] = _peers(params["peers"], nranks)
    _check_memory(machine, nranks if seat is None else seat.local_size, params)

    def lead(job: Job) -> int:
        return _lead(job, _plan(arms, nranks, params), params)

    return run_job("p2p", seat, nranks, params["as_json"], lead)


def _check_memory(machine: Device, local_ranks: int, params: Mapping[str, Any]) -> None:
    """Refuse sizes that do not fit, before anything starts.

    Raises:
        RequestError: they do not.
    """
    largest = params["bytes"][-1]
    here = Machine.here(machine, local_ranks)
    slots = slot_count(2 * largest, here.rotation_bytes(machine, local_ranks))
    parts = {
        "ways": 2 * largest * slots + PATTERN_BYTES,
        # On rank 0 a message for each peer, what is reduced beside them, and as much while it is filled.
        "peers": (len(params["peers"]) + 2) * largest + PATTERN_BYTES,
        # What goes, what comes, and one more byte for each of it while it is checked.
        "ordering": 3 * largest,
    }
    needed = max((parts[name] for name in params["parts"] if name in parts), default=0)
    here.check_fits(machine, needed, local_ranks)


def _settled(params: Mapping[str, Any]) -> dict[str, Any]:
    """With the parts and the sizes that are meant.

    Raises:
        RequestError: options contradict each other, or the sizes make no range.
    """
    if params["semantics"] and params["parts"] is not None:
        raise RequestError("--semantics is short for --parts semantics: leave one of the two out")
    parts = ("semantics",) if params["semantics"] else params["parts"] or tuple(_USUAL_PARTS.split(","))
    for name, takers in _FOR_PARTS.items():
        if params[name] is not None and not set(takers) & set(parts):
            raise RequestError(
                f"--{name.replace('_', '-')} is of no use without --parts {' or '.join(takers)}: "
                "add that part, or leave the option out"
            )
    return {
        **params,
        "parts": parts,
        "bytes": sizes_from(params, _SIZES),
        "ways": params["ways"] or tuple(WAYS),
        "orders": params["orders"] or tuple(ORDERINGS),
        "deadline": params["deadline"] or values.deadline(_DEADLINE, "--deadline"),
    }


def _peers(asked: tuple[int, ...] | None, nranks: int) -> tuple[int, ...]:
    """Ranks that rank 0 sends to.

    Raises:
        RequestError: there is no such rank, or it is rank 0 itself.
    """
    if asked is None:
        return tuple(range(1, nranks))
    strange = [rank for rank in asked if not 0 < rank < nranks]
    if strange:
        raise RequestError(
            f"--peers {strange[0]} is no peer of rank 0 among {nranks} ranks: take 1 to {nranks - 1}"
        )
    return asked


def _plan(arms: Any, nranks: int, params: Mapping[str, Any]) -> P2pPlan:
    # Imported here: it needs what workers need.
    from ncclbench.supervise.p2p import P2pPlan

    return P2pPlan(
        parts=params["parts"],
        arms=arms,
        nranks=nranks,
        sizes=params["bytes"],
        ways=params["ways"],
        orders=params["orders"],
        peers=params["peers"],
        iters=params["iters"],
        warmup=params["warmup_iters"],
        check=params["check"],
        epochs=params["epochs"],
        deadline_s=params["deadline"],
        timeout_s=params["timeout"],
        seed=params["seed"],
        share_gpu=params["share_gpu"],
    )


def _lead(job: Job, plan: P2pPlan, params: Mapping[str, Any]) -> int:
    from ncclbench.cells.run import UNDER_LAUNCHER_S, Cells
    from ncclbench.supervise.p2p import P2pOrders

    made: list[P2pOrders] = []

    def orders(environment: dict[str, Any], keep: Any) -> Any:
        made.append(P2pOrders(plan, keep, tell))
        return made[-1].orders()

    def afterwards(environment: dict[str, Any], keep: Any, flight: str | None) -> None:
        limit_s = None if job.seat is None else UNDER_LAUNCHER_S
        cells = Cells(plan, keep, tell, job.signals, made[-1].known, limit_s)
        cells.run(made[-1].available)

    run, ended = run_program(job, "p2p", plan.arms, params, plan.to_json(), plan.program, orders, afterwards)
    return _conclude(run, ended, params)


def _conclude(run: Run, ended: NcclbenchError | None, params: Mapping[str, Any]) -> int:
    from ncclbench.stats.p2p import p2p_of
    from ncclbench.terminal.p2p import p2p_lines, sentences

    share_gpu = run.plan.share_gpu
    found = p2p_of(run.results_by_arm, share_gpu)
    lines = [*([f"# {SHARED_GPU}"] if share_gpu else []), *p2p_lines(found)]
    return conclude_parts(
        "p2p", run, ended, params, found, sentences(found), lines, {"shared_gpu": share_gpu}
    )
