"""A drill as a run: its folder, run.json, and every trial and contract case written as it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ncclbench.environment.preflight import findings
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.faults.drill import run_drill
from ncclbench.faults.model import DrillPlan
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.drills import ContractOutcome, DrillTrial
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.supervise.attempts import Description, begin_attempt, end_attempt, new_meta
from ncclbench.supervise.capture import FLIGHT_FOLDER
from ncclbench.supervise.environment_run import gather
from ncclbench.supervise.launch import Job

Result = DrillTrial | ContractOutcome


def drill_meta(
    plan: DrillPlan, contract: Sequence[str], unavailable: dict[str, str], description: Description
) -> dict[str, Any]:
    """run.json of a drill that has not begun.

    Args:
        contract: names in CASES.
        unavailable: strategies that were asked for and cannot be had, and why.
    """
    planned = unplanned((Arm(plan.backend, plan.backend),), plan.nranks, plan.share_gpu)
    asked = {**plan.to_json(), "contract": list(contract)}
    return new_meta("drill", planned, description, asked=asked, unavailable=unavailable)


def hold_drill(
    job: Job,
    folder: RunFolder,
    meta: dict[str, Any],
    plan: DrillPlan,
    contract: Sequence[str],
    started: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    done: Callable[[Result], None],
) -> None:
    """Describe the environment, make all trials, then the contract cases; run.json says how it ended.

    Args:
        started: told of the environment and the preflight, before any fault.
        done: told of each trial and case once it is on disk.

    Raises:
        RequestError: the preflight forbids it.
        Interrupted, MeasurementError: a signal came, or a trial did not come as far as its fault. What was
            done before is kept.
    """
    begin_attempt(folder, meta, job.launcher)
    try:
        environment = gather(job, share_gpu=plan.share_gpu, timeout_s=plan.timeout_s)["environment"]
        found = findings(environment, nranks=plan.nranks, backends=[plan.backend], share_gpu=plan.share_gpu)
        meta["environment"], meta["preflight"] = environment, found
        folder.write_meta(meta)
        started(environment, found)
        refusal = next((entry for entry in found if entry["severity"] == "error"), None)
        if refusal is not None:
            raise RequestError(f"{refusal['what']}: {refusal['mend']}")
        with folder.samples() as samples:

            def keep(result: Result) -> None:
                samples.append(encode_line(result))
                done(result)

            if plan.strategies:
                run_drill(plan, keep, job.signals, folder.path / FLIGHT_FOLDER)
            if contract:
                # Imported where it is asked for: its ranks are its own.
                from ncclbench.faults.contract import run_contract

                run_contract(contract, keep, job.signals, plan.timeout_s)
    except NcclbenchError as error:
        end_attempt(folder, meta, error)
        raise
    end_attempt(folder, meta, None)
