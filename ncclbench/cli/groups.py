"""``ncclbench groups``: what process groups cost, and collectives in several of them at once."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    backends_choice,
    check_choice,
    deadline_choice,
    epochs_choice,
    folder_choices,
    iters_choice,
    seed_choice,
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
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Arm, Device, Plan
from ncclbench.plan.sizes import parse_sizes
from ncclbench.supervise.launcher import find_seat
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.groups import CROSSED_OP, ISSUE_ORDERS, MAKINGS, PARTS, parse_kind
from ncclbench.tables.topologies import Cut, Groups, Placement

if TYPE_CHECKING:
    from ncclbench.store.model import Run
    from ncclbench.supervise.grouping import GroupsPlan
    from ncclbench.supervise.launch import Job

_USUAL_PARTS = ("costs",)
_CONCURRENT_PARTS = ("together", "crossed")
_MOST_GROUPS = 4096
# Beside a connection to each peer, a group of gloo opens a listener, an epoll and two pipes' ends.
_FILES_OF_GROUP = 4
_FILES_OF_PROCESS = 64


def _counts(text: str, name: str) -> tuple[int, ...]:
    one = values.whole(1, _MOST_GROUPS)
    counts = [one(entry, name) for entry in values.separated(text, name)]
    if len(set(counts)) < len(counts):
        raise RequestError(f"{name} {text} names a number twice: name it once")
    return tuple(sorted(counts))


def _op(text: str, name: str) -> str:
    names: tuple[str, ...] = values.named(COLLECTIVES, "collective")(text, name)
    if len(names) != 1:
        raise RequestError(f"{name} {text} names {len(names)} collectives: name one")
    if not (COLLECTIVES[names[0]].has_data and COLLECTIVES[names[0]].asynchronous):
        raise RequestError(f"{name} {names[0]} cannot be issued beside another: take all_reduce")
    return names[0]


costs_options = under(
    "What groups cost",
    option(
        "--counts",
        metavar="N,N",
        default="1,8,32,128",
        parse=_counts,
        help="Numbers of groups that each rank is in, each in processes of its own.",
    ),
    option(
        "--kind",
        metavar="NAME",
        default="world",
        parse=lambda text, name: parse_kind(text),
        help="Which ranks are in a group: singleton, or a topology; see ncclbench list.",
    ),
    option(
        "--ways",
        metavar="NAMES",
        otherwise="all on CUDA, else new_group",
        parse=values.named(MAKINGS, "way"),
        help=f"How they are made: {', '.join(MAKINGS)}, or all.",
    ),
)

concurrent_options = under(
    "Groups at once",
    option(
        "--concurrent",
        flag=True,
        help="Short for --parts together,crossed: several groups at work at the same time.",
    ),
    option(
        "--topology",
        metavar="NAMES",
        default="halves",
        parse=values.topologies,
        help="Groups that are at work at once; also several cuts, like mesh:dp=2,tp=2 or pairs,ring.",
    ),
    option(
        "--op",
        metavar="NAME",
        default="all_reduce",
        parse=_op,
        help="What they do at the same time; crossed always calls all_reduce.",
    ),
    option("--sizes", metavar="SIZES", default="64K,4M", help="Bytes of each."),
    option(
        "--orders",
        metavar="NAMES",
        default="all",
        parse=values.named(ISSUE_ORDERS, "order"),
        help=f"How ranks in two groups call: {', '.join(ISSUE_ORDERS)}, or all.",
    ),
)

method_options = under(
    "How it is measured",
    option(
        "--parts",
        metavar="NAMES",
        otherwise=",".join(_USUAL_PARTS),
        parse=values.named(PARTS, "part"),
        help=f"Of {', '.join(PARTS)}, separated by commas, or all.",
    ),
    backends_choice("Backends, in turns."),
    iters_choice("Timed repetitions of groups alone and at once, in all epochs together.", default="30"),
    warmup_choice("Untimed repetitions before them, per epoch.", default="2"),
    check_choice,
    epochs_choice(
        "Fresh processes for what groups cost, fresh groups for those at once; intervals are over them.",
        default="3",
    ),
    deadline_choice("Of each cell of crossed: what has not ended then is deadlocked.", default="3s"),
    seed_choice,
)


@click.command(
    "groups",
    cls=SectionedCommand,
    epilog="Example: ncclbench groups --counts 1,8,32 --backends gloo --out results/groups",
)
@costs_options
@concurrent_options
@method_options
@launch_options
@under("What is kept", *folder_choices, recorder_choice)
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Measure what process groups cost, and how collectives in several groups disturb each other.

    Ends with 1 where data were wrong or a process was left over. What deadlocks, and what stays of groups
    that have ended, is said and is no bad answer.
    """
    if params["concurrent"] and params["parts"] is not None:
        raise RequestError("--concurrent is short for --parts together,crossed: leave one of the two out")
    params["parts"] = _CONCURRENT_PARTS if params["concurrent"] else params["parts"] or _USUAL_PARTS
    if "together" not in params["parts"] and params["op"] != CROSSED_OP and "crossed" in params["parts"]:
        raise RequestError(
            f"--op {params['op']} is for the part together: crossed always calls {CROSSED_OP}, as it is "
            "about the order of calls: leave --op out"
        )
    params["bytes"] = parse_sizes(
        sizes=params["sizes"], min_bytes=None, max_bytes=None, step_factor=None, step_bytes=None
    )
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    machine: Device = "cuda" if count_gpus() else "cpu"
    params["ways"] = params["ways"] or (tuple(MAKINGS) if machine == "cuda" else ("new_group",))
    arms = parse_arms(params["backends"], None, machine)
    local_ranks = nranks if seat is None else seat.local_size
    # Before torch is loaded, where that is known.
    cuts = None if seat is not None else _cuts(Placement((0,) * nranks), local_ranks, arms, machine, params)

    def lead(job: Job) -> int:
        placed = cuts or _cuts(job.placement(), local_ranks, arms, machine, params)
        return _lead(job, _plan(arms, nranks, placed, params), params)

    return run_job("groups", seat, nranks, params["as_json"], lead)


def _cuts(
    place: Placement, local_ranks: int, arms: Sequence[Arm], machine: Device, params: Mapping[str, Any]
) -> tuple[tuple[str, Groups, int], Plan | None]:
    """The groups of the part costs, and the cases of the others.

    Raises:
        RequestError: the ranks cannot be cut so, or it does not fit.
    """
    kind: Cut = params["kind"]
    groups: Groups | str = kind.groups(place)
    if isinstance(groups, str) and "costs" in params["parts"]:
        raise RequestError(f"--kind {groups}")
    cut: Groups = () if isinstance(groups, str) else groups
    size = max(map(len, cut), default=1)
    if "costs" in params["parts"]:
        _check_files(params["counts"][-1], size)
    if not set(params["parts"]) & set(_CONCURRENT_PARTS):
        return (kind.name, cut, size), None
    selection = Selection(
        sizes=params["bytes"],
        ops=(params["op"],),
        topologies=params["topology"],
        modes=("isolated",),
        async_op=(True,),
    )
    method = Method(
        iters=params["iters"],
        epochs=min(params["epochs"], params["iters"]),
        timeout_s=params["timeout"],
        share_gpu=params["share_gpu"],
        seed=params["seed"],
    )
    build = partial(
        build_plan,
        arms=arms,
        nranks=place.nranks,
        local_ranks=local_ranks,
        device=machine,
        method=method,
        placement=place,
    )
    plan = build(selection)
    if not _is_of_one_size(plan):
        # Half of what runs at once would be another size, and stand in another row.
        plan = build(replace(selection, sizes=_common_sizes(selection.sizes, plan)))
    return (kind.name, cut, size), plan


def _is_of_one_size(plan: Plan) -> bool:
    """Whether every cut takes the same sizes once they are whole elements per rank."""
    by_cut: dict[str, set[int]] = {}
    for case in plan.planned:
        by_cut.setdefault(case.topology, set()).add(case.nbytes)
    return len(set(map(frozenset, by_cut.values()))) == 1


def _common_sizes(sizes: Sequence[int], plan: Plan) -> tuple[int, ...]:
    """The sizes, each cut down to what is whole elements for the ranks of all cuts, if it holds so many."""
    unit = math.lcm(*(case.nranks for case in plan.planned)) * DTYPES[plan.planned[0].dtype].itemsize
    return tuple(dict.fromkeys(size // unit * unit or size for size in sizes))


def _check_files(count: int, size: int) -> None:
    """Refuse more groups than a process may have open files for.

    Raises:
        RequestError: there are.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count * (size - 1 + _FILES_OF_GROUP) + _FILES_OF_PROCESS
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise RequestError(
            f"{count} groups of {size} ranks take about {needed:,} open files a process, and it may have "
            f"{hard:,} (ulimit -Hn): lower --counts"
        )


def _plan(
    arms: Sequence[Arm],
    nranks: int,
    cuts: tuple[tuple[str, Groups, int], Plan | None],
    params: Mapping[str, Any],
) -> GroupsPlan:
    # Imported here: it needs what workers need.
    from ncclbench.supervise.grouping import GroupsPlan

    return GroupsPlan(
        parts=params["parts"],
        arms=tuple(arms),
        nranks=nranks,
        counts=params["counts"],
        ways=params["ways"],
        kind=cuts[0],
        at_once=cuts[1],
        topology=",".join(cut.name for cut in params["topology"]),
        orders=params["orders"],
        sizes=params["bytes"],
        iters=params["iters"],
        warmup=params["warmup_iters"],
        check=params["check"],
        epochs=params["epochs"],
        deadline_s=params["deadline"],
        timeout_s=params["timeout"],
        seed=params["seed"],
        share_gpu=params["share_gpu"],
    )


def _lead(job: Job, plan: GroupsPlan, params: Mapping[str, Any]) -> int:
    from ncclbench.cells.groups import run_crossed
    from ncclbench.cells.run import UNDER_LAUNCHER_S
    from ncclbench.supervise.grouping import GroupsOrders

    made: list[GroupsOrders] = []

    def orders(environment: dict[str, Any], keep: Any) -> Any:
        made.append(GroupsOrders(plan, keep, tell))
        return made[-1].together()

    def afterwards(environment: dict[str, Any], keep: Any, flight: str | None) -> None:
        if "costs" in plan.parts:
            made[-1].costs(job, flight)
        if "crossed" in plan.parts:
            limit_s = None if job.seat is None else UNDER_LAUNCHER_S
            run_crossed(plan, made[-1].available, keep, tell, job.signals, made[-1].known, limit_s)

    run, ended = run_program(
        job, "groups", plan.arms, params, plan.to_json(), plan.program, orders, afterwards
    )
    return _conclude(run, ended, params)


def _conclude(run: Run, ended: NcclbenchError | None, params: Mapping[str, Any]) -> int:
    from ncclbench.stats.group_costs import groups_of
    from ncclbench.terminal.groups import groups_lines, sentences

    found = groups_of(run.results_by_arm)
    return conclude_parts("groups", run, ended, params, found, sentences(found), groups_lines(found))
