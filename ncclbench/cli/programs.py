"""A program of the workers from the command line to the run and its page."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncclbench.cli.files import kept_run, new_run_folder
from ncclbench.cli.jobs import typed_command
from ncclbench.cli.recording import has_dumps
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.plan.model import Arm
from ncclbench.terminal.streams import is_terminal, one_line, show

if TYPE_CHECKING:
    from ncclbench.store.model import Run
    from ncclbench.supervise.launch import Job
    from ncclbench.supervise.programs import Afterwards, MakeOrders
    from ncclbench.worker.protocol import Program


def run_program(
    job: Job,
    kind: str,
    arms: tuple[Arm, ...],
    params: Mapping[str, Any],
    asked: dict[str, Any],
    program: Program,
    make_orders: MakeOrders,
    afterwards: Afterwards | None = None,
) -> tuple[Run, NcclbenchError | None]:
    """Measure; the run as readers see it, and what ended it early.

    Args:
        kind: of the run; ``asked``: the options that matter for reading its results, plain data.
        params: ``out``, ``label``, ``timeout``, ``share_gpu`` and ``flight_recorder`` as typed.
        afterwards: as in ``hold_program``.

    Raises:
        RequestError: the preflight forbids it, an arm cannot be had, or nothing of the run can be read.
    """
    from ncclbench.supervise.attempts import Description
    from ncclbench.supervise.programs import hold_program, program_meta

    ended: NcclbenchError | None = None
    with new_run_folder(params["out"], params["label"] or kind) as folder:
        description = Description(typed_command(), params["label"], datetime.now(UTC))
        meta = program_meta(kind, arms, job.nranks, description, asked, bool(params["share_gpu"]))
        show(f"run: {folder.path}\n", sys.stderr)
        try:
            hold_program(
                job,
                folder,
                meta,
                program,
                params["timeout"],
                make_orders,
                _tell_preflight,
                params["flight_recorder"],
                afterwards,
            )
        except RequestError:
            raise
        except NcclbenchError as error:
            ended = error
        finally:
            told_done()
        return kept_run(folder.path, ended), ended


def write_page(run: Run, ended: NcclbenchError | None) -> tuple[Path | None, NcclbenchError | None]:
    """The page of what was measured, None where there is none; and what ended the run.

    A disk that was full for the samples is full for the page too: the first word counts.
    """
    from ncclbench.report.build import write_report
    from ncclbench.store.folder import REPORT_FILE

    if not (run.probes or run.trials or run.contract or run.results or has_dumps(run.folder)):
        return None, ended
    page = run.folder / REPORT_FILE
    try:
        write_report([run], page)
    except NcclbenchError as error:
        return None, ended or error
    return page, ended


def tell(words: str) -> None:
    """Where the measurement is, on a terminal only, in one line that is written over."""
    if is_terminal(sys.stderr):
        show(f"\r\x1b[K{words}", sys.stderr)


def told_done() -> None:
    """Clear that line."""
    with suppress(ValueError):
        if is_terminal(sys.stderr):
            show("\r\x1b[K", sys.stderr)


def _tell_preflight(environment: Mapping[str, Any], preflight: Sequence[Mapping[str, Any]]) -> None:
    for finding in preflight:
        told = f"ncclbench: {finding['severity']}: {finding['what']}: {finding['mend']}"
        show(f"{one_line(told)}\n", sys.stderr)
