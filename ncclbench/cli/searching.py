"""What ``matrix`` and ``suspects`` have in common: options, the plan of pairs, a search from start to end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ncclbench.cli import values
from ncclbench.cli.files import new_run_folder
from ncclbench.cli.jobs import typed_command
from ncclbench.cli.options import Decorated, option, seed_choice, under
from ncclbench.cli.recording import recorder_choice
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.model import Arm, Device
from ncclbench.terminal.streams import is_terminal, show
from ncclbench.units import parse_seconds

if TYPE_CHECKING:
    from ncclbench.attribution.stages import Size
    from ncclbench.plan.pairs import PairPlan
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.searching import MakeOrders

# A test of one pair is three of about the same length: each way, and both at once.
_TESTS_OF_A_PAIR = 3


def search_options(passes: int) -> Callable[[Decorated], Decorated]:
    """Options of every search; ``passes`` is how many there are where nothing is said."""
    which = under(
        "Which links",
        option("--backends", metavar="X", otherwise="nccl2 on CUDA, else gloo", help="The backend, one."),
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
            default=str(passes),
            parse=values.whole(3, 1000),
            help="How often each pair is measured.",
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
        decorated: Decorated = which(how(kept(drain(function))))
        return decorated

    return decorate


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
    from ncclbench.attribution.stages import FEWEST_PASSES
    from ncclbench.plan.pairs import plan_pairs

    return plan_pairs(
        host_of,
        level=params["level"],
        at_once=params["at_once"],
        passes=FEWEST_PASSES if params["quick"] else params["passes"],
        fewest_passes=FEWEST_PASSES,
        pair_s=_TESTS_OF_A_PAIR * size.pair_s,
        budget_s=params["time_budget"],
        seed=params["seed"],
    )


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
    from ncclbench.store.reader import load_run
    from ncclbench.supervise.searching import hold_search, search_meta
    from ncclbench.supervise.session import Description
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
    ended: NcclbenchError | None = None
    with new_run_folder(params["out"], params["label"] or kind) as folder:
        description = Description(typed_command(), params["label"], datetime.now(UTC))
        meta = search_meta(kind, arm, job.nranks, description, asked)
        show(f"run: {folder.path}\n", sys.stderr)
        try:
            hold_search(
                job,
                folder,
                meta,
                program,
                params["timeout"],
                make_orders,
                _tell_preflight,
                params["flight_recorder"],
            )
        except RequestError:
            raise
        except NcclbenchError as error:
            ended = error
        finally:
            told_done()
        return load_run(folder.path), ended


def tell(words: str) -> None:
    """Where the search is, on a terminal only, in one line that is written over."""
    if is_terminal(sys.stderr):
        show(f"\r\x1b[K{words}", sys.stderr)


def told_done() -> None:
    """Clear that line."""
    with suppress(ValueError):
        if is_terminal(sys.stderr):
            show("\r\x1b[K", sys.stderr)


def _tell_preflight(environment: Mapping[str, Any], preflight: Sequence[Mapping[str, Any]]) -> None:
    for finding in preflight:
        show(f"ncclbench: {finding['severity']}: {finding['what']}: {finding['mend']}\n", sys.stderr)
