"""``ncclbench overlap``: how much of communication hides behind compute, with a control beside it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    backends_choice,
    dtypes_choice,
    epochs_choice,
    folder_choices,
    iters_choice,
    seed_choice,
    size_choices,
    sizes_from,
)
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import rank_count, run_job
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    launch_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.programs import run_program, tell, write_page
from ncclbench.cli.recording import recorder_choice
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_FAILED, EXIT_OK, NcclbenchError, RequestError
from ncclbench.kernels import KINDS
from ncclbench.plan.arms import arms_device, parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Device, Plan
from ncclbench.plan.sizes import UsualSizes
from ncclbench.supervise.launcher import Seat, find_seat
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.terminal.streams import coloured, one_line, show, write

if TYPE_CHECKING:
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job

# A size below it takes less than launching what is to hide it.
_SIZES = UsualSizes("64K", "64M", "4")
_EPOCHS, _REPETITIONS = 6, 4
_MODES = {"eager": None, "graph": None}


def _ops(text: str, name: str) -> tuple[str, ...]:
    """Operations that something can hide: those that move data and can be issued without waiting."""
    asked: tuple[str, ...] = values.named(COLLECTIVES, "collective")(text, name)
    fit = [op for op in asked if COLLECTIVES[op].has_data and COLLECTIVES[op].asynchronous]
    if text.strip() != "all" and (unfit := [op for op in asked if op not in fit]):
        what = "has no async form" if COLLECTIVES[unfit[0]].has_data else "moves no data"
        raise RequestError(f"{name}: {unfit[0]} {what}, so there is nothing to hide: leave it out")
    return tuple(fit)


def _free(text: str, name: str) -> tuple[int, ...]:
    found = tuple(values.whole(0, 1000)(entry, name) for entry in values.separated(text, name))
    if len(set(found)) < len(found):
        raise RequestError(f"{name} {text!r} has a number twice: name it once")
    return found


def _ratio(text: str, name: str) -> float:
    try:
        ratio = float(text) if text.isascii() else 0.0
    except ValueError:
        ratio = 0.0
    if not 0.01 <= ratio <= 100:
        raise RequestError(f"{name} {text!r} is not a number from 0.01 to 100: write it like 1 or 0.5")
    return ratio


@click.command(
    "overlap",
    cls=SectionedCommand,
    epilog="Example: ncclbench overlap --sizes 1M,16M --compute fma,gemm",
)
@under(
    "What is measured",
    option(
        "--ops",
        metavar="NAMES",
        default="all_reduce",
        parse=_ops,
        help="Collectives, separated by commas, or all that move data; see ncclbench list.",
    ),
    *size_choices(_SIZES),
    dtypes_choice,
    backends_choice("Backends, in turns in one job on the same buffers."),
)
@under(
    "What is computed beside it",
    option(
        "--compute",
        metavar="NAMES",
        default=",".join(KINDS),
        parse=values.named(KINDS, "kernel"),
        help="Kernels: fma and gemm keep the arithmetic units busy, triad the memory.",
    ),
    option(
        "--compute-ratio",
        metavar="X",
        default="1",
        parse=_ratio,
        help="How long the compute takes, times the communication alone; all ranks agree on it.",
    ),
    option(
        "--free-sms",
        metavar="N,N",
        otherwise="0 on CUDA",
        parse=_free,
        help="On a GPU: how many multiprocessors the kernel leaves free.",
    ),
    option(
        "--modes",
        metavar="NAMES",
        default="eager",
        parse=values.named(_MODES, "mode"),
        help="eager: issued by the host; graph: both captured in one CUDA graph.",
    ),
)
@under(
    "How it is measured",
    iters_choice(
        "Repetitions of each part, in all epochs together.", otherwise=f"{_REPETITIONS} in each epoch"
    ),
    epochs_choice("Fresh sets of process groups; intervals are over them.", default=str(_EPOCHS)),
    seed_choice,
)
@under("What is kept", *folder_choices, recorder_choice)
@launch_options
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Measure communication alone, compute alone, both at once, and one after the other as a control.

    What comes of it is the part of the shorter one that hides behind the other, with its interval, and how
    much each slows the other down. Ranks of one host without GPUs contend for its cores: then it is said that
    this is no overlap figure.
    """
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = rank_count(seat, params["nproc_per_node"])
    if nranks < 2:
        raise RequestError("communication takes two ranks: give --nproc-per-node 2, or start more")
    plan = _plan(params, seat, nranks)
    return run_job("overlap", seat, nranks, params["as_json"], lambda job: _lead(job, plan, params))


def _plan(params: Mapping[str, Any], seat: Seat | None, nranks: int) -> Plan:
    """Cases and arms; every collective is issued asynchronously.

    Raises:
        RequestError: options that contradict each other, or nothing to measure.
    """
    machine: Device = "cuda" if count_gpus() else "cpu"
    arms = parse_arms(params["backends"], None, machine)
    device = arms_device(arms, machine)
    if device == "cpu" and params["free_sms"] is not None:
        raise RequestError("--free-sms is for kernels on a GPU: leave it out")
    selection = Selection(
        sizes=sizes_from(params, _SIZES),
        ops=params["ops"],
        dtypes=params["dtypes"],
        modes=("isolated",),
        async_op=(True,),
    )
    iters = params["iters"] or _REPETITIONS * params["epochs"]
    method = Method(
        iters=iters,
        epochs=params["epochs"],
        timeout_s=params["timeout"],
        share_gpu=params["share_gpu"],
        seed=params["seed"],
    )
    local_ranks = seat.local_size if seat is not None else nranks
    return build_plan(selection, arms, nranks=nranks, local_ranks=local_ranks, device=device, method=method)


def _lead(job: Job, plan: Plan, params: Mapping[str, Any]) -> int:
    from ncclbench.supervise.overlap import STAGES, Wanted, orders
    from ncclbench.worker.protocol import Program

    wanted = Wanted(
        plan=plan,
        computes=params["compute"],
        free_sms=params["free_sms"] or (0,),
        modes=params["modes"],
        ratio=params["compute_ratio"],
    )
    asked = {
        "ops": ",".join(params["ops"]),
        "compute": ",".join(params["compute"]),
        "modes": ",".join(params["modes"]),
        "compute_ratio": params["compute_ratio"],
        "epochs": plan.epochs,
        "iters": plan.iters,
        "seed": params["seed"],
        "share_gpu": params["share_gpu"],
    }
    program = Program(
        "overlap",
        {
            "plan": plan.to_json(),
            "stages": list(STAGES),
            "words": list(STAGES.values()),
            "share_gpu": params["share_gpu"],
        },
    )
    run, ended = run_program(
        job, "overlap", plan.arms, params, asked, program, lambda _, keep: orders(wanted, keep, tell)
    )
    return _conclude(run, ended, params)


def _conclude(run: Run, ended: NcclbenchError | None, params: Mapping[str, Any]) -> int:
    """Show what was found; the exit code."""
    from ncclbench.stats.overlap import overlap_rows
    from ncclbench.stats.overlap_words import sentences
    from ncclbench.terminal.overlap import overlap_lines

    rows = overlap_rows(run)
    told = sentences(run, rows)
    wrong, failed = ([row for row in rows if row["status"] == status] for status in ("wrong", "failed"))
    report, ended = write_page(run, ended)
    message = "; ".join(told) or "nothing was measured"
    if failed:
        message = f"{len(failed)} of {len(rows)} rows failed ({failed[0]['reason']}); {message}"
    if wrong:
        message = f"WRONG DATA in {len(wrong)} of {len(rows)} rows ({wrong[0]['reason']}); {message}"
    if ended is not None:
        message = f"{ended}; {message}"
    code = EXIT_BAD_ANSWER if wrong else EXIT_FAILED if failed else EXIT_OK
    if ended is not None:
        code = ended.exit_code
    if params["as_json"]:
        emit_json(
            document(
                "overlap",
                run=run.folder,
                ok=code == EXIT_OK,
                message=message,
                environment=run.meta.get("environment"),
                rest={"rows": rows, "report": report, "problems": run.problems},
            )
        )
    else:
        lines = overlap_lines(rows)
        lines += [f"report: {report}"] if report else []
        figures = any(row["meaningful"] for row in rows)
        colour = "red" if code else "bold" if figures else "yellow"
        lines.append(coloured(one_line(message), colour, sys.stdout))
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code
