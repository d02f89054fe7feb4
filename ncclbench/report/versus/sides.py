"""Panel: what each side is, fact beside fact: GPUs, links, versions, clocks, hosts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ncclbench.compare.confounded import confounded
from ncclbench.compare.sides import Side
from ncclbench.environment.against import value_text
from ncclbench.environment.collect import whole_ranks
from ncclbench.environment.topology import topology_facts
from ncclbench.report.model import host_name
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text
from ncclbench.report.versus.model import Versus
from ncclbench.store.model import Run
from ncclbench.units import count_text

# More values of one fact than these are counted only.
_MOST_VALUES = 3


def build(versus: Versus) -> Content | None:
    """What at least one side tells; nothing for two arms of one job, which have all of it in common."""
    comparison = versus.comparison
    if comparison.base.runs[0] is comparison.new.runs[0]:
        return None
    sides = [_facts(side) for side in (comparison.base, comparison.new)]
    names = [name for name in _ORDER if any(name in side for side in sides)]
    found = confounded(comparison)
    return {
        "base": comparison.base.label,
        "new": comparison.new.label,
        "lines": [
            {"what": name, "base": one, "new": other, "differs": one != other}
            for name, one, other in ((name, *(side.get(name, "–") for side in sides)) for name in names)
        ],
        "subject": found.subject,
        "unknown": found.unknown,
    }


PANEL: Panel[Versus] = Panel(
    name="sides",
    order=22,
    title="Side by side",
    description="What each side is; every other fact that is not alike stands under What differs.",
    build=build,
    template="versus-sides.html",
)


def _watts(value: Any) -> str:
    return f"{value:g} W"


def _mhz(value: Any) -> str:
    return f"{value:g} MHz"


def _gigabytes(value: Any) -> str:
    return f"{value / 1e9:.0f} GB"


# Of a rank: its name for people, the keys that may hold it, and how it is written.
_OF_RANKS: tuple[tuple[str, tuple[str, ...], Callable[[Any], str]], ...] = (
    ("GPU", ("gpu.name",), value_text),
    ("GPU memory", ("gpu.memory_total_bytes",), _gigabytes),
    ("GPU links", ("gpu_links",), value_text),
    ("NICs", ("nics",), value_text),
    ("driver", ("gpu.driver", "driver"), value_text),
    ("CUDA", ("cuda",), value_text),
    ("NCCL", ("nccl",), value_text),
    ("torch", ("torch",), value_text),
    ("net plugin", ("net_plugin",), value_text),
    ("SM clock set", ("gpu.sm_clock_set_mhz",), _mhz),
    ("SM clock at most", ("gpu.sm_clock_max_mhz",), _mhz),
    ("power limit", ("gpu.power_limit_w",), _watts),
    ("CPU", ("cpu",), value_text),
    ("kernel", ("kernel",), value_text),
)
_ORDER = ("measured by", "launches", "ranks", "hosts", "backend", *(name for name, _, _ in _OF_RANKS))


def _facts(side: Side) -> dict[str, str]:
    """What is told of a side, by the names in ``_ORDER``."""
    environments = [run.meta.get("environment") or {} for run in side.runs]
    hosts = list(dict.fromkeys(host_name(host) for each in environments for host in each.get("hosts") or ()))
    found = {
        "measured by": list_text(_each(side, _tool)),
        "launches": str(len(side.runs)),
        "ranks": list_text(_each(side, lambda run: str(run.plan.nranks))),
        "hosts": list_text([name for name in hosts if name]),
        "backend": list_text(_each(side, lambda run: _backends(run, side.arms))),
    }
    for name, text in _of_ranks(environments):
        found[name] = text
    return {name: text for name, text in found.items() if text}


def _of_ranks(environments: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    ranks = [facts for each in environments for facts in _rank_facts(each)]
    for name, keys, text in _OF_RANKS:
        values = [next((facts[key] for key in keys if facts.get(key) is not None), None) for facts in ranks]
        counts = Counter(json.dumps(value, sort_keys=True) for value in values if value is not None)
        if not counts:
            continue
        shown = [_written(json.loads(value), text) for value, _ in counts.most_common(_MOST_VALUES)]
        if len(counts) == 1:
            yield name, shown[0]
        else:
            told = [
                f"{each} on {count_text(count, 'rank')}"
                for each, (_, count) in zip(shown, counts.most_common(_MOST_VALUES), strict=True)
            ]
            more = len(counts) - len(told)
            yield name, ", ".join(told) + (f" and {more} more values" if more > 0 else "")


def _written(value: Any, text: Callable[[Any], str]) -> str:
    """A file may hold anything in a number's place: then it is shown as it stands."""
    is_odd = text is not value_text and (isinstance(value, bool) or not isinstance(value, int | float))
    return value_text(value) if is_odd else text(value)


def _rank_facts(environment: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    hosts = environment.get("hosts") or []
    if not environment.get("ranks"):
        return
    for rank in whole_ranks(environment):
        host = hosts[rank["host"]]
        gpu = rank.get("gpu")
        of_gpu = {f"gpu.{key}": value for key, value in gpu.items()} if isinstance(gpu, Mapping) else {}
        yield {**host, **topology_facts(host), **rank, **of_gpu}


def _each(side: Side, of: Callable[[Run], str]) -> list[str]:
    """What is told of the runs, each once."""
    return list(dict.fromkeys(told for run in side.runs if (told := of(run))))


def _tool(run: Run) -> str:
    if run.is_imported:
        return " and ".join(dict.fromkeys(arm.backend for arm in run.plan.arms)) + " (means only)"
    return f"ncclbench {run.meta.get('ncclbench') or ''}".strip()


def _backends(run: Run, arms: list[str]) -> str:
    """What ran under the arms meant: the group's class and backend, or the arm where that is not known."""
    described = run.meta.get("arms") or {}
    return ", ".join(str((described.get(arm) or {}).get("implementation") or arm) for arm in arms)
