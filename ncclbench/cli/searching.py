"""What ``matrix`` and ``suspects`` have in common: options, the plan of pairs, a search from start to end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from ncclbench.cli import values
from ncclbench.cli.choices import (
    backends_choice,
    seed_choice,
)
from ncclbench.cli.declaring import Decorated, option, under
from ncclbench.cli.programs import run_program
from ncclbench.cli.recording import recorder_choice
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.model import Arm, Device
from ncclbench.terminal.streams import show, write
from ncclbench.units import parse_seconds

if TYPE_CHECKING:
    from ncclbench.attribution.stages import Size
    from ncclbench.plan.pairs import Limits, PairCount, PairPlan
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.programs import MakeOrders

# As attribution.stages.FEWEST_PASSES, which is not loaded before the workers are there.
QUICK_PASSES = 3

# A test of one pair is three of about the same length: each way, and both at once.
_TESTS_OF_A_PAIR = 3


def search_options(passes: int) -> Callable[[Decorated], Decorated]:
    """Options of every search; ``passes`` is how many there are where nothing is said."""
    which = under(
        "Which links",
        backends_choice("The backend, one.", metavar="X"),
        option(
            "--level",
            metavar="rank|host",
            default="rank",
            parse=values.one_of(("rank", "host")),
            help="Every pair of ranks, or one rank of each host with each other.",
        ),
        option(
            "--at-once",
            metavar="host|rank|none",
            default="host",
            parse=values.one_of(("host", "rank", "none")),
            help="One pair per host at a time, one per rank (each has a NIC of its own), or one in all.",
        ),
    )
    how = under(
        "How it is measured",
        option(
            "--passes",
            metavar="N",
            otherwise=str(passes),
            parse=values.whole(QUICK_PASSES, 1000),
            help="How often each pair is measured; not with --quick.",
        ),
        option("--quick", flag=True, help="Shorter tests and 3 passes: finds what is 1.5x slower or more."),
        option(
            "--time-budget",
            metavar="TIME",
            otherwise="off",
            parse=parse_seconds,
            help="For the pairs: fewer passes, then a random part of the pairs, and it says which.",
        ),
        seed_choice,
    )
    kept = under(
        "What is kept",
        option(
            "--out",
            metavar="DIR",
            otherwise="results/<time>-<label>",
            parse=values.path,
            help="The run folder itself.",
        ),
        option("--label", metavar="TEXT", parse=values.text, help="What the run is about, for reports."),
        recorder_choice,
    )
    drain = under(
        "How it answers",
        option(
            "--drain-hosts", flag=True, help="Print names of hosts to take out and nothing else, one a line."
        ),
    )

    def decorate(function: Decorated) -> Decorated:
        @wraps(function)
        def settled(**params: Any) -> Any:
            return function(**{**params, "passes": _passes(params, passes)})

        decorated: Decorated = which(how(kept(drain(settled))))
        return decorated

    return decorate


def _passes(params: Mapping[str, Any], otherwise: int) -> int:
    """How many are made, as it is recorded too; a budget of time can still take some away.

    Raises:
        RequestError: two options say it.
    """
    asked: int | None = params["passes"]
    if params["quick"] and asked is not None:
        raise RequestError(f"--quick makes {QUICK_PASSES} passes, --passes asks for {asked}: leave one out")
    return QUICK_PASSES if params["quick"] else asked or otherwise


def one_arm(params: Mapping[str, Any]) -> Arm:
    """The arm that is searched with.

    Raises:
        RequestError: there are several.
    """
    machine: Device = "cuda" if count_gpus() else "cpu"
    arms = parse_arms(params["backends"], None, machine)
    if len(arms) > 1:
        raise RequestError(f"--backends names {len(arms)}: a search takes one")
    return arms[0]


def size_of(params: Mapping[str, Any], on_gpus: bool) -> Size:
    """How much is sent and computed."""
    from ncclbench.attribution.stages import GPU, Size

    size = GPU if on_gpus else Size()
    return size.quick() if params["quick"] else size


def pairs_of(params: Mapping[str, Any], host_of: Sequence[int], size: Size) -> PairPlan:
    """The pairs that fit into the time."""
    from ncclbench.plan.pairs import plan_pairs

    return plan_pairs(host_of, **_limits(params, size))


def count_of(params: Mapping[str, Any], hosts: int, ranks_of_host: int, size: Size) -> PairCount:
    """How many pairs fit into the time, and how long they take."""
    from ncclbench.plan.pairs import count_pairs

    return count_pairs([ranks_of_host] * hosts, **_limits(params, size))


def _limits(params: Mapping[str, Any], size: Size) -> Limits:
    from ncclbench.attribution.stages import FEWEST_PASSES

    return {
        "level": params["level"],
        "at_once": params["at_once"],
        "passes": params["passes"],
        "fewest_passes": FEWEST_PASSES,
        "pair_s": _TESTS_OF_A_PAIR * size.pair_s,
        "budget_s": params["time_budget"],
        "seed": params["seed"],
    }


def until_s(params: Mapping[str, Any]) -> float | None:
    """When the pairs should be done, of time.monotonic(); None where nothing was asked."""
    return None if params["time_budget"] is None else time.monotonic() + params["time_budget"]


def host_numbers(environment: Mapping[str, Any]) -> list[int]:
    """Number of its host, by rank."""
    return [int(entry["host"]) for entry in environment["ranks"]]


def run_search(
    job: Job,
    kind: str,
    arm: Arm,
    params: Mapping[str, Any],
    request: Mapping[str, Any],
    make_orders: MakeOrders,
) -> tuple[Run, NcclbenchError | None]:
    """Measure; the run as readers see it, and what ended it early."""
    from ncclbench.attribution.stages import STAGES
    from ncclbench.worker.protocol import Program

    asked = {name: params[name] for name in ("level", "at_once", "passes", "quick", "time_budget", "seed")}
    program = Program(
        "search",
        {
            "arm": [arm.id, arm.backend],
            "stages": list(STAGES),
            "words": list(STAGES.values()),
            "seed": params["seed"],
            "share_gpu": params["share_gpu"],
            **request,
        },
    )
    return run_program(job, kind, (arm,), params, asked, program, make_orders)


def drain(names: Sequence[str]) -> None:
    """Names of hosts, one a line, as schedulers take them; what is no name of a host is told beside them."""
    from ncclbench.terminal.links import not_drained, split_names

    valid, invalid = split_names(names)
    write("".join(f"{name}\n" for name in valid), sys.stdout)
    if invalid:
        show(f"ncclbench: warning: {not_drained(invalid)}\n", sys.stderr)


def refuse_one_host(level: str, is_one_host: bool) -> None:
    """There are no pairs of hosts on one.

    Raises:
        RequestError: they were asked for all the same.
    """
    if level == "host" and is_one_host:
        raise RequestError("--level host takes two hosts, and all ranks are on one: leave it out")
