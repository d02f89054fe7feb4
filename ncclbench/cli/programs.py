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
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.recording import has_dumps
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, NcclbenchError, RequestError
from ncclbench.plan.model import Arm
from ncclbench.terminal.streams import coloured, is_terminal, one_line, show, write

if TYPE_CHECKING:
    from ncclbench.stats.group_costs import GroupsFound
    from ncclbench.stats.p2p import P2p
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


def conclude_parts(
    kind: str,
    run: Run,
    ended: NcclbenchError | None,
    params: Mapping[str, Any],
    found: GroupsFound | P2p,
    said: Sequence[str],
    lines: Sequence[str],
    rest: Mapping[str, Any] | None = None,
) -> int:
    """Show what a program of several parts found, and write its page; the exit code.

    Args:
        kind: the command.
        params: ``as_json`` and ``exit_zero`` as typed.
        said: the answer in sentences; ``lines``: the tables above it.
        rest: keys of the document besides those of ``found``.

    Raises:
        RequestError: no part of it can be measured here.
    """
    if ended is None and found.is_empty:
        raise RequestError(f"nothing can be measured here: {_reasons(found)} (--backends gloo runs anywhere)")
    report, ended = write_page(run, ended)
    message = "; ".join(said)
    bad = bool(found.wrong or found.leftover_processes)
    if ended is not None:
        message = f"{ended}; until then: {message}"
        code = ended.exit_code
    elif found.wrong or (bad and not params["exit_zero"]):
        code = EXIT_BAD_ANSWER
    else:
        code = EXIT_OK
    if params["as_json"]:
        content = {**found.to_json(), **(rest or {}), "report": report, "problems": run.problems}
        environment = run.meta.get("environment")
        ok = ended is None and not bad
        emit_json(
            document(kind, run=run.folder, ok=ok, message=message, environment=environment, rest=content)
        )
    else:
        shown = [*lines, *([f"report: {report}"] if report is not None else [])]
        shown += [coloured(one_line(text), "red" if bad or ended else "bold", sys.stdout) for text in said]
        write("\n".join(shown) + "\n", sys.stdout)
    if ended is not None:
        show(f"ncclbench: error: {ended}\n", sys.stderr)
    return code


def _reasons(found: GroupsFound | P2p) -> str:
    told = [f"{arm['arm']}: {arm['reason']}" for arm in found.arms if arm["reason"]]
    told += [f"{line['part']} on {line['arm'] or 'any arm'}: {line['reason']}" for line in found.left_out]
    return "; ".join(told) or "no part was made"


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
