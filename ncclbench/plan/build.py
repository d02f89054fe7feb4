"""From what was asked to a Plan: every case in reading order, each planned or skipped with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

from ncclbench.errors import RequestError
from ncclbench.plan import memory
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import (
    FIRST_LOOK,
    MARGIN_RATIO,
    MARGIN_US,
    Arm,
    Case,
    Device,
    Injection,
    Plan,
    PlannedCase,
)
from ncclbench.tables.backends import Backend, find_backend
from ncclbench.tables.collectives import COLLECTIVES, Collective, Layout
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.settings import tiers
from ncclbench.tables.statistics import DEFAULT_STATISTIC
from ncclbench.tables.topologies import WORLD, Cut, Groups, Placement

# What the rows of operations without data carry, whatever dtypes were asked for, so that they pair
# with other runs' rows.
NO_DATA_DTYPE = "float32"

# Timed operations of a case and arm, where -n does not say: one arm, and several.
_ITERS, _SEVERAL_ITERS = 20, 160
# With --precision: where no budget and no number of epochs ends a case before.
_PRECISE_BUDGET_S = 60.0
_MOST_EPOCHS = 10_000

# More than anybody measures: every root of thousands of ranks with every type is a slip, and would be
# minutes and gigabytes of planning.
_MOST_CASES = 500_000
# Reasons named when nothing at all can be measured; the rest is counted.
_REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """What to measure, in names of the tables: the cases are the product of it.

    Attributes:
        ops, dtypes, redops, modes: table names, distinct, in the order asked for.
        topologies: distinct, in the order asked for.
        roots: group ranks, or None for every rank.
        sizes: bytes, ascending and distinct; trimmed to whole elements per rank.
        async_op: the forms asked for.
        in_place: the forms asked for, or None for the one that is natural to each operation.
    """

    sizes: tuple[int, ...]
    ops: tuple[str, ...] = ("all_reduce",)
    dtypes: tuple[str, ...] = ("float32",)
    redops: tuple[str, ...] = ("sum",)
    roots: tuple[int, ...] | None = (0,)
    topologies: tuple[Cut, ...] = (WORLD,)
    modes: tuple[str, ...] = ("isolated", "back-to-back")
    async_op: tuple[bool, ...] = (False,)
    in_place: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """How each case is measured: the Plan's fields of the same names, None where the default depends.

    Attributes:
        base_arm: None: the first arm.
        iters: None: 20, with several arms or ``precision`` 160.
        epochs: None: 3, with several arms 8, and never more than ``iters``; with ``precision`` the most.
        statistic: None: p25 on the CPU, median on CUDA.
        time_budget_s: None: no limit, with ``precision`` a minute.
    """

    base_arm: str | None = None
    iters: int | None = None
    warmup_iters: int | None = None
    check: int = 1
    epochs: int | None = None
    epoch_kind: Literal["group", "process"] = "group"
    statistic: str | None = None
    margin_ratio: float = MARGIN_RATIO
    margin_us: float = MARGIN_US
    time_budget_s: float | None = None
    timeout_s: float = 60.0
    share_gpu: bool = False
    precision: float | None = None
    injection: Injection | None = None
    # The same for everybody: the seed draws the uneven splits, and runs with other splits have
    # measured other traffic.
    seed: int = 0


def build_plan(
    selection: Selection,
    arms: Sequence[Arm],
    *,
    nranks: int,
    local_ranks: int,
    device: Device,
    method: Method | None = None,
    placement: Placement | None = None,
    machine: Machine | None = None,
) -> Plan:
    """The plan for ``nranks`` ranks, ``local_ranks`` of them on the fullest host, with tensors on ``device``.

    What needs more memory than there is, is skipped like all else that cannot be measured.

    Args:
        placement: which rank is on which host; None: host after host, as full as the fullest.
        machine: what each host is; None: this one.

    Raises:
        RequestError: a root outside the world, more cases than anybody measures, nothing left to measure, or
            settings that contradict each other.
    """
    method = method or Method()
    _check_roots(selection, nranks)
    _check_extent(selection, nranks)
    _check_injection(method.injection, nranks)
    epochs, iters = _repetitions(method, len(arms))
    machine = machine or Machine.here(device, local_ranks)
    room = _Room(
        machine.rotation_bytes(device, local_ranks),
        machine.most_bytes(device, local_ranks),
        machine.shortage(device, local_ranks),
        tuple(find_backend(arm.backend) for arm in arms),
    )
    place = placement or Placement.in_blocks(nranks, local_ranks)
    cuts = [_Placed(cut, cut.groups(place)) for cut in selection.topologies]
    cases = tuple(_cases(selection, cuts, nranks, device, method.seed, room))
    used = {entry.case.topology for entry in cases if entry.status == "planned"}
    plan = Plan(
        cases=cases,
        arms=tuple(arms),
        base_arm=method.base_arm or arms[0].id,
        nranks=nranks,
        iters=iters,
        warmup_iters=method.warmup_iters,
        check=method.check,
        epochs=epochs,
        epoch_kind=method.epoch_kind,
        statistic=method.statistic or DEFAULT_STATISTIC["device" if device == "cuda" else "total"],
        margin_ratio=method.margin_ratio,
        margin_us=method.margin_us,
        time_budget_s=_time_budget_s(method),
        timeout_s=method.timeout_s,
        share_gpu=method.share_gpu,
        seed=method.seed,
        rotation_bytes=room.rotation_bytes,
        precision=method.precision,
        adapts=method.precision is not None and method.iters is None,
        injection=method.injection,
        groups={
            **{each.cut.name: each.groups for each in cuts if each.cut != WORLD and each.cut.name in used},
            **(tiers(place) if any(arm.is_hierarchical for arm in arms) else {}),
        },
        meshes={each.cut.name: each.cut.mesh for each in cuts if each.cut.mesh and each.cut.name in used},
    )
    _refuse_empty(plan, room)
    return plan


def _check_roots(selection: Selection, nranks: int) -> None:
    for root in selection.roots or ():
        if root >= nranks:
            least = "0" if nranks == 1 else f"0 to {nranks - 1}"
            raise RequestError(f"-r/--root {root} is not in a world of {nranks} ranks: take {least}")


def _check_extent(selection: Selection, nranks: int) -> None:
    """Refuse a product of choices that is too large, before it is made."""
    found = 0
    for op in selection.ops:
        entry = COLLECTIVES[op]
        forms = len(selection.topologies) * len(selection.modes) * len(selection.async_op)
        if entry.has_data:
            forms *= len(selection.sizes) * len(selection.dtypes) * len(selection.in_place or (False,))
        if entry.reduces:
            forms *= len(selection.redops)
        if entry.rooted:
            forms *= nranks if selection.roots is None else len(selection.roots)
        found += forms
    if found > _MOST_CASES:
        raise RequestError(
            f"{found:,} cases are asked for, more than {_MOST_CASES:,}: take fewer --ops, --sizes, --dtypes "
            "or -r/--root"
        )


def _check_injection(injection: Injection | None, nranks: int) -> None:
    for rank in (injection.ranks if injection is not None else None) or ():
        if rank >= nranks:
            raise RequestError(f"--inject on rank {rank}: there are {nranks} ranks")


def _repetitions(method: Method, narms: int) -> tuple[int, int]:
    """Epochs and iterations, defaults filled in."""
    several = narms > 1 or method.precision is not None
    iters = method.iters or (_SEVERAL_ITERS if several else _ITERS)
    if method.precision is not None:
        return _precise_epochs(method), iters
    if method.epochs is None:
        return min(8 if several else 3, iters), iters
    if method.iters is None:
        return method.epochs, max(iters, method.epochs)
    if iters < method.epochs:
        raise RequestError(
            f"-n/--iters {iters} is fewer than --epochs {method.epochs}: each epoch needs one, raise -n"
        )
    return method.epochs, iters


def _precise_epochs(method: Method) -> int:
    """The most epochs of a case that is measured until it is precise."""
    if method.epochs is not None and method.epochs < FIRST_LOOK:
        raise RequestError(
            f"--epochs {method.epochs} with --precision: the first look is after {FIRST_LOOK} epochs, "
            "take as many or leave --epochs away"
        )
    return method.epochs or _MOST_EPOCHS


def _time_budget_s(method: Method) -> float | None:
    """A precision that cannot be reached must end somewhere."""
    if method.time_budget_s is None and method.precision is not None:
        return _PRECISE_BUDGET_S
    return method.time_budget_s


def _refuse_empty(plan: Plan, room: _Room) -> None:
    if plan.planned:
        return
    reasons = Counter(entry.reason for entry in plan.cases).most_common()
    shown = "; ".join(f"{reason} ({count})" for reason, count in reasons[:_REASONS_SHOWN])
    more = f"; and {len(reasons) - _REASONS_SHOWN} more reasons" if len(reasons) > _REASONS_SHOWN else ""
    mend = "; lower -e/--max-bytes" if any(entry.reason == room.shortage for entry in plan.cases) else ""
    raise RequestError(f"nothing to measure, every case asked for is skipped: {shown}{more}{mend}")


@dataclass(frozen=True, slots=True)
class _Room:
    """Memory on a rank's device.

    Attributes:
        rotation_bytes: what the slots of a case should exceed together.
        most_bytes: of all of a case; None where unknown.
        shortage: why a case that needs more is skipped.
        backends: that run in it, with copies of their own.
    """

    rotation_bytes: int
    most_bytes: int | None
    shortage: str
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A topology on the ranks there are: its groups, or why it has none."""

    cut: Cut
    found: Groups | str

    @property
    def groups(self) -> Groups:
        return () if isinstance(self.found, str) else self.found

    @property
    def size(self) -> int:
        """Ranks in each group; 1 where there are none."""
        return len(self.groups[0]) if self.groups else 1

    @property
    def refusal(self) -> str | None:
        return self.found if isinstance(self.found, str) else None


@dataclass(frozen=True, slots=True)
class _Sized:
    """One size asked for, trimmed to whole elements per rank; ``reason`` where it holds none."""

    nbytes: int
    count: int
    layout: Layout | None
    reason: str | None


def _cases(
    selection: Selection, cuts: Sequence[_Placed], nranks: int, device: Device, seed: int, room: _Room
) -> Iterator[PlannedCase]:
    trimmed = cache(_trimmed)  # the same sizes come back for every operator, mode and form
    uncut = {each.cut.name: each.refusal for each in cuts}
    for op in selection.ops:
        entry = COLLECTIVES[op]
        for form in _forms(entry, selection, cuts, nranks):
            refusal = uncut[form.topology] or _refusal(entry, form, device)
            itemsize = DTYPES[form.dtype].itemsize
            for size in trimmed(entry, itemsize, selection.sizes, form.nranks, seed):
                case = replace(form, nbytes=size.nbytes, count=size.count)
                reason = refusal or size.reason
                if reason is not None or size.layout is None:
                    yield PlannedCase(case, "skipped", reason, 0)
                    continue
                slot = memory.layout_slot_bytes(size.layout, itemsize, form.in_place)
                needed = slot * memory.slot_count(slot, room.rotation_bytes) + memory.PATTERN_BYTES
                needed += memory.copied_bytes(op, size.layout, itemsize, room.backends)
                if room.most_bytes is not None and needed > room.most_bytes:
                    yield PlannedCase(case, "skipped", room.shortage, needed)
                else:
                    yield PlannedCase(case, "planned", None, needed)


def _forms(entry: Collective, selection: Selection, cuts: Sequence[_Placed], nranks: int) -> Iterator[Case]:
    """An operation's cases without their sizes; one value where a choice makes no difference to it."""
    dtypes = selection.dtypes if entry.has_data else (NO_DATA_DTYPE,)
    redops: Sequence[str | None] = selection.redops if entry.reduces else (None,)
    roots: Sequence[int | None] = (None,)
    if entry.rooted:
        roots = range(nranks) if selection.roots is None else selection.roots
    in_place = selection.in_place
    if in_place is None or not entry.has_data:
        in_place = entry.in_place_forms[:1]
    choices = product(dtypes, redops, roots, cuts, selection.modes, selection.async_op, in_place)
    for dtype, redop, root, placed, mode, async_op, alias in choices:
        yield Case(
            op=entry.name,
            dtype=dtype,
            redop=redop,
            root=root,
            nbytes=0,
            count=0,
            topology=placed.cut.name,
            mode=mode,
            async_op=async_op,
            in_place=alias,
            nranks=placed.size,
        )


def _refusal(entry: Collective, form: Case, device: Device) -> str | None:
    """Why this form cannot be measured at any size; None where it can."""
    if form.root is not None and form.root >= form.nranks:
        # One reason for all roots: it is told once, and rows name theirs.
        return f"{form.topology} has groups of {form.nranks} ranks, and none has the root's number"
    if form.nranks < entry.least_ranks:
        return f"{entry.name} needs at least {entry.least_ranks} ranks"
    if device not in MODES[form.mode].devices:
        return f"{form.mode} needs CUDA"
    if form.in_place not in entry.in_place_forms:
        return f"the torch API has {entry.name} {'out of place' if form.in_place else 'in place'} only"
    if form.async_op and not entry.asynchronous:
        return f"{entry.name} has no async form"
    return REDOPS[form.redop].refusal(DTYPES[form.dtype]) if form.redop is not None else None


def _trimmed(
    entry: Collective, itemsize: int, sizes: tuple[int, ...], nranks: int, seed: int
) -> tuple[_Sized, ...]:
    """The sizes in whole elements per rank; sizes that trim to the same bytes are one.

    A size that holds no element keeps the bytes asked for, so that its row can say so.
    """
    found: dict[int, _Sized] = {}
    for asked in sizes if entry.has_data else (0,):
        layout = entry.sizes(asked // itemsize, nranks, seed)
        if isinstance(layout, str):
            found[asked] = _Sized(asked, 0, None, layout)
        else:
            nbytes = layout.nelements * itemsize
            found[nbytes] = _Sized(nbytes, layout.count, layout, None)
    return tuple(found.values())
