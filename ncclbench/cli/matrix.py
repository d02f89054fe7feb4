"""``ncclbench matrix``: every pair of ranks or hosts, and the odd ones named."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.jobs import rank_count, run_job
from ncclbench.cli.options import (
    SectionedCommand,
    exit_zero_option,
    json_option,
    launch_options,
    option,
    under,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.recording import has_dumps
from ncclbench.cli.searching import (
    host_numbers,
    one_arm,
    pairs_of,
    run_search,
    search_options,
    size_of,
    tell,
    until_s,
)
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, NcclbenchError, RequestError
from ncclbench.supervise.launcher import find_seat
from ncclbench.terminal.streams import coloured, show, write

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
    seat = find_seat(os.environ, params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    if nranks < 2:
        raise RequestError("a pair takes two ranks: give --nproc-per-node 2, or start more")
    return run_job("matrix", seat, nranks, params["as_json"], lambda job: _lead(job, arm, params))


def _plan(params: Mapping[str, Any]) -> int:
    """What would be measured, without starting anything."""
    nproc = params["nproc_per_node"] or count_gpus() or 1
    host_of = [host for host in range(params["nnodes"] or 1) for _ in range(nproc)]
    if len(host_of) < 2:
        raise RequestError("a pair takes two ranks: give --nnodes, --nproc-per-node or both")
    plan = pairs_of(params, host_of, size_of(params, bool(count_gpus())))
    told = {
        "nranks": len(host_of),
        "hosts": host_of[-1] + 1,
        "level": params["level"],
        "pairs": plan.pairs,
        "pairs_in_all": plan.pairs_in_all,
        "rounds": len(plan.rounds),
        "passes": plan.passes,
        "seconds": plan.seconds,
        "not_looked_at": plan.not_looked_at,
    }
    message = (
        f"{plan.pairs:,} of {plan.pairs_in_all:,} pairs of {params['level']}s in {len(plan.rounds):,} "
        f"rounds, {plan.passes} times each: about {plan.seconds:.0f} s"
    )
    if plan.not_looked_at:
        message += f"; not looked at: {plan.not_looked_at}"
    if params["as_json"]:
        emit_json(document("matrix", ok=True, message=message, rest={"plan": told}))
    else:
        write(f"{message}\n", sys.stdout)
    return EXIT_OK


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
        tell(f"{plan.pairs:,} pairs, {plan.passes} passes, about {plan.seconds:.0f} s")

        def told(tests: Sequence[Probe]) -> None:
            keep(tests)
            tell(f"pass {tests[0].turn + 1} of {plan.passes} done" if tests else "")

        yield from pair_passes(plan, size, told, 0, plan.passes, until_s(params))

    run, ended = run_search(job, "matrix", arm, params, {}, orders)
    if ended is None and not run.probes:
        raise RequestError("--level host takes two hosts, and all ranks are on one: leave it out")
    return _conclude(run, ended, not_looked_at, params)


def _conclude(
    run: Run, ended: NcclbenchError | None, not_looked_at: list[str], params: Mapping[str, Any]
) -> int:
    """Show what the links are like; the exit code."""
    from ncclbench.attribution.attribute import attribute
    from ncclbench.attribution.evidence import evidence_of, wrong_pairs
    from ncclbench.attribution.links import link_rows
    from ncclbench.report.build import write_report
    from ncclbench.store.folder import REPORT_FILE
    from ncclbench.terminal.links import matrix_lines

    evidence = evidence_of(run)
    links = link_rows(evidence)
    answer = attribute(evidence)
    wrong = wrong_pairs(run)
    report = run.folder / REPORT_FILE
    has_report = bool(links) or has_dumps(run.folder)
    if has_report:
        write_report([run], report)
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
            "links": links,
            "odd": odd,
            "drain_hosts": answer.drain_hosts,
            "not_looked_at": not_looked_at[0] if not_looked_at else None,
            "hosts": evidence.places.hosts,
            "host_of": evidence.places.host_of,
            "report": report if has_report else None,
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
        write("".join(f"{name}\n" for name in answer.drain_hosts), sys.stdout)
        show(f"{message}\n", sys.stderr)
    else:
        lines = matrix_lines(links, evidence.places)
        if not_looked_at:
            lines.append(f"not looked at: {not_looked_at[0]}")
        lines += [f"report: {report}"] if has_report else []
        lines.append(coloured(message, "red" if code or odd else "bold", sys.stdout))
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code
