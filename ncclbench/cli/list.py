"""``ncclbench list``: everything that has a name, and whether it can be measured here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import click

from ncclbench.cli.declaring import SectionedCommand
from ncclbench.cli.options import (
    json_option,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.values import one_of
from ncclbench.environment.gpu import count_gpus
from ncclbench.kernels import KINDS
from ncclbench.plan.preset import find_preset, preset_names
from ncclbench.tables.backends import BACKENDS, Backend, third_party_backends
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.settings import SETTINGS
from ncclbench.tables.topologies import TOPOLOGIES
from ncclbench.terminal.columns import aligned, indented
from ncclbench.terminal.streams import write
from ncclbench.units import count_text

Entry = dict[str, Any]


def collectives() -> list[Entry]:
    """Every operation, with what its form allows."""
    return [
        _entry(
            collective.name,
            collective.description,
            reduces=collective.reduces,
            rooted=collective.rooted,
            in_place=list(collective.in_place_forms),
            synchronising=collective.synchronising,
            least_ranks=collective.least_ranks,
        )
        for collective in COLLECTIVES.values()
    ]


def backends() -> list[Entry]:
    """Every process group; what only making a group would tell has ``available`` null."""
    torch, ngpus = _torch_version(), count_gpus()
    known = [*BACKENDS.values(), *third_party_backends().values()]
    return [_entry(each.name, each.description, *_backend_here(each, torch, ngpus)) for each in known]


def topologies() -> list[Entry]:
    """Every way to cut the ranks into groups."""
    return [
        _entry(
            topology.name,
            topology.description,
            parameters=topology.parameters,
        )
        for topology in TOPOLOGIES.values()
    ]


def dtypes() -> list[Entry]:
    """Every element type; which of them a backend takes is asked of its group when it runs."""
    return [
        _entry(
            dtype.name,
            f"{dtype.kind}, {count_text(dtype.itemsize, 'byte')} per element",
            itemsize=dtype.itemsize,
            aliases=list(dtype.aliases),
        )
        for dtype in DTYPES.values()
    ]


def redops() -> list[Entry]:
    """Every reduction operator."""
    return [
        _entry(redop.name, f"on {', '.join(redop.kinds)}", kinds=list(redop.kinds))
        for redop in REDOPS.values()
    ]


def modes() -> list[Entry]:
    """Every way to run a case."""
    device = "cuda" if count_gpus() else "cpu"
    entries = []
    for mode in MODES.values():
        here = device in mode.devices
        entries.append(_entry(mode.name, mode.description, here, None if here else "needs a GPU"))
    return entries


# docs/settings.md says more of them.
_SETTING_FORMS = (
    (
        "VARIABLE=value",
        "what a library reads once: NCCL_ALGO=Ring, or another of NCCL_, GLOO_, UCX_ and more",
    ),
    ("@NAME", "another Python, or a folder of libraries, that --arm-env says the place of"),
)


def settings() -> list[Entry]:
    """What may stand behind an arm's backend: what it knows by name, and what is written otherwise."""
    named = [_entry(setting.name, setting.description) for setting in SETTINGS.values()]
    return named + [_entry(form, description) for form, description in _SETTING_FORMS]


def kernels() -> list[Entry]:
    """Every kernel that ``ncclbench overlap`` computes with."""
    package, extra = ("numba_cuda", "'ncclbench[cuda]'") if count_gpus() else ("numba", "numba")
    here = find_spec(package) is not None
    reason = None if here else f"needs {package.replace('_', '-')}: pip install {extra}"
    return [_entry(kind.name, kind.description, here, reason, bound=kind.bound) for kind in KINDS.values()]


def presets() -> list[Entry]:
    """Every preset of the package; of those that end in an answer the question's name."""
    found = [find_preset(name) for name in preset_names()]
    return [
        _entry(each.name, each.title, steps=[step.name for step in each.steps], decision=each.decision)
        for each in found
    ]


SECTIONS: dict[str, Callable[[], list[Entry]]] = {
    "collectives": collectives,
    "backends": backends,
    "topologies": topologies,
    "dtypes": dtypes,
    "redops": redops,
    "modes": modes,
    "settings": settings,
    "kernels": kernels,
    "presets": presets,
}


@click.command(
    "list",
    cls=SectionedCommand,
    epilog="Example: ncclbench list backends",
)
@click.argument(
    "section",
    required=False,
    metavar=f"[{'|'.join(SECTIONS)}]",
    callback=lambda ctx, parameter, text: text and one_of(SECTIONS)(text, "list"),
)
@json_option
def command(section: str | None, as_json: bool) -> None:
    """List all that has a name, collectives to presets, and what of it is here, or why not."""
    listed = {name: SECTIONS[name]() for name in ([section] if section else SECTIONS)}
    if as_json:
        message = f"listed {', '.join(listed)}"
        emit_json(document("list", ok=True, message=message, rest=listed))
        return
    write("\n".join(_text(name, entries) for name, entries in listed.items()), sys.stdout)


def _entry(
    name: str, description: str, available: bool | None = True, reason: str | None = None, **more: Any
) -> Entry:
    return {"name": name, "description": description, "available": available, "reason": reason, **more}


def _text(section: str, entries: list[Entry]) -> str:
    cells = []
    for entry in entries:
        aliases = f" (also {', '.join(entry['aliases'])})" if entry.get("aliases") else ""
        words = f"{entry['description']}{aliases}"
        if entry["reason"]:
            words = f"{words} - {entry['reason']}" if words else entry["reason"]
        cells.append((entry["name"], words))
    return "\n".join([f"{section}:", *indented(aligned(cells, left=None))]) + "\n"


def _torch_version() -> tuple[int, int] | None:
    """Major and minor of the installed torch, asked of its package so as not to import it."""
    try:
        match = re.match(r"(\d+)\.(\d+)", version("torch"))
    except PackageNotFoundError:
        return None
    return (int(match[1]), int(match[2])) if match else None


def _backend_here(
    backend: Backend, torch: tuple[int, int] | None, ngpus: int
) -> tuple[bool | None, str | None]:
    """Whether the backend can be built here, and why not; None where only building it tells."""
    if torch is None:
        return False, "needs torch, which is not installed"
    if backend.oldest_torch is not None and torch < backend.oldest_torch:
        return False, f"needs torch >= {'.'.join(map(str, backend.oldest_torch))}"
    if backend.device == "cuda" and not ngpus:
        return False, "needs a GPU"
    if backend.device == "any":
        return None, "known once a group is made"
    return True, None
