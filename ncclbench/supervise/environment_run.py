"""A launch that measures nothing: every rank's worker says where it runs and with what."""

from __future__ import annotations

from typing import Any

from ncclbench.environment.preflight import findings
from ncclbench.supervise.launch import Assignment, Job, launch
from ncclbench.supervise.slots import Slot
from ncclbench.tables.backends import BACKENDS
from ncclbench.worker.protocol import Described


def gather(job: Job, *, share_gpu: bool, timeout_s: float) -> dict[str, Any]:
    """The environment of every rank, asked by the supervisor that leads; the others follow it.

    Args:
        share_gpu: the run to come lets ranks share a GPU.
        timeout_s: after so long without progress a rank is called hung.

    Returns:
        ``environment``, and ``preflight``: findings for all backends that these devices can run.

    Raises:
        Interrupted, MeasurementError: no answer, because a signal came, or a rank died or hung.
    """
    number = next(job.launches)
    assignment = Assignment(number=number, plan=None, batches={}, attempt=0, timeout_s=timeout_s)
    if job.seat is not None:
        job.meeting.publish(f"assignment/{number}", assignment.to_json())
    described: list[dict[str, Any]] = []

    def answer(slot: Slot, message: Any) -> None:
        if isinstance(message, Described):
            described.append(message.environment)

    launch(job, assignment, answer, None)
    environment = described[0]
    on_gpus = any(rank["device"] != "cpu" for rank in environment["ranks"])
    kinds = ("cuda", "any") if on_gpus else ("cpu",)
    return {
        "environment": environment,
        "preflight": findings(
            environment,
            nranks=job.nranks,
            backends=[backend.name for backend in BACKENDS.values() if backend.device in kinds],
            share_gpu=share_gpu,
        ),
    }
