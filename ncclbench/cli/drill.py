"""``ncclbench drill``: a rank fails on purpose, and every phase of the recovery is timed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    backends_choice,
    folder_choices,
    seed_choice,
)
from ncclbench.cli.declaring import SectionedCommand, option, typed_options, under
from ncclbench.cli.files import kept_run, new_run_folder
from ncclbench.cli.jobs import run_job, typed_command
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    where_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.programs import tell, told_done, write_page
from ncclbench.cli.recording import why_off
from ncclbench.cli.searching import one_arm
from ncclbench.environ import variable, variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, NcclbenchError, RequestError
from ncclbench.faults.cases import CASES
from ncclbench.supervise.launcher import find_seat
from ncclbench.tables.backends import find_backend
from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import STRATEGIES
from ncclbench.terminal.streams import coloured, one_line, show, write

if TYPE_CHECKING:
    from ncclbench.faults.model import DrillPlan
    from ncclbench.store.drills import ContractOutcome, DrillTrial
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job

# A drill needs survivors that have somebody to talk to.
_FEWEST_RANKS = 3
_USUAL_RANKS = 4
# Of --when: of steps of 2 ms and an operation nearly an hour.
_LAST_STEP = 999_999
# A fifth of a shorter timeout is no longer than a busy machine lets a healthy rank wait for its turn.
_SHORTEST_TIMEOUT_S = 1.0
_OF_CONTRACT = "gloo"
# With only --contract on the command line nothing else is drilled.
_OF_TRIALS = {"--fault", "--victim", "--slow-factor", "--when", "--strategy", "--trials", "--spare"}


def _when(text: str, option: str) -> int:
    found = re.fullmatch(r"step:([0-9]{1,12})", text)
    if found is None:
        raise RequestError(f"{option} {text!r} is not a step: write it like step:20")
    if int(found[1]) > _LAST_STEP:
        raise RequestError(f"{option} {text} is out of range: take step:0 to step:{_LAST_STEP}")
    return int(found[1])


fault_options = under(
    "What fails",
    option(
        "--fault",
        metavar="|".join(FAULTS),
        default="kill",
        parse=values.one_of(FAULTS),
        help="What happens to the victim.",
    ),
    option(
        "--victim",
        metavar="R",
        otherwise="the last rank",
        parse=values.whole(0),
        help="The rank that it falls on.",
    ),
    option(
        "--slow-factor",
        metavar="X",
        default="10",
        parse=values.factor,
        help="With --fault slow: how many times as long the victim takes for what it computes.",
    ),
    option("--when", metavar="step:N", default="step:20", parse=_when, help="At which step of the victim."),
)

recovery_options = under(
    "What is done about it",
    option(
        "--strategy",
        metavar="NAMES",
        default="reconfigure",
        parse=values.named(STRATEGIES, "strategy"),
        help=f"Of {', '.join(STRATEGIES)}, separated by commas, or all; what cannot be had says why.",
    ),
    option(
        "--trials",
        metavar="N",
        default="3",
        parse=values.whole(1, 10_000),
        help="Of each strategy; intervals are over them, from 3 on.",
    ),
    option(
        "--spare",
        metavar="cold|warm",
        default="cold",
        parse=values.one_of(("cold", "warm")),
        help="The replacement: a new interpreter when it is asked for, or a process that stands by.",
    ),
    option(
        "--contract",
        metavar="CASES",
        otherwise="none",
        parse=values.named(CASES, "contract case"),
        help=f"What torch does when membership goes wrong: {', '.join(CASES)}, or all. Alone: no trials.",
    ),
    seed_choice,
)


@click.command("drill", cls=SectionedCommand, epilog="Example: ncclbench drill --fault kill --strategy all")
@fault_options
@recovery_options
@under("What is kept", *folder_choices)
@where_options(
    "GPUs, else 4",
    ranks="Ranks on this machine, at least 3; the command itself starts them.",
    timeout="10s",
    hung="Of the process groups; a rank that stands still for a fifth of it is called hung.",
    more=(backends_choice("The backend, one.", metavar="X"),),
)
@json_option
@exit_zero_option
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Let a rank fail on purpose and time every phase until the job runs again, with checked sums.

    This command hosts the store and starts the ranks. They step until the fault; survivors notice, go on
    without the victim, take in a replacement. Ends with 1 where a strategy that can be had here did not
    recover, where sums were wrong, and where a process was left over.
    """
    if find_seat(variables(), None) is not None:
        raise RequestError(
            "drill starts its ranks itself, on one host: run it without torchrun, srun or mpirun"
        )
    arm = one_arm(params)
    nranks = params["nproc_per_node"] or count_gpus() or _USUAL_RANKS
    if nranks < _FEWEST_RANKS:
        raise RequestError(
            f"--nproc-per-node {nranks} leaves no group of survivors: take {_FEWEST_RANKS} or more"
        )
    if params["victim"] is not None and params["victim"] >= nranks:
        raise RequestError(f"--victim {params['victim']} is none of {nranks} ranks: take 0 to {nranks - 1}")
    if params["timeout"] < _SHORTEST_TIMEOUT_S:
        raise RequestError(
            f"--timeout {params['timeout']:g}s is too short to tell a hang from a busy machine: take "
            f"{_SHORTEST_TIMEOUT_S:g}s or longer"
        )
    _refuse_slowest(params)
    backend, contract = arm.backend, params["contract"] or ()
    if contract and not _OF_TRIALS & set(typed_options(ctx)):
        params["strategy"] = ()
        if params["backends"] is not None and backend != _OF_CONTRACT:
            raise RequestError(
                f"contract cases are of {_OF_CONTRACT}, not of {backend}: leave --backends out"
            )
        backend = _OF_CONTRACT
    if find_backend(backend).device == "cuda" and not count_gpus():
        raise RequestError(f"--backends {backend} needs GPUs, and this machine has none: take gloo")

    def lead(job: Job) -> int:
        return _lead(job, backend, params, contract)

    return run_job("drill", None, nranks, params["as_json"], lead)


def _lead(job: Job, backend: str, params: Mapping[str, Any], contract: Sequence[str]) -> int:
    # Imported here: they need torch.
    from ncclbench.faults.available import why_unavailable
    from ncclbench.faults.model import ERROR_HANDLING
    from ncclbench.faults.session import drill_meta, hold_drill
    from ncclbench.supervise.attempts import Description

    unavailable = why_unavailable(params["strategy"], backend, job.signals)
    strategies = tuple(name for name in params["strategy"] if name not in unavailable)
    if not strategies and not contract:
        raise RequestError(f"nothing can be drilled with {backend} here: {_why_nothing(unavailable)}")
    plan = _plan(job.nranks, backend, strategies, params)
    ended: NcclbenchError | None = None
    with new_run_folder(params["out"], params["label"] or "drill") as folder:
        description = Description(typed_command(), params["label"], datetime.now(UTC))
        meta = drill_meta(plan, contract, unavailable, description)
        show(f"run: {folder.path}\n{ERROR_HANDLING}={plan.error_handling} in every rank\n", sys.stderr)
        unrecorded = why_off(variables())
        if unrecorded is not None and strategies:
            show(f"ncclbench: note: no flight recorder is kept: {unrecorded}\n", sys.stderr)
        counted: list[Any] = []

        def done(result: Any) -> None:
            counted.append(result)
            tell(f"{len(counted)} of {len(strategies) * plan.trials + len(contract)} done")

        try:
            hold_drill(job, folder, meta, plan, contract, _tell_preflight, done)
        except RequestError:
            raise
        except NcclbenchError as error:
            ended = error
        finally:
            told_done()
        return _conclude(kept_run(folder.path, ended), ended, unavailable, params)


def _refuse_slowest(params: Mapping[str, Any]) -> None:
    """A step that takes as long as silence would be called a hang."""
    from ncclbench.faults.model import COMPUTE_S, SILENCE_PART

    longest = SILENCE_PART * params["timeout"] / 2 / COMPUTE_S
    if not FAULTS[params["fault"]].ends and params["slow_factor"] > longest:
        raise RequestError(
            f"--slow-factor {params['slow_factor']:g} looks like a hang with --timeout {params['timeout']:g}s"
            f": take up to {longest:g}, or a longer timeout"
        )


def _why_nothing(unavailable: Mapping[str, str]) -> str:
    """Why no strategy can be had, and what could be."""
    if len(set(unavailable.values())) == 1 and not {"rebuild", "abort"}.isdisjoint(unavailable):
        return next(iter(unavailable.values()))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in unavailable.items())
    return reasons if "rebuild" in unavailable else f"{reasons} (--strategy rebuild needs least)"


def _plan(nranks: int, backend: str, strategies: tuple[str, ...], params: Mapping[str, Any]) -> DrillPlan:
    from ncclbench.faults.model import ERROR_HANDLING, ERROR_HANDLING_DEFAULT, DrillPlan

    return DrillPlan(
        fault=params["fault"],
        victim=nranks - 1 if params["victim"] is None else params["victim"],
        step=params["when"],
        strategies=strategies,
        trials=params["trials"],
        spare=params["spare"],
        nranks=nranks,
        backend=backend,
        timeout_s=params["timeout"],
        slow_factor=params["slow_factor"],
        seed=params["seed"],
        share_gpu=params["share_gpu"],
        error_handling=variable(ERROR_HANDLING) or ERROR_HANDLING_DEFAULT,
    )


def _tell_preflight(environment: Mapping[str, Any], preflight: Sequence[Mapping[str, Any]]) -> None:
    for finding in preflight:
        told = one_line(f"{finding['severity']}: {finding['what']}: {finding['mend']}")
        show(f"ncclbench: {told}\n", sys.stderr)


def _conclude(
    run: Run, ended: NcclbenchError | None, unavailable: Mapping[str, str], params: Mapping[str, Any]
) -> int:
    """Show what was found; the exit code."""
    from ncclbench.terminal.drill import drill_lines

    report, ended = write_page(run, ended)
    wrong = any(not trial.correct for trial in run.trials)
    bad = wrong or any(not trial.recovered or trial.leftover_processes for trial in run.trials)
    sentences = _sentences(run.trials, run.contract)
    message = "; ".join(sentences)
    if ended is not None:
        message = f"{ended}; until then: {message}"
        code = ended.exit_code
    elif bad and (wrong or not params["exit_zero"]):
        code = EXIT_BAD_ANSWER
    else:
        code = EXIT_OK
    if params["as_json"]:
        rest = {**_found(run, unavailable), "report": report, "problems": run.problems}
        rest["error_handling"] = run.meta["asked"]["error_handling"]
        emit_json(
            document(
                "drill",
                run=run.folder,
                ok=ended is None and not bad,
                message=message,
                environment=run.meta.get("environment"),
                rest=rest,
            )
        )
    else:
        lines = drill_lines(run.trials, run.contract, unavailable)
        lines += [f"report: {report}"] if report is not None else []
        lines += [
            coloured(one_line(said), "red" if bad or ended else "bold", sys.stdout) for said in sentences
        ]
        write("\n".join(lines) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code


def _found(run: Run, unavailable: Mapping[str, str]) -> dict[str, Any]:
    """What the document holds of trials, strategies and contract cases."""
    import msgspec

    from ncclbench.stats.recovery import recoveries

    summary = [
        {"status": "measured", "reason": None, **recovery.to_json()} for recovery in recoveries(run.trials)
    ]
    summary += [
        {"status": "unavailable", "reason": reason, "strategy": name} for name, reason in unavailable.items()
    ]
    return {
        "trials": msgspec.to_builtins(run.trials),
        "summary": summary,
        "contract": msgspec.to_builtins(run.contract),
    }


def _sentences(trials: Sequence[DrillTrial], contract: Sequence[ContractOutcome]) -> list[str]:
    """The answer: a sentence for each strategy, and one for the contract cases."""
    from ncclbench.stats.recovery import recoveries
    from ncclbench.terminal.drill import sentence

    said = [sentence(recovery) for recovery in recoveries(trials)]
    if contract:
        consistent = sum(outcome.consistent for outcome in contract)
        said.append(f"{consistent} of {len(contract)} contract cases consistent over ranks")
    return said or ["nothing was drilled"]
