"""``ncclbench calibrate``: equal arms compared on this machine, and what that says of verdicts here."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.choices import (
    USUAL_WARMUP,
    backends_choice,
    check_choice,
    epochs_choice,
    iters_choice,
    margin_choice,
    seed_choice,
    statistic_choice,
)
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.files import default_folders
from ncclbench.cli.jobs import rank_count, run_job, typed_command
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    launch_options,
    selection_from,
    selection_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.recording import recorder_option
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import (
    EXIT_BAD_ANSWER,
    EXIT_OK,
    MeasurementError,
    NcclbenchError,
    RequestError,
    WriteRefused,
)
from ncclbench.plan.arms import arms_device, parse_arms
from ncclbench.plan.build import Method, build_plan
from ncclbench.plan.model import Device, Plan
from ncclbench.supervise.launcher import Seat, find_seat
from ncclbench.terminal.streams import show, write
from ncclbench.units import parse_seconds

if TYPE_CHECKING:
    from ncclbench.store.folder import RunFolder
    from ncclbench.supervise.launch import Job
    from ncclbench.terminal.calibration import CalibrationListener

_SIZES = "8,64K,1M"
_EPOCHS = 24
_ITERS_IN_EPOCH = 20
# Processes of their own: so many times alone and beside the other arm, in turns, with so many groups each.
_ROUNDS = 6
_GROUPS_IN_PROCESS = 2

# Names in the folder of a calibration.
EQUAL = "equal"
RESULT_FILE = "calibration.json"

_compared_options = under(
    "What is compared",
    backends_choice("The backend that is compared with itself; one.", metavar="X"),
    margin_choice,
    statistic_choice,
)

_measured_options = under(
    "How it is measured",
    iters_choice(
        "Timed operations per case and arm, in all epochs together.", otherwise=f"{_ITERS_IN_EPOCH} per epoch"
    ),
    USUAL_WARMUP,
    check_choice,
    epochs_choice(
        "Fresh sets of process groups; every 8 make one comparison.", default=str(_EPOCHS), least=8
    ),
    option(
        "--time-budget",
        metavar="TIME",
        default="10s",
        parse=parse_seconds,
        help="Per case, both arms together: no epoch is added after it; what can be found is said for it.",
    ),
    seed_choice,
)

_kept_options = under(
    "What is kept",
    option(
        "--out",
        metavar="DIR",
        otherwise="results/<time>-calibration",
        parse=values.path,
        help="The folder for the runs of the calibration.",
    ),
)


@click.command(
    "calibrate",
    cls=SectionedCommand,
    epilog="Example: ncclbench calibrate --ops all_reduce --sizes 64K,4M --time-budget 20s",
)
@selection_options
@_compared_options
@_measured_options
@launch_options
@_kept_options
@recorder_option
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Compare a backend with itself: how often verdicts are false here, and how small a difference they find.

    Without sizes it takes 8, 64K and 1M. The result is kept for this machine and copied into its runs.
    Ends with 1 where verdicts are shown to be false more often than the 5 % they allow.
    """
    seat = find_seat(variables(), params["nproc_per_node"])
    plan = _plan(params, seat)
    parts = list(_parts(plan, _folder(params)))
    # A folder that cannot be written is said before anything starts; under a launcher the others are
    # met first, so that all of them end with the same code.
    opened = _open(parts[0].folder) if seat is None else None

    def lead(job: Job) -> int:
        return _lead(job, parts, opened or _open(parts[0].folder), params)

    try:
        return run_job("calibrate", seat, plan.nranks, params["as_json"], lead)
    finally:
        if opened is not None:
            opened.close()
            with suppress(OSError):  # it holds a run
                parts[0].folder.parent.rmdir()


@dataclass(frozen=True, slots=True)
class _Part:
    """One run of the calibration: where it goes and what it measures."""

    folder: Path
    plan: Plan


def _plan(params: Mapping[str, Any], seat: Seat | None) -> Plan:
    """The main part: two equal arms, many epochs."""
    machine: Device = "cuda" if count_gpus() else "cpu"
    if params["backends"] is not None and "," in params["backends"]:
        raise RequestError("--backends takes one backend here, which is compared with itself")
    backend = parse_arms(params["backends"], None, machine)[0].backend
    arms = parse_arms(f"{backend},{backend}", None, machine)
    sizes = ("sizes", "min_bytes", "max_bytes", "step_factor", "step_bytes")
    asked = any(params[name] is not None for name in sizes)
    nranks = rank_count(seat, params["nproc_per_node"])
    margin_ratio, margin_us = params["margin"]
    return build_plan(
        selection_from(params if asked else {**params, "sizes": _SIZES}),
        arms,
        nranks=nranks,
        local_ranks=seat.local_size if seat is not None else nranks,
        device=arms_device(arms, machine),
        method=Method(
            iters=params["iters"] or _ITERS_IN_EPOCH * params["epochs"],
            warmup_iters=params["warmup_iters"],
            check=params["check"],
            epochs=params["epochs"],
            statistic=params["statistic"],
            margin_ratio=margin_ratio,
            margin_us=margin_us,
            time_budget_s=params["time_budget"],
            timeout_s=params["timeout"],
            share_gpu=params["share_gpu"],
            seed=params["seed"],
        ),
    )


def _folder(params: Mapping[str, Any]) -> Path:
    if params["out"] is not None:
        return Path(params["out"])
    for folder in default_folders("calibration"):
        # Made here or nowhere, as a run's.
        with suppress(FileExistsError):
            folder.parent.mkdir(exist_ok=True)
            folder.mkdir()
            return folder
    raise AssertionError("names do not end")


def _parts(plan: Plan, folder: Path) -> Iterator[_Part]:
    """The runs in their order: equal arms in the same processes, then new processes alone and beside."""
    yield _Part(folder / EQUAL, plan)
    brief = replace(
        plan,
        epochs=_GROUPS_IN_PROCESS,
        iters=_GROUPS_IN_PROCESS * plan.iters_in_epoch(0),
        time_budget_s=None,
    )
    alone = replace(brief, arms=brief.arms[:1])
    for number in range(_ROUNDS):
        pair = [("alone", alone), ("beside", brief)]
        # In turns, so that neither always comes after the other.
        for name, each in pair if number % 2 == 0 else reversed(pair):
            yield _Part(folder / f"{name}-{number + 1}", each)


def _open(folder: Path) -> RunFolder:
    from ncclbench.store.folder import RunFolder

    return RunFolder.create(folder)


def _lead(job: Job, parts: Sequence[_Part], opened: RunFolder, params: Mapping[str, Any]) -> int:
    """Rank 0: measure all parts, then analyse, keep and show."""
    from ncclbench.terminal.calibration import CalibrationListener

    folder = parts[0].folder.parent
    listener = CalibrationListener([part.plan for part in parts], folder, as_json=params["as_json"])
    try:
        outside_s = _measure(job, parts, opened, listener, params["flight_recorder"])
    except NcclbenchError as error:
        return _cut_short(error, folder, any(listener.seconds), params)
    return _conclude(parts, listener, outside_s, params)


def _measure(
    job: Job,
    parts: Sequence[_Part],
    opened: RunFolder,
    listener: CalibrationListener,
    flight_recorder: bool,
) -> dict[str, float]:
    """Measure the parts one after the other; by name, the seconds of each that its cases did not take.

    Raises:
        NcclbenchError: a part ended early; those before it are whole, and it is kept as far as it came.
    """
    from ncclbench.supervise.attempts import Description, new_meta
    from ncclbench.supervise.session import Session

    outside_s = {}
    try:
        for number, part in enumerate(parts):
            meta = new_meta(
                "sweep", part.plan, Description(typed_command(), part.folder.name, datetime.now(UTC))
            )
            before_s = time.monotonic()
            with opened if number == 0 else _open(part.folder) as folder:
                Session(
                    job, part.plan, folder, meta, None, listener, _load_the_rest, flight_recorder
                ).measure()
            measuring_s = sum(chain.from_iterable(listener.seconds[number].values()))
            outside_s[part.folder.name] = time.monotonic() - before_s - measuring_s
    finally:
        listener.ended()
    return outside_s


def _load_the_rest() -> None:
    """Import what the analysis needs while workers start and nothing is timed."""
    import ncclbench.compare.calibration  # noqa: F401


def _cut_short(error: NcclbenchError, folder: Path, measured: bool, params: Mapping[str, Any]) -> int:
    """The end of a calibration that was interrupted or has failed; nothing of it is kept for the machine."""
    message = error.refusal if isinstance(error, WriteRefused) else str(error)
    if measured:
        message += f"; what was measured is kept in {folder}, run ncclbench calibrate again for a result"
    if params["as_json"]:
        emit_json(
            document("calibrate", run=folder if measured else None, ok=False, message=message, rest=_answer())
        )
    show(f"ncclbench: error: {message}\n", sys.stderr)
    return error.exit_code


def _conclude(
    parts: Sequence[_Part],
    listener: CalibrationListener,
    outside_s: Mapping[str, float],
    params: Mapping[str, Any],
) -> int:
    """Analyse what was measured, keep it for this machine, show it, and find the exit code."""
    from ncclbench.compare.advice import ALLOWED_RATE
    from ncclbench.compare.calibration import Measured, calibration, starting_s
    from ncclbench.store.folder import replace_file
    from ncclbench.store.reader import load_run
    from ncclbench.terminal.calibration import calibration_lines, conclusion

    runs = {part.folder.name: load_run(part.folder) for part in parts}
    of_equal = listener.seconds[0]
    overhead_s = listener.overhead_s[0]
    group_s = median(overhead_s) / len(parts[0].plan.arms) if overhead_s else None
    # The first part pays what comes once.
    brief = [name for name in runs if name != EQUAL]
    outside = [outside_s[name] for name in brief]
    measured = Measured(
        equal=runs[EQUAL],
        alone=[runs[f"alone-{number + 1}"] for number in range(_ROUNDS)],
        beside=[runs[f"beside-{number + 1}"] for number in range(_ROUNDS)],
        epoch_s={case: median(seconds) for case, seconds in of_equal.items()},
        group_s=group_s,
        process_s=starting_s([runs[name] for name in brief], outside, group_s or 0.0),
    )
    folder = parts[0].folder.parent
    found = calibration(measured, params["time_budget"])
    wrong = sum(
        sum(unit.wrong or ()) for run in runs.values() for units in run.units.values() for unit in units
    )
    kept: Path | None = None
    if wrong:
        said = [f"WRONG DATA: {wrong} wrong elements, so times mean nothing and no calibration is kept"]
    else:
        replace_file(folder / RESULT_FILE, (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
        said = conclusion(found)
        kept = _keep(found)
    bad = wrong > 0 or found["rate_low"] > ALLOWED_RATE
    if params["as_json"]:
        emit_json(
            document(
                "calibrate",
                run=folder,
                ok=not bad,
                message="; ".join(said),
                environment=runs[EQUAL].meta["environment"],
                rest=_answer(found, kept),
            )
        )
    else:
        lines = calibration_lines(found) if not wrong else []
        lines += [f"kept for this machine: {kept}"] if kept is not None else []
        write("\n".join([*lines, f"runs: {folder}", *said]) + "\n", sys.stdout)
    return EXIT_BAD_ANSWER if wrong or (bad and not params["exit_zero"]) else EXIT_OK


def _keep(found: Mapping[str, Any]) -> Path | None:
    """Keep the calibration for this machine; that it cannot be is worth a line and no failure."""
    from ncclbench.store.calibrations import keep

    if not found["comparisons"]:
        return None
    try:
        return keep(found)
    except MeasurementError as error:
        show(f"ncclbench: warning: {error}\n", sys.stderr)
        return None


def _answer(found: Mapping[str, Any] | None = None, kept: Path | None = None) -> dict[str, Any]:
    """The command's own keys of ``--json``."""
    names = ("false_verdict_rate", "comparisons", "resolution", "advice")
    own = {name: None if found is None else found[name] for name in names}
    return {**own, "calibration": found, "kept": kept}
