"""A program of the workers as a run: its folder, its attempt, and every result written as it is made."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from ncclbench.environment.preflight import findings
from ncclbench.errors import NcclbenchError
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import Line, encode_line
from ncclbench.supervise.attempts import Description, begin_attempt, end_attempt, new_meta
from ncclbench.supervise.conversation import Conversation
from ncclbench.supervise.evidence import run_path
from ncclbench.supervise.launch import Job
from ncclbench.worker.protocol import Program

Orders = Generator[dict[str, Any], Any, None]
Keep = Callable[[Sequence[Line]], None]

# Makes the orders, of the environment and of what keeps the results.
MakeOrders = Callable[[dict[str, Any], Keep], Orders]

# What rank 0's supervisor does once the workers have ended, given the same two and where flight recorders are
# to be kept of workers that it starts, as in ``Assignment``.
Afterwards = Callable[[dict[str, Any], Keep, str | None], None]


def program_meta(
    kind: str,
    arms: tuple[Arm, ...],
    nranks: int,
    description: Description,
    asked: dict[str, Any],
    share_gpu: bool = False,
) -> dict[str, Any]:
    """run.json of a program that has not begun.

    Args:
        kind: as in run.json: "matrix", "suspects", "overlap", "p2p", "transport" or "groups".
        asked: the options that matter for reading the results, plain data.
        share_gpu: ranks may share a GPU.
    """
    return new_meta(kind, unplanned(arms, nranks, share_gpu), description, asked=asked)


def hold_program(
    job: Job,
    folder: RunFolder,
    meta: dict[str, Any],
    program: Program,
    timeout_s: float,
    make_orders: MakeOrders,
    started: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    flight_recorder: bool = False,
    afterwards: Afterwards | None = None,
) -> None:
    """Go through the orders; on every way out run.json says how it ended, and what was found is kept.

    Args:
        started: told of the environment and the preflight, before anything is measured.
        flight_recorder: keep the ranks' flight recorders where it fails.
        afterwards: what belongs to the run and takes processes of its own.

    Raises:
        RequestError: the preflight forbids it, or the arm cannot be had.
        Interrupted, MeasurementError: a signal came, or a rank died or hung.
    """
    begin_attempt(folder, meta, job.launcher)
    backends = [arm["backend"] for arm in meta["plan"]["arms"]]

    def consent(environment: dict[str, Any]) -> str | None:
        found = findings(
            environment,
            nranks=job.nranks,
            backends=backends,
            share_gpu=bool(program.request.get("share_gpu")),
        )
        meta["environment"], meta["preflight"] = environment, found
        folder.write_meta(meta)
        started(environment, found)
        refusal = next((entry for entry in found if entry["severity"] == "error"), None)
        return None if refusal is None else f"{refusal['what']}: {refusal['mend']}"

    try:
        with folder.samples() as samples:

            def keep(results: Sequence[Line]) -> None:
                samples.append(b"".join(encode_line(result) for result in results))

            flight = run_path(folder.path) if flight_recorder else None
            conversation: Conversation[None] = Conversation(job, program, timeout_s, consent, flight)
            conversation.hold(lambda environment: make_orders(environment, keep))
            if afterwards is not None:
                afterwards(meta["environment"], keep, flight)
    except NcclbenchError as error:
        end_attempt(folder, meta, error)
        raise
    end_attempt(folder, meta, None)
