"""``ncclbench plan``: what a sweep would run, how long, in how much memory, and what it could find."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import rank_count
from ncclbench.cli.options import (
    arm_options,
    json_option,
    launch_options,
    method_from,
    method_options,
    selection_from,
    selection_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_OK, RequestError
from ncclbench.plan.arms import arms_device, parse_arms
from ncclbench.plan.build import build_plan
from ncclbench.plan.model import Arm, Device, Plan
from ncclbench.tables.backends import find_backend
from ncclbench.terminal.streams import show, write

_MOST_RANKS = 1 << 20

_world_option = under(
    "Where it runs",
    option(
        "--world-size",
        metavar="N",
        otherwise="--nproc-per-node",
        parse=values.whole(1, _MOST_RANKS),
        help="Ranks in the job, on machines like this one.",
    ),
)


@click.command(
    "plan",
    cls=SectionedCommand,
    epilog="Example: ncclbench plan --backends nccl2,nccl-legacy --world-size 64 --nproc-per-node 8",
)
@selection_options
@arm_options
@method_options
@_world_option
@launch_options
@json_option
def command(**params: Any) -> int:
    """Show what a sweep with these options would run: cases, time, memory, and the smallest effect it finds.

    Nothing is measured. Times and effects come from this machine's calibration (ncclbench calibrate).
    """
    from ncclbench.compare.forecast import forecast
    from ncclbench.store.calibrations import find_here
    from ncclbench.terminal.planned import conclusion, plan_lines

    plan = _plan(params)
    base = next(arm for arm in plan.arms if arm.id == plan.base_arm)
    calibration = find_here(plan.nranks, base.backend, lambda line: show(f"ncclbench: {line}\n", sys.stderr))
    told = forecast(plan, calibration)
    message = conclusion(plan, told, calibration)
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
                    "family": told.family,
                    "calibration": _source(calibration),
                },
            )
        )
    else:
        write("\n".join([*plan_lines(plan, told), message]) + "\n", sys.stdout)
    return EXIT_OK


def _plan(params: Mapping[str, Any]) -> Plan:
    arms = parse_arms(params["backends"], params["arms"], _machine())
    local_ranks = rank_count(None, params["nproc_per_node"])
    nranks = params["world_size"] or local_ranks
    if params["nproc_per_node"] is not None and local_ranks > nranks:
        raise RequestError(
            f"--nproc-per-node {local_ranks} is more than --world-size {nranks}: lower one or raise the other"
        )
    return build_plan(
        selection_from(params),
        arms,
        nranks=nranks,
        local_ranks=min(local_ranks, nranks),
        device=_device(arms),
        method=method_from(params, arms),
    )


def _machine() -> Device:
    return "cuda" if count_gpus() else "cpu"


def _device(arms: Sequence[Arm]) -> Device:
    """Where the buffers would live. A plan for GPUs can be made where there are none."""
    needs_gpu = any(find_backend(arm.backend).device == "cuda" for arm in arms)
    return arms_device(arms, "cuda" if needs_gpu else _machine())


def _source(calibration: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Which calibration was used."""
    if calibration is None:
        return None
    return {key: calibration[key] for key in ("created", "hosts", "nranks", "backend", "false_verdict_rate")}
