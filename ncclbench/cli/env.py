"""``ncclbench env``: where every rank runs and with what, and what would spoil timing there."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import SectionedCommand, option, under
from ncclbench.cli.jobs import rank_count, run_job
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
    launch_options,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.environ import variables
from ncclbench.environment.against import changes, side_text
from ncclbench.environment.collect import whole_ranks
from ncclbench.environment.host import format_ranges
from ncclbench.environment.topology import topology_lines
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, RequestError
from ncclbench.supervise.launcher import find_seat
from ncclbench.terminal.columns import aligned, indented
from ncclbench.terminal.streams import coloured, one_line, write
from ncclbench.units import count_text, format_memory

if TYPE_CHECKING:
    from ncclbench.supervise.launch import Job

# Of one thing of the topology, which may be another on every host, no more are shown.
_MOST_VALUES = 8

# Of findings, by severity.
_COLOURS = {"error": "red", "warning": "yellow"}

_VERSIONS = ("ncclbench", "python", "torch", "cuda", "nccl")


@click.command("env", cls=SectionedCommand, epilog="Example: ncclbench env")
@under(
    "What is compared",
    option("--against", metavar="RUN", parse=values.path, help="Show what changed since a run."),
)
@launch_options
@json_option
@exit_zero_option
def command(nproc_per_node: int | None, **params: Any) -> int:
    """Show devices, versions and settings of every rank, and what would spoil timing.

    Ends with 1 where a finding would make a measurement fail.
    """
    seat = find_seat(variables(), nproc_per_node)
    nranks = rank_count(seat, nproc_per_node)
    # A wrong run is refused before anything starts; under a launcher the others are met first, so that
    # all of them end with the same code.
    former = _former(params["against"]) if seat is None else None

    def lead(job: Job) -> int:
        return _lead(job, params, former or _former(params["against"]))

    return run_job("env", seat, nranks, params["as_json"], lead)


def _former(against: str | None) -> Mapping[str, Any] | None:
    """The environment of the run to compare with, if one is asked for.

    Raises:
        RequestError: it is no run, or does not tell where it ran.
    """
    if against is None:
        return None
    from ncclbench.store.folder import META_FILE
    from ncclbench.store.meta import read_meta

    path = Path(against)
    meta = read_meta(path if path.name == META_FILE else path / META_FILE)
    environment: Mapping[str, Any] | None = meta.get("environment")
    if environment is None:
        raise RequestError(f"{against} does not tell where it ran: take another run for --against")
    return environment


def _lead(job: Job, params: Mapping[str, Any], former: Mapping[str, Any] | None) -> int:
    from ncclbench.supervise.environment_run import gather

    gathered = gather(job, share_gpu=params["share_gpu"], timeout_s=params["timeout"])
    environment, preflight = gathered["environment"], gathered["preflight"]
    bad = any(finding["severity"] == "error" for finding in preflight)
    message = _message(environment, preflight)
    changed = None if former is None else changes(former, environment)
    if changed is not None:
        message += (
            f"; {count_text(len(changed), 'change') if changed else 'no change'} since {params['against']}"
        )
    if params["as_json"]:
        rest = {"preflight": preflight} | ({} if changed is None else {"changes": changed})
        emit_json(document("env", ok=not bad, message=message, environment=environment, rest=rest))
    else:
        _show([*_sections(environment, preflight, changed or [])], message)
    return EXIT_BAD_ANSWER if bad and not params["exit_zero"] else EXIT_OK


def _message(environment: Mapping[str, Any], preflight: Sequence[Mapping[str, Any]]) -> str:
    nranks, nhosts = len(environment["ranks"]), len(environment["hosts"])
    severities = Counter(finding["severity"] for finding in preflight)
    found = [count_text(number, severity) for severity, number in severities.items()]
    where = f"{count_text(nranks, 'rank')} on {count_text(nhosts, 'host')}"
    return f"{where}: {' and '.join(found) or 'nothing that would spoil timing'}"


@dataclass(frozen=True, slots=True)
class _Section:
    """One table: its title, the heads of its columns, and its lines."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]


def _sections(
    environment: Mapping[str, Any],
    preflight: Sequence[Mapping[str, Any]],
    changed: Sequence[Mapping[str, Any]],
) -> Iterator[_Section]:
    """What needs attention comes first; sections without lines are left out."""
    since = [[each["what"], side_text(each, "base"), side_text(each, "new")] for each in changed]
    sections = (
        _Section("Changes", ("what", "then", "now"), since),
        _Section("Findings", ("severity", "ranks", "what", "mend"), [_finding(each) for each in preflight]),
        _Section("Differences", ("what", "value", "ranks"), [*_differences(environment)]),
        _Section("Hosts", ("host", "ranks", "cpu", "cores", "memory", "os", "kernel"), _hosts(environment)),
        _Section("Devices", ("ranks", "host", "device", "cores"), _devices(environment)),
        _Section("Topology", ("what", "value", "hosts"), [*_topology(environment)]),
        _Section("Settings", ("name", "value"), _settings(environment)),
    )
    return (section for section in sections if section.lines)


def _finding(finding: Mapping[str, Any]) -> list[str]:
    return [finding["severity"], format_ranges(finding["ranks"]), finding["what"], finding["mend"]]


def _differences(environment: Mapping[str, Any]) -> Iterator[list[str]]:
    for difference in environment["differences"]:
        for number, entry in enumerate(difference["values"]):
            what = difference["what"] if number == 0 else ""
            yield [what, _value(entry["value"]), format_ranges(entry["ranks"])]
        if "more" in difference:
            yield ["", f"and {difference['more']} more values", ""]


def _hosts(environment: Mapping[str, Any]) -> list[list[str]]:
    members: dict[int, list[int]] = {}
    for rank in environment["ranks"]:
        members.setdefault(rank["host"], []).append(rank["rank"])
    return [
        [
            host["name"],
            format_ranges(members[index]),
            host["cpu"],
            f"{host['physical_cores'] or '?'} ({host['logical_cores']} logical)",
            format_memory(host["memory_bytes"]),
            host["os"],
            host["kernel"],
        ]
        for index, host in enumerate(environment["hosts"])
    ]


def _devices(environment: Mapping[str, Any]) -> list[list[str]]:
    """One line for ranks that are alike: of a CPU run the ranks of a host, else each rank its GPU."""
    lines: dict[tuple[str, str, str], list[int]] = {}
    for rank in whole_ranks(environment):
        name = environment["hosts"][rank["host"]]["name"]
        gpu = rank["gpu"] or {}
        words = (rank["device"], gpu.get("name"), gpu.get("pci_bus_id"), gpu.get("driver"))
        device = ", ".join(str(word) for word in words if word)
        cores = f"{rank['usable_cores']:g} of {rank['cores']}"
        lines.setdefault((name, device, cores), []).append(rank["rank"])
    return [[format_ranges(ranks), *line] for line, ranks in lines.items()]


def _topology(environment: Mapping[str, Any]) -> Iterator[list[str]]:
    """Links, NICs and what the hosts run in; equal ones in one line."""
    holders: dict[str, dict[str, list[str]]] = {}
    for host in environment["hosts"]:
        for what, text in topology_lines(host):
            holders.setdefault(what, {}).setdefault(text, []).append(host["name"])
    for what, texts in holders.items():
        for number, (text, names) in enumerate([*texts.items()][:_MOST_VALUES]):
            hosts = names[0] if len(names) == 1 else f"{len(names)} hosts"
            yield [what if number == 0 else "", text, hosts]
        if len(texts) > _MOST_VALUES:
            yield ["", f"and {len(texts) - _MOST_VALUES} more values", ""]


def _settings(environment: Mapping[str, Any]) -> list[list[str]]:
    """Versions and variables that all ranks have alike."""
    common = environment["common"]
    versions = [(name, common[name]) for name in _VERSIONS if common.get(name) is not None]
    return [[name, _value(value)] for name, value in [*versions, *common["variables"].items()]]


def _value(value: Any) -> str:
    return "(not set)" if value is None else str(value)


def _show(sections: Sequence[_Section], message: str) -> None:
    """Tables, on a terminal with what is wrong in colour; the conclusion comes last."""
    text = "\n".join("".join(f"{line}\n" for line in _table(section)) for section in sections)
    write(f"{text}\n{one_line(message)}\n", sys.stdout)


def _table(section: _Section) -> list[str]:
    cells = [[one_line(cell) for cell in line] for line in section.lines]
    lines = indented(aligned([section.heads, *cells], left=None))
    colours = (_COLOURS.get(line[0]) for line in cells)
    shown = [
        coloured(line, colour, sys.stdout) if colour else line
        for line, colour in zip(lines[1:], colours, strict=True)
    ]
    return [f"# {section.title}", lines[0], *shown]
