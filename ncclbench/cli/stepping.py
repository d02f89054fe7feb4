"""A preset of several steps as it runs: each step a command of its own, and what all of them answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ncclbench.cli.output import document, emit_json
from ncclbench.cli.preset import FEWEST_DRILLED, command_called, long_options
from ncclbench.cli.steps import Steps
from ncclbench.errors import (
    EXIT_BAD_ANSWER,
    EXIT_BAD_REQUEST,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TERMINATED,
    Interrupted,
    MeasurementError,
    NcclbenchError,
)
from ncclbench.store.files import META_FILE, REPORT_FILE, kind_of_run
from ncclbench.store.preset import StepStatus, StoredPreset, StoredStep, write_preset
from ncclbench.supervise.signals import EndSignals
from ncclbench.terminal.steps import heading, result, step_lines
from ncclbench.terminal.streams import coloured, one_line, show
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.steps import Company, Ended

ANSWER_FILE = "answer.json"

# Options of a sweep that may stand beside --resume; the rest is in its run.
_BESIDE_RESUME = ("--require=", "--unclear=", "--flight-recorder")

_STATUS: dict[int, StepStatus] = {
    EXIT_OK: "done",
    EXIT_BAD_ANSWER: "bad",
    EXIT_BAD_REQUEST: "wrong request",
    EXIT_FAILED: "failed",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_TERMINATED: "interrupted",
}
_FAILED: tuple[StepStatus, ...] = ("wrong request", "failed", "interrupted")


def run_alone(steps: Steps) -> int:
    """Where the command itself supervises all ranks."""
    from ncclbench.supervise.steps import Alone

    with EndSignals() as signals, steps.folder:
        return run_steps(steps, Alone(), signals)


def run_led(steps: Steps, job: Job) -> int:
    """On rank 0 of a job that a launcher has placed; the other ranks follow."""
    from ncclbench.supervise.steps import Leading

    with steps.folder:
        return run_steps(steps, Leading(job), job.signals)


def run_steps(steps: Steps, company: Company, signals: EndSignals) -> int:
    """Run what is not over, then answer; the exit code.

    Raises:
        MeasurementError: preset.json cannot be written.
    """
    stream = sys.stderr if steps.params["as_json"] else sys.stdout
    folder, count = steps.folder.path, len(steps.stored.steps)
    write_preset(folder, steps.stored)
    show(f"run: {folder}\n", sys.stderr)
    if steps.params.get("resume") and all(step.is_over for step in steps.stored.steps):
        show(f"# nothing is missing in {folder}: each step is done or cannot be run here\n", stream)
    launched = 0
    for number, step in enumerate(steps.stored.steps):
        if step.is_over or signals.received is not None:
            continue
        show(f"{heading(step, number + 1, count, stream)}\n", stream)
        step = _run(steps, step, company, launched, signals)
        launched += 1
        after = [step if other.name == step.name else other for other in steps.stored.steps]
        steps.stored = msgspec.structs.replace(steps.stored, steps=after)
        write_preset(folder, steps.stored)
        show(f"{result(step, stream)}\n", stream)
    return _conclude(steps, signals)


def _run(steps: Steps, step: StoredStep, company: Company, number: int, signals: EndSignals) -> StoredStep:
    """One step: as a child, with its document kept beside its run."""
    from ncclbench.supervise.steps import run_step

    place = steps.folder.path / step.folder
    words = [*_words(step, place, steps), "--json"]
    variables = company.begin(number, words, step.name, step.deadline_s)
    ended = run_step(words, variables, step.deadline_s, signals)
    absent = company.over(number)
    told = _document(ended.output)
    if told is not None:
        _keep(place, ended.output)
    return _after(step, ended, told, absent, signals)


def _words(step: StoredStep, place: Path, steps: Steps) -> list[str]:
    """Its command line from the command on; what an earlier one left is gone on with or set aside."""
    name, *options = step.command[1:]
    known = long_options(command_called(name))
    if steps.params["exit_zero"] and "--exit-zero" in known:
        options.append("--exit-zero")
    if name == "sweep" and os.path.isfile(place / META_FILE) and kind_of_run(place) == "sweep":
        kept = [word for word in options if word.startswith((*_BESIDE_RESUME, "--exit-zero"))]
        return [name, f"--resume={place}", *kept]
    _set_aside(place)
    nproc = steps.stored.nranks if steps.seat is None else steps.params["nproc_per_node"]
    if nproc is not None and not (name == "drill" and nproc < FEWEST_DRILLED):
        options.append(f"--nproc-per-node={nproc}")
    if "--out" in known:
        options.append(f"--out={place}")
    return [name, *options]


def _set_aside(place: Path) -> None:
    """What was measured is kept under another name.

    Raises:
        MeasurementError: the system refuses.
    """
    try:
        if not os.path.exists(place) or not any(place.iterdir()):
            return
        number = 1
        while os.path.lexists(other := place.with_name(f"{place.name}.{number}")):
            number += 1
        place.rename(other)
    except OSError as error:
        raise MeasurementError(f"cannot set {place} aside ({error.strerror}): rename it") from None


def _document(output: bytes) -> dict[str, Any] | None:
    """What the step has answered; None where it did not come to it."""
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _keep(place: Path, output: bytes) -> None:
    from ncclbench.store.folder import replace_file

    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise MeasurementError(f"cannot make {place} ({error.strerror}): make room, or the folder") from None
    replace_file(place / ANSWER_FILE, output)


def _after(
    step: StoredStep,
    ended: Ended,
    told: Mapping[str, Any] | None,
    absent: int,
    signals: EndSignals,
) -> StoredStep:
    """The step as it is stored once it has ended."""
    code = ended.exit.code
    status: StepStatus = "failed" if code is None else _STATUS.get(code, "failed")
    reason: str | None = None
    if status == "done" and told is not None and not told.get("ok", True):
        status = "bad"
    if signals.received is not None and status in ("interrupted", "failed"):
        status, reason = "interrupted", None
    elif ended.overdue:
        status, reason = "failed", f"it was ended after its deadline of {step.deadline_s:g} s"
    elif code is None:
        reason = f"its process {ended.exit}"
    elif told is None:
        status = "failed" if status in ("done", "bad") else status
        reason = f"it ended with code {code} and gave no answer"
    elif absent:
        reason = f"{count_text(absent, 'rank')} did not come back from it"
    message = told.get("message") if told is not None else ""
    return msgspec.structs.replace(
        step,
        status=status,
        exit_code=code,
        seconds=ended.seconds,
        message=one_line(str(message or ""))[:4000],
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What all steps together say to the preset's question.

    Attributes:
        ok: None where it is unclear.
        wrong: somewhere data were wrong.
        sentence, lines: for people; ``document`` for programs.
    """

    ok: bool | None
    wrong: bool
    sentence: str
    lines: Sequence[str]
    document: Mapping[str, Any]


def answer_of(stored: StoredPreset, folder: Path) -> Answer | None:
    """The answer to the preset's question, None where it asks none; the page of the folder is written.

    Raises:
        MeasurementError: the page cannot be written.
    """
    # Imported here: it reads runs, which takes what reads and compares them.
    from ncclbench.report.deciding import decided_of, write_decided
    from ncclbench.terminal.preset import decision_lines

    decided = decided_of(folder, stored)
    write_decided(decided, folder / REPORT_FILE)
    found = decided.decision
    if found is None:
        return None
    return Answer(found.ok, found.wrong, found.answer, decision_lines(found), found.as_json())


def _conclude(steps: Steps, signals: EndSignals) -> int:
    """Show the list and the answer; the exit code."""
    stored, params, folder = steps.stored, steps.params, steps.folder.path
    stream = sys.stderr if params["as_json"] else sys.stdout
    go_on = f"ncclbench sweep --resume {folder}"
    ended: NcclbenchError | None = None
    answer: Answer | None = None
    if signals.received is not None:
        try:
            signals.check()
        except Interrupted as error:
            ended = error
    else:
        answer = answer_of(stored, folder)
    code = ended.exit_code if ended is not None else _code(stored.steps, answer, params)
    failed = [step.name for step in stored.steps if step.status in _FAILED]
    counts = _counts(stored.steps)
    if ended is not None:
        counts = f"{ended}; {counts}; what was measured is kept, go on with {go_on}"
    elif failed:
        counts += f"; try {', '.join(failed)} again with {go_on}"
    message = counts if answer is None else f"{counts}; {answer.sentence}"
    if params["as_json"]:
        emit_json(
            document(
                "sweep",
                run=folder,
                ok=ended is None and not failed and _is_good(stored.steps, answer, params),
                message=message,
                rest={
                    "preset": stored.preset,
                    "steps": [_step_json(step, folder) for step in stored.steps],
                    "decision": None if answer is None else answer.document,
                },
            )
        )
    for line in step_lines(stored.steps, folder, stream):
        show(f"{line}\n", stream)
    for line in answer.lines if answer is not None else ():
        show(f"{line}\n", stream)
    if ended is None:
        show(f"report: {folder / REPORT_FILE}\n", stream)
    colour = "red" if code else "bold"
    show(f"{coloured(one_line(counts), colour, stream)}\n", stream)
    if ended is not None:
        show(f"ncclbench: error: {one_line(message)}\n", sys.stderr)
    return code


def _step_json(step: StoredStep, folder: Path) -> dict[str, Any]:
    """A step as preset.json has it, with what its own document said."""
    kept = folder / step.folder / ANSWER_FILE
    return {
        **msgspec.to_builtins(step),
        "ok": step.status == "done" if step.status != "not run" else None,
        "answer": kept if os.path.isfile(kept) else None,
    }


def _code(steps: Sequence[StoredStep], answer: Answer | None, params: Mapping[str, Any]) -> int:
    """Of the whole: a failure counts more than a bad answer."""
    if any(step.status in _FAILED for step in steps):
        return EXIT_FAILED
    if params["exit_zero"]:
        # With --exit-zero, which every step has got too, one ends with 1 for wrong data alone.
        wrong = any(step.exit_code == EXIT_BAD_ANSWER for step in steps) or (
            answer is not None and answer.wrong
        )
        return EXIT_BAD_ANSWER if wrong else EXIT_OK
    return EXIT_OK if _is_good(steps, answer, params) else EXIT_BAD_ANSWER


def _is_good(steps: Sequence[StoredStep], answer: Answer | None, params: Mapping[str, Any]) -> bool:
    if any(step.status == "bad" for step in steps):
        return False
    if answer is None or answer.ok:
        return True
    return answer.ok is None and params["unclear"] == "pass"


def _counts(steps: Sequence[StoredStep]) -> str:
    """How many steps ended how."""
    found: dict[str, int] = {}
    for step in steps:
        found[step.status] = found.get(step.status, 0) + 1
    words = ", ".join(f"{count} {status}" for status, count in found.items())
    return f"{count_text(len(steps), 'step')}: {words}"
