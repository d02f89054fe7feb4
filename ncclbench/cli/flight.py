"""``ncclbench flight``: who is stuck where, from the dumps of flight recorders."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.files import free_file
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.redaction import checked, redact_option, shown_path, tell_owner
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, RequestError
from ncclbench.terminal.streams import one_line, write

if TYPE_CHECKING:
    from ncclbench.flight.model import Evidence, Judgement, Refused
    from ncclbench.flight.overview import RankState
    from ncclbench.report.redact import Redactor

# More is no list of hosts.
_MOST_HOST_BYTES = 16 << 20
# So nobody calls a host: a hostfile that is not there.
_HOSTFILES = (".txt", ".hosts", ".hostfile", ".list", ".conf")
# What the first bytes of a file hold that this command may replace.
_HEAD_BYTES = 4096
_PAGE_MARK, _TRACE_MARK = b"ncclbench report</title>", b'"traceEvents"'


@click.command("flight", cls=SectionedCommand, epilog="Example: ncclbench flight /tmp/nccl_trace_rank_*")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE|DIR...",
    callback=lambda ctx, parameter, files: [values.path(file, "FILE|DIR") for file in files],
)
@under(
    "What is known of the job",
    option(
        "--hosts",
        metavar="FILE|NODELIST",
        parse=values.path,
        help="Names of hosts in the order of ranks: a hostfile, or a list like gpu[01-16].",
    ),
    option(
        "--ranks-per-host",
        metavar="N",
        otherwise="ranks over hosts",
        parse=values.whole(1, 4096),
        help="Ranks on each of --hosts, where its lines do not say slots=N.",
    ),
    option(
        "--world-size",
        metavar="N",
        otherwise="from the dumps",
        parse=values.whole(1),
        help="How many ranks there were, so that missing dumps are told.",
    ),
)
@under(
    "What is written",
    option(
        "--out",
        metavar="FILE",
        otherwise="no page",
        parse=values.path,
        help="A page with the findings, a timeline and all ranks: one HTML file, opens offline.",
    ),
    option(
        "--trace",
        metavar="FILE",
        otherwise="no trace",
        parse=values.path,
        help="The operations for Perfetto (ui.perfetto.dev) or chrome://tracing.",
    ),
)
@redact_option
@under(
    "How it answers",
    option(
        "--unclear",
        metavar="pass|fail",
        default="fail",
        parse=values.one_of(("pass", "fail")),
        help="What it counts as where dumps that are missing could change the answer.",
    ),
)
@json_option
@exit_zero_option
def command(
    files: Sequence[str],
    hosts: str | None,
    ranks_per_host: int | None,
    world_size: int | None,
    out: str | None,
    trace: str | None,
    redact: bool,
    unclear: str,
    as_json: bool,
    exit_zero: bool,
) -> int:
    """Read flight recorder dumps, pickled or JSON: who is stuck where, who did not come, who issued another.

    Nothing in a dump is executed. Folders are searched for dumps, a run's folder for what its ranks left.
    Ends with 1 where ranks are stuck or issued different operations, and with 2 where nothing could be read.
    """
    page = _free(out, "--out", _PAGE_MARK, "page of ncclbench")
    trace_file = _free(trace, "--trace", _TRACE_MARK, "trace")
    if page is not None and page == trace_file:
        raise RequestError(f"--out and --trace are one file, {page}: name two")
    if ranks_per_host is not None and hosts is None:
        raise RequestError("--ranks-per-host says how many ranks each of --hosts has: give --hosts too")
    if redact and trace_file is not None:
        raise RequestError("a trace keeps its names: leave --trace or --redact out")
    from ncclbench.flight.dumps import read
    from ncclbench.flight.judge import judge
    from ncclbench.flight.overview import dump_versions, rank_states

    evidence = read([_dumps_in(Path(file)) for file in files])
    if len(files) == 1:
        evidence = _of_run(evidence, Path(files[0]))
    evidence = _of_job(evidence, hosts, ranks_per_host, world_size)
    judgement = judge(evidence)
    redactor = None
    answer = _Answer(
        judgement,
        evidence.refused,
        rank_states(evidence, judgement),
        dump_versions(evidence),
        evidence.nranks,
    )
    if page is not None or redact:
        answer, redactor = _write_page(evidence, answer, page, redact)
    if trace_file is not None:
        _write_trace(evidence, judgement, trace_file)
    tell_owner(redactor)
    bad = judgement.verdict in ("stuck", "mismatch") or (judgement.verdict == "unclear" and unclear == "fail")
    if as_json:
        rest = answer.to_json()
        rest |= {"report": shown_path(page, redactor), "trace": shown_path(trace_file, redactor)}
        content = document("flight", ok=not bad, message=answer.judgement.message, rest=rest)
        emit_json(checked(content, redactor))
    else:
        from ncclbench.terminal.flight import flight_lines

        lines = flight_lines(evidence, judgement, sys.stdout)
        lines += [f"report: {one_line(str(page))}"] if page else []
        lines += [f"trace: {one_line(str(trace_file))}"] if trace_file else []
        write("\n".join(lines) + "\n", sys.stdout)
    return EXIT_BAD_ANSWER if bad and not exit_zero else EXIT_OK


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the document tells."""

    judgement: Judgement
    refused: Sequence[Refused]
    states: Sequence[RankState]
    versions: Sequence[str]
    nranks: int | None

    def to_json(self) -> dict[str, Any]:
        judgement = self.judgement
        return {
            "verdict": judgement.verdict,
            "findings": [finding.to_json() for finding in judgement.findings],
            "missing_dumps": judgement.missing_dumps,
            "wrapped_ranks": judgement.wrapped_ranks,
            "dump_versions": self.versions,
            "refused": [{"source": one.source, "reason": one.reason} for one in self.refused],
            "nranks": self.nranks,
            "ranks": [state.to_json() for state in self.states],
        }


def _free(file: str | None, option: str, mark: bytes, what: str) -> Path | None:
    """The file that an option names, if it may be written: a dump, or anything else, is not replaced.

    Raises:
        RequestError: nothing can be written there, or what is there was not made by this option.
    """
    if file is None:
        return None
    # A link is followed: what it points to is replaced, not the link.
    path = free_file(Path(os.path.realpath(file)), f"name another file with {option}")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}: name another file with {option}") from None
    if head and mark not in head:
        raise RequestError(f"{path} is there and no {what}: name another file with {option}")
    return path


def _dumps_in(path: Path) -> Path:
    """The path itself; of a run folder the folder of the dumps that its ranks left."""
    from ncclbench.report.flight.runs import FLIGHT_FOLDER
    from ncclbench.store.folder import META_FILE

    below = path / FLIGHT_FOLDER
    return below if os.path.isfile(path / META_FILE) and os.path.isdir(below) else path


def _of_run(evidence: Evidence, path: Path) -> Evidence:
    """The evidence with what run.json says of the ranks, where the dumps are those of a run."""
    from ncclbench.report.flight.runs import hosts_of
    from ncclbench.store.folder import META_FILE
    from ncclbench.store.meta import read_meta, read_plan

    if _dumps_in(path) == path:
        return evidence
    with suppress(RequestError):  # dumps can be read without it
        meta = read_meta(path / META_FILE)
        hosts = hosts_of(meta.get("environment") or {})
        return replace(evidence, nranks=read_plan(meta, path / META_FILE).nranks, host_of=hosts)
    return evidence


def _of_job(
    evidence: Evidence, hosts: str | None, ranks_per_host: int | None, world_size: int | None
) -> Evidence:
    """The evidence with what the options say of the job.

    Raises:
        RequestError: they contradict each other or the dumps.
    """
    if world_size is not None:
        most = max((dump.rank for dump in evidence.dumps if dump.rank is not None), default=-1)
        if most >= world_size:
            raise RequestError(f"--world-size {world_size}, and there is a dump of rank {most}: give more")
        evidence = replace(evidence, nranks=world_size)
    if hosts is None:
        return evidence
    from ncclbench.flight.hosts import place_ranks

    return replace(evidence, host_of=place_ranks(_host_text(hosts), ranks_per_host, evidence.nranks))


def _host_text(hosts: str) -> str:
    """The text of a hostfile, or the list itself.

    Raises:
        RequestError: the file cannot be read.
    """
    file = Path(hosts)
    try:
        if not os.path.isfile(file):
            if "/" in hosts or file.suffix in _HOSTFILES:
                raise RequestError(f"--hosts: there is no file {hosts}")
            return hosts
        with file.open("rb") as stream:
            content = stream.read(_MOST_HOST_BYTES + 1)
        if len(content) > _MOST_HOST_BYTES:
            raise RequestError(f"--hosts {hosts} is larger than any list of hosts: name a hostfile")
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(
            f"--hosts {hosts} is no text: name a hostfile, or a list like gpu[01-16]"
        ) from None
    except (OSError, ValueError) as error:
        raise RequestError(f"--hosts {hosts}: {error}") from None


def _write_page(
    evidence: Evidence, answer: _Answer, page: Path | None, redact: bool
) -> tuple[_Answer, Redactor | None]:
    """Write the page where one is asked for; the answer as the document has it, without names if need be."""
    # Imported here for the sake of --help: they bring NumPy, pandas and plotly.
    from ncclbench.report.flight.model import flight_of
    from ncclbench.report.flight.redacting import without_names
    from ncclbench.report.redact import Redactor

    flight = flight_of(evidence, answer.judgement)
    redactor = None
    if redact:
        redactor = Redactor([], [flight], tuple(evidence.host_of.values()))
        flight = without_names(flight, redactor)
        answer = replace(
            answer, judgement=flight.judgement, refused=flight.evidence.refused, states=flight.states
        )
    if page is not None:
        from ncclbench.report.build import write_flight

        write_flight(flight, page, redactor)
    return answer, redactor


def _write_trace(evidence: Evidence, judgement: Judgement, file: Path) -> None:
    from ncclbench.flight.trace import perfetto
    from ncclbench.store.folder import replace_file

    content = {"traceEvents": [], **perfetto(evidence, judgement)}
    replace_file(file, json.dumps(content, separators=(",", ":")).encode())
