"""``ncclbench transport``: weights from a trainer to its generators, one-sided and two-sided."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    backends_choice,
    epochs_choice,
    folder_choices,
    iters_choice,
    seed_choice,
    warmup_choice,
)
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import run_job
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    where_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.programs import run_program, tell, write_page
from ncclbench.cli.recording import recorder_choice
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, MeasurementError, NcclbenchError, RequestError
from ncclbench.plan.arms import arms_device, parse_arms
from ncclbench.plan.machine import available_bytes, rounded_bytes
from ncclbench.plan.model import SHARED_GPU
from ncclbench.plan.weights import parse_weights
from ncclbench.supervise.launcher import find_seat
from ncclbench.tables.transfers import TRANSFERS
from ncclbench.terminal.streams import coloured, one_line, show, write
from ncclbench.units import format_time

if TYPE_CHECKING:
    from ncclbench.plan.model import Arm, Device
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.launcher import Seat
    from ncclbench.supervise.transferring import Had

_USUAL_RANKS = 3
# What a rank holds: the weights, and what they are checked against.
_COPIES = 2

moved_options = under(
    "What is moved",
    option(
        "--weights",
        metavar="SIZE|FILE",
        default="256M",
        parse=parse_weights,
        help="So many bytes cut like a transformer, or a file with a size or shape of a tensor a line.",
    ),
    option(
        "--generators",
        metavar="N",
        otherwise="all ranks but the trainer",
        parse=values.whole(1, 4095),
        help="How many get them; short for --nproc-per-node N+1.",
    ),
    option(
        "--ways",
        metavar="NAMES",
        default="all",
        parse=values.named(TRANSFERS, "way"),
        help=f"Of {', '.join(TRANSFERS)}, separated by commas.",
    ),
    backends_choice("Process groups for the two-sided ways, interleaved."),
)

method_options = under(
    "How it is measured",
    iters_choice("Timed transfers of each way, in all epochs together.", default="12"),
    warmup_choice("Untimed ones before them, per epoch.", default="1"),
    epochs_choice("Fresh process groups, and every way once in each; intervals are over them.", default="6"),
    seed_choice,
    option(
        "--faults",
        flag=True,
        help="Also kill and stop a peer in the middle of each way, in processes of their own.",
    ),
)


@click.command("transport", cls=SectionedCommand, epilog="Example: ncclbench transport --weights 1G --faults")
@moved_options
@method_options
@under("What is kept", *folder_choices, recorder_choice)
@where_options(
    "GPUs, else 3",
    least=2,
    hung="After so long without progress a rank is called hung; one transfer must take less.",
)
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Move a model's weights from a trainer (rank 0) to generators; every byte is checked.

    One-sided ways (torch.distributed._transport, torch 2.15) write into or read from the other's memory;
    two-sided ones meet in a broadcast or in send and recv. They are not the same operation, and the answer
    says how.
    """
    seat = find_seat(variables(), params["nproc_per_node"])
    nranks = _nranks(seat, params)
    machine: Device = "cuda" if count_gpus() else "cpu"
    arms = parse_arms(params["backends"], None, machine)
    device = arms_device(arms, machine)
    _refuse_what_does_not_fit(params, device, nranks if seat is None else seat.local_size)
    return run_job("transport", seat, nranks, params["as_json"], lambda job: _lead(job, arms, params))


def _nranks(seat: Seat | None, params: Mapping[str, Any]) -> int:
    """World size: the launcher's, or as asked for.

    Raises:
        RequestError: two things say it, or there is nobody to send to.
    """
    asked, generators = params["nproc_per_node"], params["generators"]
    if seat is not None:
        if generators not in (None, seat.world_size - 1):
            raise RequestError(
                f"--generators {generators} but {seat.world_size} ranks were launched: leave the flag out"
            )
        if seat.world_size < 2:
            raise RequestError("weights take a trainer and a generator: launch 2 ranks or more")
        return seat.world_size
    if generators is not None and asked not in (None, generators + 1):
        raise RequestError(
            f"--generators {generators} takes {generators + 1} ranks, --nproc-per-node says {asked}: "
            "give one of them"
        )
    gpus = count_gpus()
    return asked or (generators + 1 if generators else max(gpus, 2) if gpus else _USUAL_RANKS)


def _refuse_what_does_not_fit(params: Mapping[str, Any], device: Device, local_ranks: int) -> None:
    """Before anything starts: twice the weights on every rank of this host.

    Raises:
        RequestError: the host has less.
    """
    needed, available = _COPIES * sum(params["weights"]) * local_ranks, available_bytes()
    if device == "cpu" and available is not None and needed > available:
        raise RequestError(
            f"{local_ranks} ranks with {rounded_bytes(sum(params['weights']))} of weights, twice each, need "
            f"{rounded_bytes(needed)} of memory, this host has {rounded_bytes(available)} available: "
            "lower --weights or --generators"
        )


def _lead(job: Job, arms: Sequence[Arm], params: Mapping[str, Any]) -> int:
    from ncclbench.supervise.transferring import STAGES, TransferPlan, transfer_orders
    from ncclbench.worker.protocol import Program

    had: Had | None = None
    plan = TransferPlan(
        arms=tuple(arm.id for arm in arms),
        ways=params["ways"],
        sizes=tuple(params["weights"]),
        generators=job.nranks - 1,
        epochs=params["epochs"],
        iters=params["iters"],
        warmup=params["warmup_iters"],
        seed=params["seed"],
    )

    def orders(environment: dict[str, Any], keep: Any) -> Generator[dict[str, Any], Any, None]:
        nonlocal had
        _refuse_on_gpus(environment, sum(plan.sizes))
        had = yield from transfer_orders(plan, keep, tell)

    def faults(environment: dict[str, Any], keep: Any, flight: str | None) -> None:
        if had is not None:
            _faults(job, arms, had, keep, params)

    request = {
        "arms": [[arm.id, arm.backend] for arm in arms],
        "ways": list(plan.ways),
        "sizes": list(plan.sizes),
        "seed": plan.seed,
        "stages": list(STAGES),
        "words": list(STAGES.values()),
        "share_gpu": params["share_gpu"],
    }
    asked = {
        "nbytes": sum(plan.sizes),
        "tensors": len(plan.sizes),
        "generators": plan.generators,
        "epochs": plan.epochs,
        "iters": plan.iters,
        "warmup": plan.warmup,
        "seed": plan.seed,
        "faults": params["faults"],
    }
    program = Program("transport", request)
    afterwards = faults if params["faults"] else None
    run, ended = run_program(job, "transport", tuple(arms), params, asked, program, orders, afterwards)
    return _conclude(run, ended, params)


def _refuse_on_gpus(environment: Mapping[str, Any], nbytes: int) -> None:
    """Before anything is measured: twice the weights on every GPU.

    Raises:
        RequestError: one has less.
    """
    from ncclbench.environment.collect import whole_ranks

    for rank in whole_ranks(environment):
        total = (rank.get("gpu") or {}).get("memory_total_bytes")
        if total is not None and _COPIES * nbytes > total:
            raise RequestError(
                f"{rounded_bytes(nbytes)} of weights, twice, do not fit on the GPU of rank {rank['rank']} "
                f"with {rounded_bytes(total)}: lower --weights"
            )


def _faults(job: Job, arms: Sequence[Arm], had: Had, keep: Any, params: Mapping[str, Any]) -> None:
    """Every fault in every way that could be had, on every arm that could, on this host."""
    from ncclbench.faults.transfer_cells import CELL_BYTES, FAULTS, TIMEOUT_S, run_cell
    from ncclbench.faults.transfer_rank import CellTask
    from ncclbench.stats.transport import way_name

    backends = {arm.id: arm.backend for arm in arms}
    for way, arm in had.entries:
        for fault in FAULTS:
            tell(f"{way_name(way, arm)}: {fault}")
            task = CellTask(
                way=way,
                arm=None if arm is None else (arm, backends[arm]),
                device=had.device,
                nbytes=min(CELL_BYTES, sum(params["weights"])),
                timeout_s=min(TIMEOUT_S, params["timeout"]),
                seed=params["seed"],
                share_gpu=params["share_gpu"],
            )
            keep([run_cell(task, fault, job.signals)])


def _with_hint(ended: NcclbenchError, timeout_s: float) -> NcclbenchError:
    """A transfer that takes longer than the timeout looks like a hang: say so where it may be one."""
    from ncclbench.supervise.transferring import STAGES

    text = str(ended)
    waited = f"{timeout_s:.0f} s", f"{timeout_s:g} s", f"{1e3 * timeout_s:.0f}ms"
    if not isinstance(ended, MeasurementError) or STAGES["moving"] not in text:
        return ended
    if not any(words in text for words in waited):
        return ended
    hinting = MeasurementError(f"{text}; if one transfer of such weights may take so long, raise --timeout")
    hinting.run = ended.run
    return hinting


def _conclude(run: Run, ended: NcclbenchError | None, params: Mapping[str, Any]) -> int:
    """Show what was found; the exit code."""
    import msgspec

    from ncclbench.stats.transport import latency_rows, transfer_faults, transfer_rows
    from ncclbench.stats.transport_words import headline, sentence
    from ncclbench.terminal.transport import transport_lines

    rows = transfer_rows(run.results, run.plan.share_gpu)
    latency, faults = latency_rows(run.results), transfer_faults(run.results)
    report, ended = write_page(run, ended)
    message = headline(rows, format_time)
    wrong = any(row.status == "wrong" for row in rows)
    code = EXIT_BAD_ANSWER if wrong else EXIT_OK
    if ended is not None:
        ended = _with_hint(ended, params["timeout"])
        message, code = f"{ended}; until then: {message}", ended.exit_code
    if params["as_json"]:
        rest = {
            "weights": {"nbytes": sum(params["weights"]), "tensors": len(params["weights"])},
            "rows": [row.to_json() for row in rows],
            "latency": [row.to_json() for row in latency],
            "faults": msgspec.to_builtins(faults),
            "shared_gpu": run.plan.share_gpu,
            "report": report,
            "problems": run.problems,
        }
        emit_json(
            document(
                "transport",
                run=run.folder,
                ok=code == EXIT_OK,
                message=message,
                environment=run.meta.get("environment"),
                rest=rest,
            )
        )
    else:
        lines = [f"# {SHARED_GPU}"] if run.plan.share_gpu else []
        lines += transport_lines(rows, latency, faults)
        lines += [f"report: {report}"] if report is not None else []
        said = [sentence(row, format_time) for row in rows if row.status != "unavailable"]
        colour = "red" if code else "bold"
        lines += [coloured(one_line(text), colour, sys.stdout) for text in said or [message]]
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code
