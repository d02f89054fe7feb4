"""``ncclbench sweep``: the main job, from the command line to the table, the run folder and the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli.cases import CasesCommand, cases_of, cases_option
from ncclbench.cli.declaring import typed_options
from ncclbench.cli.files import kept_run, new_run_folder
from ncclbench.cli.jobs import rank_count, run_job, typed_command
from ncclbench.cli.options import (
    arm_options,
    arms_from,
    exit_zero_option,
    json_option,
    launch_options,
    method_from,
    method_options,
    run_options,
    selection_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.planned import plan_from_file, plan_option, source_of_plan
from ncclbench.cli.preset import load_preset, merged, preset_option, refuse_cases_with_preset, world_of
from ncclbench.cli.recording import has_dumps, recorder_option
from ncclbench.cli.requiring import hold, require_options
from ncclbench.cli.stepping import run_alone, run_led
from ncclbench.cli.steps import Steps, former_steps, holds_preset, new_steps
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import (
    EXIT_BAD_ANSWER,
    EXIT_OK,
    NcclbenchError,
    RequestError,
    WriteRefused,
)
from ncclbench.plan.arms import arms_device
from ncclbench.plan.build import build_plan
from ncclbench.plan.environments import check_environments
from ncclbench.plan.model import Device, Plan
from ncclbench.plan.runnable import check_arm
from ncclbench.supervise.launcher import Seat, find_seat
from ncclbench.tables.topologies import Placement
from ncclbench.terminal.streams import show
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.store.folder import RunFolder
    from ncclbench.store.model import Run, Stop
    from ncclbench.supervise.launch import Job

# What --resume may stand beside: the rest is in the run.
_BESIDE_RESUME = {
    "--resume",
    "--arm-env",
    "--flight-recorder",
    "--require",
    "--unclear",
    "--json",
    "--exit-zero",
}
# And --plan: the rest is in the file.
_BESIDE_PLAN = (_BESIDE_RESUME - {"--resume"}) | {"--plan", "--nproc-per-node", "--out", "--label"}


@click.command(
    "sweep",
    cls=CasesCommand,
    epilog="Example: ncclbench sweep --ops all_reduce,broadcast -b 8 -e 64M",
)
@preset_option
@plan_option
@cases_option
@selection_options
@arm_options
@method_options
@launch_options
@run_options
@recorder_option
@require_options
@json_option
@exit_zero_option
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Measure collectives over sizes, types and backends: a table, a run folder and a report to share."""
    if params["resume"] is not None and not holds_preset(params["resume"]):
        beside = [name for name in typed_options(ctx) if name not in _BESIDE_RESUME]
        if beside:
            raise RequestError(f"--resume takes everything from the run: leave {', '.join(beside)} away")
    if params["plan"] is not None:
        beside = [name for name in typed_options(ctx) if name not in _BESIDE_PLAN]
        if beside:
            raise RequestError(f"--plan says what is measured and how: leave {', '.join(beside)} away")
    refuse_cases_with_preset(params)
    typed = typed_options(ctx)
    seat = find_seat(variables(), params["nproc_per_node"])
    if seat is None:
        params, steps = _chosen(ctx, params, None)
        if steps is not None:
            return run_alone(steps)
    # Under a launcher rank 0 alone reads files, and hosts are known once the others are met; what else is
    # wrong is said before.
    is_read = any(params[name] for name in ("preset", "plan", "cases_from"))
    from_rank_0 = params["resume"] is not None or (seat is not None and is_read)
    plan = None if from_rank_0 else _plan(params, typed, seat)
    # What is wrong with the run or its folder is said before anything starts; under a launcher the
    # others are met first, so that all of them end with the same code.
    work = _prepare(plan, seat, params) if seat is None else None

    def lead(job: Job) -> int:
        mine, placed = params, plan
        if seat is not None:
            mine, steps = _chosen(ctx, params, seat)
            if steps is not None:
                return run_led(steps, job)
        if mine["resume"] is None and (from_rank_0 or (plan is not None and plan.groups)):
            placed = _plan(mine, typed, seat, job.placement())
        return _lead(job, work or _prepare(placed, seat, mine), mine, typed)

    nranks = work.plan.nranks if work else 0
    try:
        return run_job("sweep", seat, nranks, params["as_json"], lead, params["arm_env"], may_have_steps=True)
    finally:
        if work is not None:
            work.folder.close()


def _chosen(
    ctx: click.Context, params: dict[str, Any], seat: Seat | None
) -> tuple[dict[str, Any], Steps | None]:
    """What the command does: the options of one sweep, or several steps.

    Raises:
        RequestError: no such preset, or options that do not go with it.
    """
    if holds_preset(params["resume"]):
        return params, former_steps(ctx, seat)
    if params["preset"] is None:
        return params, None
    preset = load_preset(params["preset"])
    world = world_of(seat, params["nproc_per_node"])
    if preset.is_plain_sweep:
        return merged(ctx, preset.steps[0], world), None
    return params, new_steps(ctx, preset, world, seat)


@dataclass(frozen=True, slots=True)
class _Work:
    """What rank 0 sets out to do: a plan, the run it goes on with if any, and the open folder."""

    plan: Plan
    former: Run | None
    folder: RunFolder


def _prepare(plan: Plan | None, seat: Seat | None, params: Mapping[str, Any]) -> _Work:
    """Read the run to resume, if one is, and open the folder.

    Raises:
        RequestError: no such run, another number of ranks, or a folder that cannot be written.
    """
    from ncclbench.store.folder import RunFolder

    if plan is None:
        former = _former(Path(params["resume"]))
        _check_world(former, seat)
        for arm in former.plan.arms:
            check_arm(arm)
        check_environments(former.plan.arms, params["arm_env"] or {})
        return _Work(former.plan, former, RunFolder.reopen(former.folder))
    check_environments(plan.arms, params["arm_env"] or {})
    return _Work(plan, None, new_run_folder(params["out"], params["label"]))


def _former(folder: Path) -> Run:
    from ncclbench.store.reader import load_run

    run = load_run(folder)
    if run.meta.get("kind") != "sweep":
        raise RequestError(f"{folder} is no run of ncclbench sweep: there is nothing to resume in it")
    return run


def _check_world(former: Run, seat: Seat | None) -> None:
    """A resumed run must find as many ranks on as many hosts as it began with."""
    nranks = former.plan.nranks
    if seat is not None and seat.world_size != nranks:
        raise RequestError(
            f"the run has {nranks} ranks, {seat.world_size} were launched: resume it as it began"
        )
    hosts = len(former.meta.get("environment", {}).get("hosts", []))
    if seat is None and hosts > 1:
        raise RequestError(f"the run was measured on {hosts} hosts: resume it under the same launcher")


def _plan(
    params: Mapping[str, Any], typed: Sequence[str], seat: Seat | None, placement: Placement | None = None
) -> Plan:
    if params["plan"] is not None:
        return plan_from_file(Path(params["plan"]), seat, params["nproc_per_node"], placement)
    machine: Device = "cuda" if count_gpus() else "cpu"
    arms = arms_from(params, machine)
    nranks = rank_count(seat, params["nproc_per_node"])
    return build_plan(
        cases_of(params, typed, nranks).selections,
        arms,
        nranks=nranks,
        local_ranks=seat.local_size if seat is not None else nranks,
        device=arms_device(arms, machine),
        method=method_from(params, arms),
        placement=placement,
    )


def _lead(job: Job, work: _Work, params: Mapping[str, Any], typed: Sequence[str]) -> int:
    """Rank 0: measure, then write and show what came of it, also when it ended early."""
    from ncclbench.supervise.attempts import Description, new_meta
    from ncclbench.supervise.session import Session
    from ncclbench.terminal.show import TerminalListener

    former = work.former
    if former is None:
        came_from = _came_from(params, typed, work.plan.nranks)
        description = Description(typed_command(), params["label"], datetime.now(UTC))
        meta = new_meta("sweep", work.plan, description, **came_from)
    else:
        meta = former.meta
    listener = TerminalListener(
        as_json=params["as_json"],
        earlier=former.units if former else None,
        stopped=_stopped(former) if former else None,
    )
    ended: NcclbenchError | None = None
    with work.folder as folder:
        try:
            if former is None or lacks_units(former):
                Session(
                    job, work.plan, folder, meta, former, listener, _load_the_rest, params["flight_recorder"]
                ).measure()
            elif not params["as_json"]:
                show(f"# nothing is missing in {folder.path}: all its cases were measured\n", sys.stdout)
        except NcclbenchError as error:
            ended = error
        finally:
            listener.ended()
        return _conclude(folder.path, ended, params)


def _came_from(params: Mapping[str, Any], typed: Sequence[str], nranks: int) -> dict[str, Any]:
    """What run.json says of where the cases came from; what was left out of dumps is said to people too."""
    if params["plan"] is not None:
        return source_of_plan(Path(params["plan"]))
    cases = cases_of(params, typed, nranks)
    cases.tell()
    return cases.came_from


def lacks_units(run: Run) -> bool:
    """Whether there is anything left to measure in a run: its samples tell, not only its own word."""
    if run.meta.get("status") != "complete":
        return True
    return len(_stopped(run)) < len(run.plan.planned)


def _stopped(run: Run) -> dict[str, Stop | None]:
    """Keys of the cases that have, on every arm that takes them, all the epochs they were to get; and why."""
    arms = run.meta.get("arms", {})
    there = [arm.id for arm in run.plan.arms if arms.get(arm.id, {}).get("status", "ok") == "ok"]
    found = {}
    for case in run.plan.planned:
        stop = run.stops.get(case.key)
        wanted = stop.epochs if stop is not None else run.plan.epochs
        measured = [
            len(run.units.get((case.key, arm), ())) for arm in there if (case.key, arm) not in run.statuses
        ]
        if all(epochs >= wanted for epochs in measured):
            found[case.key] = stop
    return found


def _load_the_rest() -> None:
    """Import what rows and the report need: half a second that costs nothing while workers start."""
    import scipy.optimize  # noqa: F401

    import ncclbench.compare.paired
    import ncclbench.report.build
    import ncclbench.stats.rows  # noqa: F401


def _conclude(folder: Path, ended: NcclbenchError | None, params: Mapping[str, Any]) -> int:
    """Write summary and report of what is there, show the end, and find the exit code."""
    from ncclbench.compare.paired import compare_run
    from ncclbench.report.build import write_report
    from ncclbench.report.marks import is_unstable
    from ncclbench.stats.fits import run_fits
    from ncclbench.stats.rows import run_rows, write_summary_csv
    from ncclbench.store.folder import REPORT_FILE, SUMMARY_FILE
    from ncclbench.terminal.show import show_conclusion

    run = kept_run(folder, ended)
    rows = run_rows(run)
    comparisons = compare_run(run)
    held = hold([(run, rows)], params)
    cut_short = ended is not None
    report = folder / REPORT_FILE
    has_report = bool(run.units) or has_dumps(folder)
    try:
        if run.units:
            write_summary_csv(rows, folder / SUMMARY_FILE)
        if has_report:
            write_report([run], report, held.judged)
    except NcclbenchError as error:
        # A full disk that has ended the run ends this too; the first word counts.
        ended = ended or error
    wrong = [row for row in rows if row["status"] == "wrong"]
    code = ended.exit_code if ended is not None else EXIT_BAD_ANSWER if wrong else held.code
    message = str(ended) if ended is not None else _message(rows, wrong)
    if "killed by SIGKILL" in message:
        message += "; if nobody did that, memory ran out: see dmesg on that host"
    if ended is None and held.message:
        message += f"; {held.message}"
    if cut_short and run.units and "--resume" not in message and not isinstance(ended, WriteRefused):
        message = f"{message}; what was measured is kept, go on with ncclbench sweep --resume {folder}"
    if params["as_json"]:
        emit_json(
            document(
                "sweep",
                run=folder,
                ok=code == EXIT_OK and not held.fails,
                message=message,
                environment=run.meta.get("environment"),
                rest={
                    "rows": rows,
                    "arms": run.meta.get("arms", {}),
                    "fits": [fit.to_json() for fit in run_fits(run)],
                    "comparisons": comparisons,
                    "cases_from": run.meta.get("cases_from"),
                    **held.to_json(),
                    "preflight": run.meta.get("preflight", []),
                    "problems": run.problems,
                },
            )
        )
    show_conclusion(
        rows,
        comparisons,
        report if has_report else None,
        unstable=sum(map(is_unstable, rows)),
        as_json=params["as_json"],
    )
    stream = sys.stderr if params["as_json"] else sys.stdout
    for line in held.lines(stream):
        show(f"{line}\n", stream)
    if ended is not None:
        show(f"ncclbench: error: {message}\n", sys.stderr)
    return code


def _message(rows: Sequence[Mapping[str, Any]], wrong: Sequence[Mapping[str, Any]]) -> str:
    measured = sum(row["status"] == "ok" for row in rows)
    others = len(rows) - measured - len(wrong)
    text = f"{count_text(measured, 'row')} measured"
    if wrong:
        first = wrong[0]
        where = f"{first['op']} {first['dtype']} {first['nbytes']} B on {first['arm']}"
        text += f", {len(wrong):,} WRONG (the first: {where})"
    if others:
        text += f", {others:,} not measured"
    return text
