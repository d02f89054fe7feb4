"""Panel: the runs of both sides, one line each."""

from __future__ import annotations

import shlex
from typing import Any

from ncclbench.report.model import host_name
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, moment_text
from ncclbench.report.versus.model import Versus
from ncclbench.store.model import Run


def build(versus: Versus) -> Content:
    """Where each launch came from and how it was made."""
    return {"lines": [_line(word, run) for word, run in versus.runs]}


PANEL: Panel[Versus] = Panel(
    name="runs",
    order=60,
    title="Runs",
    description="",
    build=build,
    template="versus-runs.html",
)


def _line(side: str, run: Run) -> dict[str, Any]:
    meta, plan = run.meta, run.plan
    hosts = (meta.get("environment") or {}).get("hosts") or []
    command = meta.get("command")
    return {
        "side": side,
        "folder": run.folder.name,
        "label": str(meta.get("label") or ""),
        "created": moment_text(str(meta.get("created") or "")),
        "hosts": list_text([host_name(host) for host in hosts]),
        "nranks": str(plan.nranks),
        "arms": ", ".join(arm.id for arm in plan.arms),
        "epochs": str(plan.epochs),
        "version": str(meta.get("ncclbench") or ""),
        "command": shlex.join(command) if isinstance(command, list) else str(command or ""),
    }
