"""``ncclbench suspects``: who is slow: a rank, a host, a link, several, or nobody."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import rank_count, run_job
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    launch_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.programs import tell, write_page
from ncclbench.cli.searching import (
    drain,
    host_numbers,
    one_arm,
    pairs_of,
    refuse_one_host,
    run_search,
    search_options,
    size_of,
    until_s,
)
from ncclbench.environ import variables
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, NcclbenchError, RequestError
from ncclbench.plan.model import SHARED_GPU
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest
from ncclbench.supervise.launcher import find_seat
from ncclbench.terminal.streams import coloured, one_line, show, write
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.plan.model import Arm
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job

_PASSES = 6
_DONE: dict[type[Probe], str] = {
    PairTest: "pair tests",
    RankTest: "compute probe",
    WaitTest: "free-running loop",
    SubsetTest: "growing groups",
}


@click.command("suspects", cls=SectionedCommand, epilog="Example: ncclbench suspects --nproc-per-node 4")
@search_options(_PASSES)
@under(
    "How it answers",
    option(
        "--unclear",
        metavar="pass|fail",
        default="fail",
        parse=values.one_of(("pass", "fail")),
        help="What it counts as where something is slow and it cannot be told what.",
    ),
)
@under(
    "How it is measured",
    option(
        "--slow-rank",
        metavar="RANK:FACTOR",
        parse=values.slow_rank,
        help="Slow the compute of a rank on purpose.",
        hidden=True,
    ),
)
@launch_options
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Find who is slow: the compute of each rank alone, pairs, a free-running loop, and groups that grow.

    Ends with 1 where somebody is named. The chance of a false name is held over all ranks and links together,
    however many there are; what is slow by less than 1.2x is not named.
    """
    arm = one_arm(params)
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    refuse_one_host(params["level"], seat is None or seat.local_size == nranks)
    if nranks < 2:
        raise RequestError("a search compares ranks: give --nproc-per-node 2, or start more")
    slowed = params["slow_rank"]
    if slowed is not None and slowed[0] >= nranks:
        raise RequestError(f"--slow-rank names rank {slowed[0]} of {nranks}")
    return run_job("suspects", seat, nranks, params["as_json"], lambda job: _lead(job, arm, params))


def _lead(job: Job, arm: Arm, params: Mapping[str, Any]) -> int:
    not_looked_at: list[str] = []

    def orders(environment: dict[str, Any], keep: Any) -> Generator[dict[str, Any], Any, None]:
        # Imported here: in the supervisor, after its workers were forked.
        from ncclbench.attribution.attribute import attribute
        from ncclbench.attribution.course import Search, search_course
        from ncclbench.attribution.evidence import gathered, places_of
        from ncclbench.attribution.stages import QUICK_MORE_PASSES

        on_gpus = any(entry["device"] != "cpu" for entry in environment["ranks"])
        size = size_of(params, on_gpus)
        plan = pairs_of(params, host_numbers(environment), size)
        if plan.not_looked_at:
            not_looked_at.append(plan.not_looked_at)
        places = places_of(environment, job.nranks)

        def told(tests: Sequence[Probe]) -> None:
            keep(tests)
            if tests:
                tell(f"{_DONE[type(tests[0])]}: pass {tests[0].turn + 1} done")

        more = QUICK_MORE_PASSES if params["quick"] else plan.passes
        search = Search(plan, more, size, on_gpus, until_s(params))
        yield from search_course(search, places, told, lambda tests: attribute(gathered(tests, places)))

    slowed = params["slow_rank"]
    request = {"slowed": {} if slowed is None else {str(slowed[0]): slowed[1]}}
    run, ended = run_search(job, "suspects", arm, params, request, orders)
    return _conclude(run, ended, not_looked_at, params)


def _conclude(
    run: Run, ended: NcclbenchError | None, not_looked_at: list[str], params: Mapping[str, Any]
) -> int:
    """Show who is named and why; the exit code."""
    from ncclbench.attribution.attribute import attribute
    from ncclbench.attribution.evidence import evidence_of, wrong_pairs
    from ncclbench.attribution.links import link_rows
    from ncclbench.terminal.links import suspect_lines

    evidence = evidence_of(run)
    answer = attribute(evidence)
    wrong = wrong_pairs(run)
    report, ended = write_page(run, ended)
    message = answer.message
    if wrong:
        message = f"WRONG DATA between {count_text(len(wrong), 'pair')}; {message}"
    if ended is not None:
        message = f"{ended}; until then: {message}"
    bad = bool(answer.suspects) or (answer.verdict == "unclear" and params["unclear"] == "fail")
    if ended is not None:
        code = ended.exit_code
    elif wrong or (bad and not params["exit_zero"]):
        code = EXIT_BAD_ANSWER
    else:
        code = EXIT_OK
    left_out = [text for text in (answer.not_looked_at, *not_looked_at) if text]
    if params["as_json"]:
        rest = {
            "verdict": answer.verdict,
            "suspects": [suspect.to_json() for suspect in answer.suspects],
            "drain_hosts": answer.drain_hosts,
            "unclear": answer.unclear,
            "looked_at": answer.looked_at,
            "not_looked_at": "; ".join(left_out) or None,
            "would_find": answer.would_find,
            "links": [{**link, "shared_gpu": run.plan.share_gpu} for link in link_rows(evidence)],
            "hosts": evidence.places.hosts,
            "host_of": evidence.places.host_of,
            "report": report,
            "problems": run.problems,
        }
        emit_json(
            document(
                "suspects",
                run=run.folder,
                ok=ended is None and not wrong and not bad,
                message=message,
                environment=run.meta.get("environment"),
                rest=rest,
            )
        )
    elif params["drain_hosts"]:
        drain(answer.drain_hosts)
        show(f"{one_line(message)}\n", sys.stderr)
    else:
        lines = [f"# {SHARED_GPU}, only what differs"] if run.plan.share_gpu else []
        lines += suspect_lines(answer, left_out)
        lines += [f"report: {report}"] if report else []
        colour = "red" if bad or wrong or ended else "yellow" if answer.is_blind else "bold"
        lines.append(coloured(one_line(message), colour, sys.stdout))
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code
