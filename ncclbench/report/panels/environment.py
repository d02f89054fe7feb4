"""Panel: where it ran and how: findings, differences between hosts and ranks, settings, the command."""

from __future__ import annotations

import json
from typing import Any

from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import count_text, list_text

# A report names ranks one by one up to this many.
_MOST_RANKS = 64


def build(report: Report) -> Content | None:
    """One block per run."""
    return {"runs": [_block(source) for source in report.sources], "several_runs": len(report.sources) > 1}


PANEL = Panel(
    name="environment",
    order=80,
    title="Environment",
    description="What differs between hosts comes first: it is the likeliest reason for a difference in speed.",
    build=build,
    template="environment.html",
)


def _block(source: Source) -> dict[str, Any]:
    meta = source.run.meta
    environment = meta.get("environment") or {}
    hosts = [flattened(host) for host in environment.get("hosts") or []]
    names = [host.get("hostname", f"host {index}") for index, host in enumerate(hosts)]
    different, alike = split_by_difference(hosts)
    plan = source.run.plan
    facts = [
        ("command", str(meta.get("command") or "")),
        ("created", str(meta.get("created") or "")),
        ("ncclbench", str(meta.get("ncclbench") or "")),
        ("run folder", source.run.folder.name),
        ("arms", ", ".join(_arm(meta, arm.id) for arm in plan.arms)),
        ("seed", str(plan.seed)),
        (
            "asked for",
            f"{plan.iters} iterations in {count_text(plan.epochs, 'epoch')} of fresh {plan.epoch_kind}es"
            if plan.epoch_kind == "process"
            else f"{plan.iters} iterations in {count_text(plan.epochs, 'epoch')} of fresh {plan.epoch_kind}s",
        ),
        ("margin", f"{100 * plan.margin_ratio:g} % or {plan.margin_us:g} µs, the larger"),
        ("message", str(meta.get("message") or "")),
    ]
    return {
        "label": source.label,
        "findings": [_finding(finding) for finding in meta.get("preflight") or []],
        "names": names,
        "different": different,
        "alike": alike,
        "facts": [(name, text) for name, text in facts if text],
        "attempts": [_attempt(entry) for entry in meta.get("attempts") or []],
        "ranks": _ranks(environment, names),
    }


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
    hosts: list[dict[str, str]],
) -> tuple[list[tuple[str, list[str]]], list[tuple[str, str]]]:
    """What differs between hosts, with each host's value; then what all have alike.

    The host's own name is no difference.
    """
    keys = list(dict.fromkeys(key for host in hosts for key in host))
    different, alike = [], []
    for key in keys:
        values = [host.get(key, "–") for host in hosts]
        if len(set(values)) == 1:
            alike.append((key, values[0]))
        elif key != "hostname":
            different.append((key, values))
    return different, alike


def _arm(meta: dict[str, Any], arm: str) -> str:
    """An arm with what really ran: "nccl (ProcessGroupNCCL, nccl2)"."""
    known = (meta.get("arms") or {}).get(arm) or {}
    implementation = known.get("implementation")
    return f"{arm} ({implementation})" if implementation else arm


def _finding(finding: dict[str, Any]) -> dict[str, str]:
    ranks = finding.get("ranks") or []
    named = [str(rank) for rank in ranks]
    return {
        "severity": str(finding.get("severity", "warning")),
        "what": str(finding.get("what", "")),
        "mend": str(finding.get("mend", "")),
        "ranks": f"{'rank' if len(named) == 1 else 'ranks'} {list_text(named)}" if named else "",
    }


def _attempt(entry: dict[str, Any]) -> dict[str, str]:
    return {key: str(entry.get(key) or "–") for key in ("started", "ended", "launcher", "epochs", "message")}


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
