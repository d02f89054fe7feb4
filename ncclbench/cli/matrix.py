"""``ncclbench matrix``: every pair of ranks or hosts, and the odd ones named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    count_of,
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
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, NcclbenchError, RequestError
from ncclbench.plan.model import SHARED_GPU
from ncclbench.supervise.launcher import find_seat
from ncclbench.terminal.streams import coloured, one_line, show, write
from ncclbench.units import count_text, format_seconds, format_time

if TYPE_CHECKING:
    from ncclbench.plan.model import Arm
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job

_PASSES = 5


@click.command("matrix", cls=SectionedCommand, epilog="Example: ncclbench matrix --nproc-per-node 4")
@search_options(_PASSES)
@under(
    "How it answers",
    option("--plan-only", flag=True, help="Say what would be measured and how long it takes, and end."),
)
@under(
    "Where it runs",
    option(
        "--nnodes",
        metavar="N",
        otherwise="1",
        parse=values.whole(1, 1 << 16),
        help="Hosts to plan for, each with --nproc-per-node ranks; only with --plan-only.",
    ),
)
@launch_options
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Measure latency and bandwidth of every pair, each way alone and both ways at once; name the odd ones.

    Pairs that run at the same time share no host, so that nobody's uplink is divided.
    """
    arm = one_arm(params)
    if params["plan_only"]:
        return _plan(params)
    if params["nnodes"] is not None:
        raise RequestError("--nnodes is for --plan-only: of a measurement the launcher decides")
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    refuse_one_host(params["level"], seat is None or seat.local_size == nranks)
    if nranks < 2:
        raise RequestError("a pair takes two ranks: give --nproc-per-node 2, or start more")
    return run_job("matrix", seat, nranks, params["as_json"], lambda job: _lead(job, arm, params))


def _plan(params: Mapping[str, Any]) -> int:
    """What would be measured, without starting anything."""
    kept = {"--out": params["out"], "--label": params["label"], "--drain-hosts": params["drain_hosts"]}
    for name, value in kept.items():
        if value:
            raise RequestError(f"{name} is for what a measurement finds: leave it out with --plan-only")
    hosts, nproc = params["nnodes"] or 1, params["nproc_per_node"] or count_gpus() or 1
    refuse_one_host(params["level"], hosts == 1)
    if hosts * nproc < 2:
        raise RequestError("a pair takes two ranks: give --nnodes, --nproc-per-node or both")
    plan = count_of(params, hosts, nproc, size_of(params, bool(count_gpus())))
    over = _over_budget(plan.seconds, params["time_budget"])
    told = {
        "nranks": hosts * nproc,
        "hosts": hosts,
        "level": params["level"],
        "pairs": plan.pairs,
        "pairs_in_all": plan.pairs_in_all,
        "rounds": plan.rounds,
        "passes": plan.passes,
        "seconds": plan.seconds,
        "within_budget": not over,
        "not_looked_at": plan.not_looked_at,
    }
    rounds = count_text(plan.rounds, "round")
    message = (
        f"{plan.pairs:,} of {plan.pairs_in_all:,} pairs of {params['level']}s in {rounds}, "
        f"{plan.passes} times each: about {format_seconds(plan.seconds)}{over}"
    )
    if plan.not_looked_at:
        message += f"; not looked at: {plan.not_looked_at}"
    if params["as_json"]:
        emit_json(document("matrix", ok=True, message=message, rest={"plan": told}))
    else:
        write(f"{one_line(message)}\n", sys.stdout)
    return EXIT_OK


def _over_budget(seconds: float, budget_s: float | None) -> str:
    """That even the fewest passes over one round take longer than was asked for; empty where they do not."""
    # As many rounds as fit can take all of the budget, and rounding a little more.
    if budget_s is None or seconds <= budget_s * (1 + 1e-9):
        return ""
    return f", more than the {format_time(1e6 * budget_s)} asked for"


def _lead(job: Job, arm: Arm, params: Mapping[str, Any]) -> int:
    from collections.abc import Generator, Sequence

    from ncclbench.store.probes import Probe

    not_looked_at: list[str] = []

    def orders(environment: dict[str, Any], keep: Any) -> Generator[dict[str, Any], Any, None]:
        from ncclbench.attribution.stages import pair_passes

        on_gpus = any(entry["device"] != "cpu" for entry in environment["ranks"])
        size = size_of(params, on_gpus)
        plan = pairs_of(params, host_numbers(environment), size)
        if plan.not_looked_at:
            not_looked_at.append(plan.not_looked_at)
        about = f"about {format_seconds(plan.seconds)}"
        if over := _over_budget(plan.seconds, params["time_budget"]):
            show(f"ncclbench: warning: the pairs take {about}{over}\n", sys.stderr)
        tell(f"{plan.pairs:,} pairs, {plan.passes} passes, {about}")

        def told(tests: Sequence[Probe]) -> None:
            keep(tests)
            tell(f"pass {tests[0].turn + 1} of {plan.passes} done" if tests else "")

        yield from pair_passes(plan, size, told, 0, plan.passes, until_s(params))

    run, ended = run_search(job, "matrix", arm, params, {}, orders)
    return _conclude(run, ended, not_looked_at, params)


def _conclude(
    run: Run, ended: NcclbenchError | None, not_looked_at: list[str], params: Mapping[str, Any]
) -> int:
    """Show what the links are like; the exit code."""
    from ncclbench.attribution.attribute import attribute
    from ncclbench.attribution.evidence import evidence_of, wrong_pairs
    from ncclbench.attribution.links import link_rows
    from ncclbench.terminal.links import matrix_lines

    evidence = evidence_of(run)
    links = link_rows(evidence)
    answer = attribute(evidence)
    wrong = wrong_pairs(run)
    report, ended = write_page(run, ended)
    left_out = [text for text in (answer.not_looked_at, *not_looked_at) if text]
    odd = [link for link in links if link["odd"]]
    message = f"{len(links):,} links, {len(odd)} odd; {answer.message}" if links else "no pair was measured"
    if wrong:
        message = f"WRONG DATA between {len(wrong)} pairs; {message}"
    if ended is not None:
        message = f"{ended}; {message}"
    code = ended.exit_code if ended is not None else EXIT_BAD_ANSWER if wrong else EXIT_OK
    if params["as_json"]:
        rest = {
            "level": params["level"],
            "links": [{**link, "shared_gpu": run.plan.share_gpu} for link in links],
            "odd": odd,
            "drain_hosts": answer.drain_hosts,
            "not_looked_at": "; ".join(left_out) or None,
            "hosts": evidence.places.hosts,
            "host_of": evidence.places.host_of,
            "report": report,
            "problems": run.problems,
        }
        environment = run.meta.get("environment")
        emit_json(
            document(
                "matrix",
                run=run.folder,
                ok=code == EXIT_OK,
                message=message,
                environment=environment,
                rest=rest,
            )
        )
    elif params["drain_hosts"]:
        drain(answer.drain_hosts)
        show(f"{one_line(message)}\n", sys.stderr)
    else:
        lines = [f"# {SHARED_GPU}, only what differs"] if run.plan.share_gpu else []
        lines += matrix_lines(links, evidence.places)
        lines += [one_line(f"# not looked at: {text}") for text in left_out]
        lines += [f"report: {report}"] if report else []
        lines.append(coloured(one_line(message), "red" if code or odd else "bold", sys.stdout))
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code
