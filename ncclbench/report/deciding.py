"""The page of a preset's folder: its answer, and links to the pages of its steps."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from urllib.parse import quote

from ncclbench.compare.answers import Decision, DecisionLine
from ncclbench.compare.decisions import decide
from ncclbench.compare.found import find
from ncclbench.report.build import render, write_page
from ncclbench.report.decided import Decided, DecidedStep
from ncclbench.report.model import Report
from ncclbench.report.redact import Redactor
from ncclbench.store.files import REPORT_FILE
from ncclbench.store.preset import StoredPreset, StoredStep


def decided_of(folder: Path, stored: StoredPreset) -> Decided:
    """What the page shows; the answer is found anew from what the steps' folders hold now.

    Raises:
        RequestError: preset.json asks a question that this ncclbench does not know.
    """
    decision = None if stored.decision is None else decide(stored.decision, folder, stored.steps)
    steps = tuple(_step(folder, step) for step in stored.steps)
    return Decided(stored.preset, os.path.basename(os.path.realpath(folder)), decision, steps)


def write_decided(decided: Decided, path: Path, redactor: Redactor | None = None) -> None:
    """Write the page of a preset.

    Args:
        decided: what it shows.
        path: the file, replaced whole.
        redactor: that took the names out of it, if anything did: the page says so and is searched.

    Raises:
        MeasurementError: the file cannot be written, or a name is left in it; what was there before stands.
    """
    page = render(Report([], decided=decided), redactor.notice if redactor else ())
    write_page(page, path, redactor)


def without_names(folder: Path, stored: StoredPreset, decided: Decided) -> tuple[Decided, Redactor]:
    """The same without names, and what took them out, which has learnt them from every run of the steps.

    A page that is sent away leads nowhere: the pages of the steps hold names, and stay behind.
    """
    runs = [step.run for step in find(folder, stored.steps).steps if step.run is not None]
    hosts = () if decided.decision is None else decided.decision.hosts
    redactor = Redactor(runs, [decided], hosts)
    redactor.aliases.know_run(folder)
    decision = None if decided.decision is None else _without(decided.decision, redactor)
    commands = [redactor.command(step.command) for step in stored.steps]
    shown = dataclasses.replace(
        decided,
        preset=redactor.shown(decided.preset),
        label=redactor.shown(decided.label),
        decision=decision,
        steps=tuple(
            dataclasses.replace(step, href="", said=redactor.shown(step.said), command=shlex.join(command))
            for step, command in zip(decided.steps, commands, strict=True)
        ),
    )
    return shown, redactor


def _step(folder: Path, step: StoredStep) -> DecidedStep:
    # A name that begins like an address (javascript:) must stay a path.
    has_page = os.path.isfile(folder / step.folder / REPORT_FILE)
    return DecidedStep(
        name=step.name,
        href=f"./{quote(step.folder)}/{REPORT_FILE}" if has_page else "",
        status=step.status,
        said=step.reason or step.message,
        seconds=step.seconds,
        command=shlex.join(step.command),
    )


def _without(decision: Decision, redactor: Redactor) -> Decision:
    def line(each: DecisionLine) -> DecisionLine:
        shown: DecisionLine = redactor.shown(each)
        # Where a name stands it is replaced, also one that is an ordinary word.
        is_host = each.subject in decision.hosts
        return dataclasses.replace(
            shown, subject=redactor.aliases.host(each.subject) if is_host else shown.subject, step=each.step
        )

    return dataclasses.replace(
        decision,
        answer=redactor.shown(decision.answer),
        lines=tuple(map(line, decision.lines)),
        hosts=tuple(map(redactor.aliases.host, decision.hosts)),
    )
