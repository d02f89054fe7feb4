"""``ncclbench plan``: what a sweep would run, how long, in how much memory, and what it could find."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.cases import Cases, CasesCommand, cases_of, cases_option
from ncclbench.cli.declaring import option, typed_options, under
from ncclbench.cli.files import free_file
from ncclbench.cli.jobs import rank_count, typed_command
from ncclbench.cli.options import (
    arm_options,
    arms_from,
    json_option,
    launch_options,
    method_from,
    method_options,
    selection_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.preset import drilled_ranks, load_preset, merged, preset_option, refuse_cases_with_preset
from ncclbench.cli.steps import refuse_of_one_sweep
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_OK, RequestError
from ncclbench.plan.arms import arms_device
from ncclbench.plan.build import build_plan
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Device, Plan
from ncclbench.plan.preset import Preset, World
from ncclbench.tables.backends import find_backend
from ncclbench.terminal.streams import one_line, show, write
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.compare.forecast import Forecast

_MOST_RANKS = 1 << 20

_world_options = under(
    "Where it runs",
    option(
        "--machine",
        metavar="FILE",
        otherwise="this one",
        parse=values.path,
        help="What each host is: a TOML file, a run, or what ncclbench env --json wrote.",
    ),
    option(
        "--world-size",
        metavar="N",
        otherwise="the ranks of a host",
        parse=values.whole(1, _MOST_RANKS),
        help="Ranks in the job, on hosts like that machine.",
    ),
)
_out_option = under(
    "What is kept",
    option("--out", metavar="FILE", parse=values.path, help="Write the plan, for ncclbench sweep --plan."),
)


@click.command(
    "plan",
    cls=CasesCommand,
    epilog="Example: ncclbench plan --backends nccl2,nccl-legacy --world-size 64 --nproc-per-node 8",
)
@preset_option
@cases_option
@selection_options
@arm_options
@method_options
@_world_options
@launch_options
@_out_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Show what a sweep with these options would run: cases, time, memory, and the smallest effect it finds.

    Nothing is measured. Times and effects come from this machine's calibration (ncclbench calibrate).
    """
    hosts = _hosts(params)
    typed = typed_options(ctx)
    refuse_cases_with_preset(params)
    if params["preset"] is not None:
        preset, world = load_preset(params["preset"]), _world(params, hosts)
        if not preset.is_plain_sweep:
            return _plan_steps(ctx, preset, world, hosts)
        params = merged(ctx, preset.steps[0], world)
    file = None
    if params["out"] is not None:
        # A link is followed: what it points to is replaced, not the link.
        file = free_file(Path(os.path.realpath(params["out"])), "name a file with --out")
    cases = cases_of(params, typed, hosts.nranks)
    foretold = _foretell(_plan(params, hosts, cases))
    cases.tell()
    plan, told, message, calibration = foretold.plan, foretold.told, foretold.message, foretold.calibration
    dumps = cases.came_from.get("cases_from")
    if file is not None:
        from ncclbench.store.plans import write_plan

        write_plan(file, plan, hosts.machine, hosts.local_ranks, typed_command(), dumps)
        message += f"; run it with ncclbench sweep --plan {file}"
    if params["as_json"]:
        emit_json(
            document(
                "plan",
                ok=True,
                message=message,
                rest={
                    "rows": told.rows,
                    "seconds": told.seconds,
                    "seconds_at_most": told.at_most,
                    "bytes_per_rank": plan.bytes_per_rank,
                    "nranks": plan.nranks,
                    "hosts": -(-plan.nranks // hosts.local_ranks),
                    "machine": hosts.machine.to_json(),
                    "file": file,
                    "cases_from": dumps,
                    "family": told.family,
                    "calibration": _source(calibration),
                },
            )
        )
    else:
        # A sentence a line: together they are several times as wide as a terminal.
        lines = [*hosts.lines(), *foretold.lines(message)]
        write("\n".join(lines) + "\n", sys.stdout)
    return EXIT_OK


@dataclass(frozen=True, slots=True)
class _Foretold:
    """A plan and what is known of it beforehand."""

    plan: Plan
    told: Forecast
    message: str
    calibration: Mapping[str, Any] | None

    def lines(self, message: str) -> list[str]:
        """For people; a sentence of the message a line: together they are wider than a terminal."""
        from ncclbench.terminal.planned import plan_lines

        return [*plan_lines(self.plan, self.told), message.replace("; ", ";\n  ")]


def _foretell(plan: Plan) -> _Foretold:
    from ncclbench.compare.forecast import forecast
    from ncclbench.store.calibrations import find_here
    from ncclbench.terminal.planned import conclusion

    base = next(arm for arm in plan.arms if arm.id == plan.base_arm)
    calibration = find_here(
        plan.nranks, base.backend, lambda line: show(f"ncclbench: {one_line(line)}\n", sys.stderr)
    )
    told = forecast(plan, calibration)
    return _Foretold(plan, told, conclusion(plan, told, calibration), calibration)


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Where the job would run.

    Attributes:
        machine: what each host is.
        is_here: that is this machine, not one from a file.
        nranks: in the job.
        local_ranks: on the fullest host.
    """

    machine: Machine
    is_here: bool
    nranks: int
    local_ranks: int

    def lines(self) -> list[str]:
        """For people: which machines it is about, where it is not this one alone."""
        count = -(-self.nranks // self.local_ranks)
        if self.is_here and count == 1:
            return []
        like = "this machine" if self.is_here else self.machine.name
        full = f" with {count_text(self.local_ranks, 'rank')} each"
        return [f"# {count_text(count, 'host')} like {like}{full if count > 1 else ''}"]


def _hosts(params: Mapping[str, Any]) -> _Hosts:
    asked = params["nproc_per_node"]
    if params["machine"] is None:
        local_ranks = rank_count(None, asked)
        machine = Machine.here("cuda" if count_gpus() else "cpu", local_ranks)
    else:
        machine = Machine.read(Path(params["machine"]))
        local_ranks = asked or machine.ranks_per_host
        if local_ranks > machine.ranks_per_host:
            raise RequestError(
                f"--nproc-per-node {local_ranks} is more than the {machine.ranks_per_host} ranks that a host "
                f"of {params['machine']} takes: lower it, or raise ranks_per_host there"
            )
    nranks = params["world_size"] or local_ranks
    if asked is not None and local_ranks > nranks:
        raise RequestError(
            f"--nproc-per-node {local_ranks} is more than --world-size {nranks}: lower one or raise the other"
        )
    return _Hosts(machine, params["machine"] is None, nranks, min(local_ranks, nranks))


def _plan(params: Mapping[str, Any], hosts: _Hosts, cases: Cases) -> Plan:
    """Where nothing says what machine it is, a plan for GPUs can be made where there are none."""
    arms = arms_from(params, hosts.machine.device)
    device: Device = hosts.machine.device
    if hosts.is_here and any(find_backend(arm.backend).device == "cuda" for arm in arms):
        device = "cuda"
    return build_plan(
        cases.selections,
        arms,
        nranks=hosts.nranks,
        local_ranks=hosts.local_ranks,
        device=arms_device(arms, device, "here" if hosts.is_here else f"in {hosts.machine.name}"),
        method=method_from(params, arms),
        machine=hosts.machine,
    )


def _world(params: Mapping[str, Any], hosts: _Hosts) -> World:
    """The ranks that a preset would have."""
    is_one = hosts.nranks == hosts.local_ranks
    return World(
        nranks=hosts.nranks,
        local_ranks=hosts.local_ranks,
        device=hosts.machine.device,
        drilled=drilled_ranks(params["nproc_per_node"] if hosts.is_here else hosts.local_ranks),
        launched=not is_one,
    )


def _plan_steps(ctx: click.Context, preset: Preset, world: World, hosts: _Hosts) -> int:
    """Of a preset of several steps: what each sweep among them would run; the others are named."""
    refuse_of_one_sweep(ctx, preset, ("--machine", "--world-size"))
    if ctx.params["out"] is not None:
        raise RequestError(
            f"--out writes the plan of one sweep, and {preset.source} has several steps: leave it out"
        )
    rows: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    lines = hosts.lines()
    for step in preset.steps:
        why, foretold = step.why_not(world), None
        if why is None and step.command == "sweep":
            try:
                mine = merged(ctx, step, world)
                foretold = _foretell(_plan(mine, hosts, cases_of(mine, typed_options(ctx), hosts.nranks)))
            except RequestError as error:
                why = str(error)
        elif why is None:
            why = "a plan is of sweeps"
        lines.append(f"# step {step.name}: ncclbench {step.command}")
        lines += [f"not planned: {why}"] if foretold is None else foretold.lines(foretold.message)
        if foretold is not None:
            rows += [{"step": step.name, **row} for row in foretold.told.rows]
        steps.append(
            {
                "name": step.name,
                "command": step.command,
                "planned": foretold is not None,
                "reason": None if foretold is not None else f"not planned: {why}",
                "seconds": None if foretold is None else foretold.told.seconds,
                "bytes_per_rank": None if foretold is None else foretold.plan.bytes_per_rank,
            }
        )
    planned = [step for step in steps if step["planned"]]
    seconds = [step["seconds"] for step in planned]
    message = (
        f"{len(planned)} of {len(steps)} steps planned; all of them are run by "
        f"ncclbench sweep --preset {shlex.quote(str(ctx.params['preset']))}"
    )
    if ctx.params["as_json"]:
        rest = {
            "preset": preset.name,
            "steps": steps,
            "rows": rows,
            "seconds": None if None in seconds else sum(seconds),
            "bytes_per_rank": max((step["bytes_per_rank"] for step in planned), default=None),
            "nranks": hosts.nranks,
            "machine": hosts.machine.to_json(),
        }
        emit_json(document("plan", ok=True, message=message, rest=rest))
    else:
        write("\n".join([*lines, message]) + "\n", sys.stdout)
    return EXIT_OK


def _source(calibration: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Which calibration was used."""
    if calibration is None:
        return None
    return {key: calibration[key] for key in ("created", "hosts", "nranks", "backend", "false_verdict_rate")}
