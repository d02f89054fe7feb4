"""What a comparison is of, and what else differs, so that the effect cannot be told apart from it.

Two machines are compared for what they are: their GPUs or, of equal GPUs, the nodes themselves. What comes
with the GPU (its memory, its default clocks, its links) belongs to it. Drivers, libraries, settings, clocks
that were set, NICs and where the ranks sit do not: they could be made equal, and as long as they are not,
nobody can say which of all these made the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncclbench.compare.launches import Comparison
from ncclbench.compare.sides import Side
from ncclbench.compare.throttled import throttled_text
from ncclbench.environment.against import host_names, side_text
from ncclbench.environment.variables import HIDDEN
from ncclbench.store.model import Run
from ncclbench.units import count_text

# Of a value's text in one line; the rest is among the differences.
_WIDEST = 40
# In one line.
_MOST_NAMED = 6

# Facts by what they are called in a line, those that explain most first; what is not here, and no variable
# that steers a library, is not named. Several facts may be one thing.
_WORDS = {
    "gpu.throttled": "throttled before",
    "gpu.sm_clock_set_mhz": "SM clock set (MHz)",
    "gpu.power_limit_w": "power limit (W)",
    "gpu.pcie_width": "PCIe lanes in use",
    "gpu.nvlinks_up": "NVLinks up",
    "gpu.ecc": "ECC",
    "gpu.mig": "MIG",
    "gpu.driver": "driver",
    "driver": "driver",
    "nccl": "NCCL",
    "torch": "torch",
    "cuda": "CUDA",
    "gpu_links": "GPU links",
    "nics": "NICs",
    "nic_firmware": "NIC firmware",
    "net_plugin": "net plugin",
    "cpu": "CPU",
    "cpu_governor": "CPU governor",
    "usable_cores": "cores to use",
    "kernel": "kernel",
    "container": "container",
    "gpu.vbios": "VBIOS",
    "bios": "BIOS",
    "gpu.persistence": "persistence mode",
    "ncclbench": "ncclbench",
}
_VARIABLES = (
    "NCCL_",
    "TORCH_",
    "CUDA_",
    "PYTORCH_",
    "GLOO_",
    "UCX_",
    "FI_",
    "NVSHMEM_",
    "OMP_",
    "LD_PRELOAD",
)
# Where variables stand in the order: settings of a library explain more than what comes from here on.
_VARIABLES_BEFORE = "gpu_links"
# Which device a rank is given says nothing of its speed.
_PLACES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
# Part of a GPU, so that another GPU has another.
_OF_THE_GPU = ("gpu_links", "gpu.vbios", "gpu.pcie_width", "gpu.nvlinks_up")
# What was set, and what the GPU has by itself: as long as nobody set it, it belongs to the GPU too.
_BY_DEFAULT = {
    "gpu.sm_clock_set_mhz": "gpu.sm_clock_default_mhz",
    "gpu.power_limit_w": "gpu.power_limit_default_w",
}


@dataclass(frozen=True, slots=True)
class Differing:
    """One thing that the sides do not have alike, in words."""

    what: str
    base: str
    new: str

    def text(self, arrow: str) -> str:
        """ "driver 570.86 -> 580.12", with whatever arrow there can be."""
        return f"{self.what} {_cut(self.base)} {arrow} {_cut(self.new)}"

    def to_json(self) -> dict[str, str]:
        """Plain data."""
        return {"what": self.what, "base": self.base, "new": self.new}


@dataclass(frozen=True, slots=True)
class Confounded:
    """What is compared, and what differs besides.

    Attributes:
        subject: the GPUs, the nodes, or the one thing that differs; None where several do and none of them is
            what a comparison is made for, or where nothing does.
        others: those that explain most first.
        unknown: sides of which no environment was recorded, "base" or "new".
        untold: sides that other tools measured: at most GPUs, hosts and a version or two are known of them.
        hidden: settings that look like secrets on both sides, so that they were not recorded on either.
    """

    subject: Differing | None = None
    others: list[Differing] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    def compared(self, arrow: str = "->") -> str | None:
        """What the comparison is of; None where nothing stands out."""
        if self.subject is None:
            return None
        clear = not (self.others or self.unknown or self.untold or self.hidden)
        alone = ", and nothing else is known to differ that matters" if clear else ""
        return f"compared: {self.subject.text(arrow)}{alone}"

    def warning(self, arrow: str = "->") -> str | None:
        """What a reader must know before the verdict; None where nothing stands beside the subject."""
        parts = []
        if self.others:
            named = ", ".join(other.text(arrow) for other in self.others[:_MOST_NAMED])
            more = len(self.others) - _MOST_NAMED
            told = f"{named} and {more} more" if more > 0 else named
            beside = "also different" if self.subject else "different"
            these = "this" if len(self.others) == 1 else "these"
            apart = f"from {these}" if self.subject else "between these"
            parts.append(f"{beside}: {told}: the effect cannot be told apart {apart}")
        if self.unknown:
            sides = " and ".join(self.unknown)
            parts.append(f"the environment of {sides} was not recorded, so what else differs is not known")
        if self.untold:
            sides = " and ".join(self.untold)
            were = "were" if len(self.untold) > 1 else "was"
            parts.append(
                f"what {sides} {were} imported from does not tell drivers, clocks or settings, so what else "
                "differs is not known"
            )
        if self.hidden:
            parts.append(f"{_listed(self.hidden)} was not recorded on either side, so it may differ too")
        return "; ".join(parts) or None

    def to_json(self) -> dict[str, Any]:
        """Plain data: ``subject`` and ``confounded``, each entry with ``what``, ``base`` and ``new``."""
        return {
            "subject": self.subject.to_json() if self.subject else None,
            "confounded": [other.to_json() for other in self.others],
        }


def confounded(comparison: Comparison) -> Confounded:
    """What the sides of a comparison do not have alike, put in order.

    Two arms of one job have everything alike but themselves.
    """
    base, new = comparison.base, comparison.new
    arms = _arms(comparison)
    both = (("base", base), ("new", new))
    untold = [name for name, side in both if _imported(side) and _is_known(side)]
    if base.runs[0] is new.runs[0]:
        return Confounded(subject=arms, untold=untold)
    unknown = [name for name, side in both if not _is_known(side)]
    changes = {str(change["what"]): change for change in comparison.differences}
    hidden = [what for what, change in changes.items() if what.startswith(_VARIABLES) and _is_hidden(change)]
    changes = {what: change for what, change in changes.items() if not _is_hidden(change)}
    if unknown or _imported(base) or _imported(new):
        # What one side does not tell is not known to differ.
        changes = {what: change for what, change in changes.items() if _is_told(change)}
    gpu, nodes = _changed(changes, "gpu.name", "GPU"), _nodes(base, new)
    others = [*_tools(base, new), *([arms] if arms else []), *_throttling(base, new)]
    others += [*_named(changes, other_gpu=gpu is not None), *_placement(base, new)]
    subject = gpu or nodes
    if subject is None and len(others) == 1:
        subject, others = others[0], []
    return Confounded(subject, others, unknown, untold, hidden)


def _named(changes: Mapping[str, Mapping[str, Any]], other_gpu: bool) -> Iterator[Differing]:
    seen: set[str] = set()
    for what in _in_order(changes):
        word = _WORDS.get(what, what)
        if word in seen or (other_gpu and _belongs_to_the_gpu(what, changes)):
            continue
        seen.add(word)
        yield _differing(word, changes[what])


def _in_order(changes: Mapping[str, Any]) -> Iterator[str]:
    variables = [what for what in changes if what.startswith(_VARIABLES) and what not in _PLACES]
    for what in _WORDS:
        if what == _VARIABLES_BEFORE:
            yield from variables
        if what in changes:
            yield what


def _belongs_to_the_gpu(what: str, changes: Mapping[str, Mapping[str, Any]]) -> bool:
    if what in _OF_THE_GPU:
        return True
    default = changes.get(_BY_DEFAULT.get(what, ""))
    return default is not None and all(
        side_text(changes[what], side) == side_text(default, side) for side in ("base", "new")
    )


def _changed(changes: Mapping[str, Mapping[str, Any]], what: str, word: str) -> Differing | None:
    change = changes.get(what)
    return _differing(word, change) if change is not None and _is_told(change) else None


def _is_told(change: Mapping[str, Any]) -> bool:
    """Whether both sides tell a value."""
    return all(any(each["value"] is not None for each in change[side]) for side in ("base", "new"))


def _is_hidden(change: Mapping[str, Any]) -> bool:
    """Whether it was not recorded on either side, since it looks like a secret: it may be alike or not."""
    return side_text(change, "base") == side_text(change, "new") and any(
        each["value"] == HIDDEN for each in change["base"]
    )


def _differing(word: str, change: Mapping[str, Any]) -> Differing:
    ours, theirs = (_text(change, side) for side in ("base", "new"))
    return Differing(word, ours, theirs)


def _text(change: Mapping[str, Any], side: str) -> str:
    """The values on a side; a whole number without its zeros."""
    values = change[side]
    if len(values) == 1 and isinstance(values[0]["value"], float):
        return f"{values[0]['value']:g}"
    return side_text(change, side)


def _nodes(base: Side, new: Side) -> Differing | None:
    """The hosts, where no host is on both sides."""
    ours, theirs = (host_names(_environments(side)) for side in (base, new))
    if not ours or not theirs or ours & theirs:
        return None
    return Differing("nodes", _listed(sorted(ours)), _listed(sorted(theirs)))


def _arms(comparison: Comparison) -> Differing | None:
    """What ran, where the same row has two things on it: the group's class, or else the arm."""
    pairs = dict.fromkeys(
        (str(row.get("base_arm") or row["base"]), str(row.get("new_arm") or row["new"]))
        for row in comparison.rows
    )
    for base_arm, new_arm in pairs:
        ours = _implementation(comparison.base, base_arm), _implementation(comparison.new, new_arm)
        if None not in ours and ours[0] != ours[1]:
            return Differing("backend", str(ours[0]), str(ours[1]))
        if base_arm != new_arm and not any(_imported(side) for side in (comparison.base, comparison.new)):
            return Differing("arm", base_arm, new_arm)
    return None


def _implementation(side: Side, arm: str) -> str | None:
    described = (side.runs[0].meta.get("arms") or {}).get(arm) or {}
    told = described.get("implementation")
    return None if told is None else str(told)


def _tools(base: Side, new: Side) -> list[Differing]:
    """Who measured."""
    ours, theirs = (_listed(_per_run(side, _tool)) for side in (base, new))
    return [Differing("measured by", ours, theirs)] if ours != theirs else []


def _throttling(base: Side, new: Side) -> list[Differing]:
    """GPUs that were held back while they were measured, unless the same were on both sides."""
    ours, theirs = (_throttled(side) for side in (base, new))
    return [Differing("throttled", ours, theirs)] if ours != theirs else []


def _throttled(side: Side) -> str:
    return _listed(_per_run(side, lambda run: throttled_text(run, side.arms))) or "none"


def _tool(run: Run) -> str:
    return " and ".join(arm.backend for arm in run.plan.arms) if run.is_imported else "ncclbench"


def _imported(side: Side) -> bool:
    return any(run.is_imported for run in side.runs)


def _placement(base: Side, new: Side) -> list[Differing]:
    """How many ranks are on each host."""
    ours, theirs = (_listed(_per_run(side, _places)) for side in (base, new))
    return [Differing("rank placement", ours, theirs)] if ours and theirs and ours != theirs else []


def _places(run: Run) -> str | None:
    """ "8 ranks on 1 host"."""
    environment = run.meta.get("environment") or {}
    ranks = [rank.get("host") for rank in environment.get("ranks") or ()]
    if not ranks:
        return None
    hosts = len(set(ranks))
    return f"{count_text(len(ranks), 'rank')} on {count_text(hosts, 'host')}"


def _per_run(side: Side, of: Callable[[Run], str | None]) -> list[str]:
    """What is told of the runs of a side, each once."""
    return list(dict.fromkeys(told for run in side.runs if (told := of(run)) is not None))


def _is_known(side: Side) -> bool:
    return any(environment.get("ranks") for environment in _environments(side))


def _environments(side: Side) -> Sequence[Mapping[str, Any]]:
    return [run.meta.get("environment") or {} for run in side.runs]


def _listed(words: Sequence[str], most: int = 3) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 2]}.."
