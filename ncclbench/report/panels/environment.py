"""Panel: where it ran and how: findings, differences between hosts and ranks, settings, the command."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from ncclbench.environment.topology import topology_lines
from ncclbench.plan.model import Plan
from ncclbench.report.model import Report, Source, host_name
from ncclbench.report.panels.calls import cases_text
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, ranges_text
from ncclbench.store.model import Run
from ncclbench.units import count_text, format_percent

# A report names ranks one by one up to this many.
_MOST_RANKS = 64

_FRESH = {"group": "fresh process groups", "process": "fresh processes"}

# More values than this of one thing (a serial number) tell nothing.
_MOST_VALUES = 8


def build(report: Report) -> Content | None:
    """What differs between the runs, then one block per run; nothing where there is none."""
    if not report.sources:
        return None
    return {
        "runs": [_block(source) for source in report.sources],
        "between_runs": _between_runs(report),
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="environment",
    order=80,
    title="Environment",
    description="What differs between hosts comes first: the likeliest reason for a difference in speed.",
    build=build,
    template="environment.html",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not alike everywhere.

    Attributes:
        key: what it is.
        values: each value, with the names of those that have it.
        more: how many values are left out.
    """

    key: str
    values: list[tuple[str, str]]
    more: int


def _block(source: Source) -> dict[str, Any]:
    meta = source.run.meta
    environment = meta.get("environment") or {}
    hosts = _hosts(source)
    names = [name for name, _ in hosts]
    different, alike = split_by_difference(hosts)
    plan = source.run.plan
    facts = [
        ("command", _command(meta.get("command"))),
        ("created", str(meta.get("created") or "")),
        ("ncclbench", str(meta.get("ncclbench") or "")),
        ("run folder", source.run.folder.name),
        ("plan from", str(meta.get("plan_file") or "")),
        ("cases from", cases_text(meta.get("cases_from"))),
        ("arms", ", ".join(_arm(meta, arm.id) for arm in plan.arms)),
        *_method(source.run),
        ("message", str(meta.get("message") or "")),
        *(("during the run", problem) for problem in _problems(meta)),
    ]
    return {
        "label": source.label,
        "findings": [
            _finding(finding)
            for finding in sorted(
                meta.get("preflight") or [], key=lambda finding: finding["severity"] != "error"
            )
        ],
        "names": names,
        "different": different,
        "alike": alike,
        "facts": [(name, text) for name, text in facts if text],
        "attempts": [_attempt(entry) for entry in meta.get("attempts") or []],
        "ranks": _ranks(environment, names),
    }


def _method(run: Run) -> list[tuple[str, str]]:
    """What was asked for, and how."""
    if run.is_imported:
        return []
    if not run.has_cases:
        asked = run.meta.get("asked") or {}
        told = [
            name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {_plain(value)}"
            for name, value in asked.items()
            if value is not None and value is not False and value != []
        ]
        return [("asked for", ", ".join(told))]
    plan = run.plan
    return [
        ("seed", str(plan.seed)),
        ("asked for", _asked(plan)),
        ("margin", f"{100 * plan.margin_ratio:g} % or {plan.margin_us:g} µs, the larger"),
    ]


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _problems(meta: dict[str, Any]) -> list[str]:
    """What became worse on GPUs and NICs while the run went on."""
    return [str(problem) for entry in meta.get("health") or () for problem in entry.get("problems") or ()]


def _asked(plan: Plan) -> str:
    """How much was to be measured, and when to stop before."""
    asked = f"{plan.iters} iterations in {count_text(plan.epochs, 'epoch')} of {_FRESH[plan.epoch_kind]}"
    if plan.precision is not None:
        asked = f"at most {count_text(plan.epochs, 'epoch')} of {_FRESH[plan.epoch_kind]}"
        asked += f", until ±{format_percent(plan.precision)}"
    return asked + (f", {plan.time_budget_s:g} s a case" if plan.time_budget_s is not None else "")


def _hosts(source: Source) -> list[tuple[str, dict[str, str]]]:
    """Each host's name and flat description."""
    environment = source.run.meta.get("environment") or {}
    common = environment.get("common") or {}
    flat = [_described(common, host) for host in environment.get("hosts") or []]
    return [(host_name(host) or f"host {index}", host) for index, host in enumerate(flat)]


def _described(common: dict[str, Any], host: dict[str, Any]) -> dict[str, str]:
    plain = {key: value for key, value in {**common, **host}.items() if key != "topology"}
    return flattened(plain) | dict(topology_lines(host))


def flattened(value: Any, path: str = "") -> dict[str, str]:
    """A nested description as dotted names and texts: ``{"torch": {"cuda": 1}}`` to ``torch.cuda: 1``."""
    if isinstance(value, dict) and value:
        flat: dict[str, str] = {}
        for key, below in value.items():
            flat |= flattened(below, f"{path}.{key}" if path else str(key))
        return flat
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return flattened({str(index): entry for index, entry in enumerate(value)}, path)
    if isinstance(value, list):
        return {path: ", ".join(_scalar(entry) for entry in value)}
    return {path: _scalar(value)}


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def split_by_difference(
    named: list[tuple[str, dict[str, str]]],
) -> tuple[list[Difference], list[tuple[str, str]]]:
    """What differs between hosts, or runs, and what all have alike.

    Args:
        named: the name of each and its flat description. A host's name is no difference.
    """
    keys = list(dict.fromkeys(key for _, flat in named for key in flat if key != "name"))
    different, alike = [], []
    for key in keys:
        holders: dict[str, list[str]] = {}
        for name, flat in named:
            holders.setdefault(flat.get(key, "–"), []).append(name)
        if len(holders) == 1:
            alike.append((key, next(iter(holders))))
        else:
            values = [(value, list_text(names, most=8)) for value, names in holders.items()]
            different.append(Difference(key, values[:_MOST_VALUES], max(0, len(values) - _MOST_VALUES)))
    return different, alike


def _between_runs(report: Report) -> list[Difference]:
    """What differs between the runs: in what was asked, and in what all hosts of each run have alike."""
    if len(report.sources) < 2:
        return []
    named = []
    for source in report.sources:
        plan = source.run.plan
        asked = {"ranks": str(plan.nranks), "hosts": str(len(_hosts(source)))}
        if source.run.has_cases and not source.run.is_imported:
            asked |= {"iterations": str(plan.iters), "epochs": str(plan.epochs)}
        asked["ncclbench"] = str(source.run.meta.get("ncclbench") or "–")
        named.append((source.label, asked | dict(split_by_difference(_hosts(source))[1])))
    return split_by_difference(named)[0]


def _arm(meta: dict[str, Any], arm: str) -> str:
    """An arm with what really ran: "nccl (ProcessGroupNCCL, nccl2)"."""
    known = (meta.get("arms") or {}).get(arm) or {}
    implementation = known.get("implementation")
    return f"{arm} ({implementation})" if implementation else arm


def _command(command: Any) -> str:
    return shlex.join(command) if isinstance(command, list) else str(command or "")


def _finding(finding: dict[str, Any]) -> dict[str, str]:
    ranks = finding.get("ranks") or []
    return {
        "severity": str(finding.get("severity", "warning")),
        "what": str(finding.get("what", "")),
        "mend": str(finding.get("mend", "")),
        "ranks": f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges_text(ranks)}" if ranks else "",
    }


def _attempt(entry: dict[str, Any]) -> dict[str, str]:
    return {key: str(entry.get(key) or "–") for key in ("started", "ended", "launcher", "message")}


def _ranks(environment: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Where the ranks sat, one line each, up to a number that can be read."""
    entries = environment.get("ranks") or []
    lines = []
    for entry in entries[:_MOST_RANKS]:
        host = entry.get("host")
        known = isinstance(host, int) and 0 <= host < len(names)
        lines.append(
            {
                "rank": str(entry.get("rank", "")),
                "host": names[host] if known else str(host),
                "local_rank": str(entry.get("local_rank", "")),
                "device": _device(entry.get("device")),
            }
        )
    return {"lines": lines, "more": max(0, len(entries) - _MOST_RANKS)}


def _device(device: Any) -> str:
    if isinstance(device, dict):
        return ", ".join(text for text in flattened(device).values() if text)
    return _scalar(device)
