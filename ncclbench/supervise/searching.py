"""A search for slow parts as a run: its folder, its attempt, and every single test written as it is made."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from ncclbench.environment.preflight import findings
from ncclbench.errors import NcclbenchError
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.probes import Probe
from ncclbench.supervise.attempts import Description, begin_attempt, end_attempt, new_meta
from ncclbench.supervise.conversation import Conversation
from ncclbench.supervise.evidence import run_path
from ncclbench.supervise.launch import Job
from ncclbench.worker.protocol import Program

Orders = Generator[dict[str, Any], Any, None]
Keep = Callable[[Sequence[Probe]], None]

# Makes the orders, of the environment and of what keeps the tests.
MakeOrders = Callable[[dict[str, Any], Keep], Orders]


def search_meta(
    kind: str, arm: Arm, nranks: int, description: Description, asked: dict[str, Any]
) -> dict[str, Any]:
    """run.json of a search that has not begun.

    Args:
        kind: "matrix" or "suspects".
        asked: the options that matter for reading the results, plain data.
    """
    return new_meta(kind, unplanned((arm,), nranks), description, asked=asked)


def hold_search(
    job: Job,
    folder: RunFolder,
    meta: dict[str, Any],
    program: Program,
    timeout_s: float,
    make_orders: MakeOrders,
    started: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    flight_recorder: bool = False,
) -> None:
    """Go through the stages; on every way out run.json says how it ended, and what was found is kept.

    Args:
        started: told of the environment and the preflight, before anything is measured.
        flight_recorder: keep the ranks' flight recorders where the search fails.

    Raises:
        RequestError: the preflight forbids it, or the arm cannot be had.
        Interrupted, MeasurementError: a signal came, or a rank died or hung.
    """
    begin_attempt(folder, meta, job.launcher)
    backend = meta["plan"]["arms"][0]["backend"]

    def consent(environment: dict[str, Any]) -> str | None:
        found = findings(
            environment,
            nranks=job.nranks,
            backends=[backend],
            share_gpu=bool(program.request.get("share_gpu")),
        )
        meta["environment"], meta["preflight"] = environment, found
        folder.write_meta(meta)
        started(environment, found)
        refusal = next((entry for entry in found if entry["severity"] == "error"), None)
        return None if refusal is None else f"{refusal['what']}: {refusal['mend']}"

    try:
        with folder.samples() as samples:

            def keep(tests: Sequence[Probe]) -> None:
                samples.append(b"".join(encode_line(test) for test in tests))

            flight = run_path(folder.path) if flight_recorder else None
            conversation: Conversation[None] = Conversation(job, program, timeout_s, consent, flight)
            conversation.hold(lambda environment: make_orders(environment, keep))
    except NcclbenchError as error:
        end_attempt(folder, meta, error)
        raise
    end_attempt(folder, meta, None)
