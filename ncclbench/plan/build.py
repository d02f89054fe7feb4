"""From what was asked to a Plan: every case in reading order, each planned or skipped with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

from ncclbench.errors import RequestError
from ncclbench.plan import memory
from ncclbench.plan.fitting import Placed, Room, refusal_of, trimmed
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
from ncclbench.tables.backends import find_backend
from ncclbench.tables.collectives import COLLECTIVES, Collective
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.settings import tiers
from ncclbench.tables.statistics import DEFAULT_STATISTIC
from ncclbench.tables.topologies import WORLD, Cut, Placement
from ncclbench.units import count_text

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
    selections: Selection | Sequence[Selection],
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
        selections: the cases of each, one after the other; what two of them hold is one case. Cuts of one
            name are one.
        placement: which rank is on which host; None: host after host, as full as the fullest.
        machine: what each host is; None: this one.

    Raises:
        RequestError: a root outside the world, more cases than anybody measures, nothing left to measure, or
            settings that contradict each other.
    """
    method = method or Method()
    chosen = (selections,) if isinstance(selections, Selection) else tuple(selections)
    for selection in chosen:
        _check_roots(selection, nranks)
    _check_extent(chosen, nranks)
    _check_injection(method.injection, nranks)
    epochs, iters = repetitions(method, len(arms))
    machine = machine or Machine.here(device, local_ranks)
    room = Room(
        machine.rotation_bytes(device, local_ranks),
        machine.most_bytes(device, local_ranks),
        machine.shortage(device, local_ranks),
        tuple(find_backend(arm.backend) for arm in arms),
    )
    place = placement or Placement.in_blocks(nranks, local_ranks)
    asked = {cut.name: cut for selection in chosen for cut in selection.topologies}
    cuts = {name: Placed(cut, cut.groups(place)) for name, cut in asked.items()}
    cases = tuple(_cases(chosen, cuts, nranks, device, method.seed, room))
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
            **{name: each.groups for name, each in cuts.items() if each.cut != WORLD and name in used},
            **(tiers(place) if any(arm.is_hierarchical for arm in arms) else {}),
        },
        meshes={name: each.cut.mesh for name, each in cuts.items() if each.cut.mesh and name in used},
    )
    _refuse_empty(plan, room)
    return plan


def _check_roots(selection: Selection, nranks: int) -> None:
    for root in selection.roots or ():
        if root >= nranks:
            least = "0" if nranks == 1 else f"0 to {nranks - 1}"
            raise RequestError(
                f"-r/--root {root} is not in a world of {count_text(nranks, 'rank')}: take {least}"
            )


def _check_extent(selections: Sequence[Selection], nranks: int) -> None:
    """Refuse a product of choices that is too large, before it is made."""
    found = sum(_extent(selection, nranks) for selection in selections)
    if found > _MOST_CASES:
        raise RequestError(
            f"{found:,} cases are asked for, more than {_MOST_CASES:,}: take fewer --ops, --sizes, --dtypes "
            "or -r/--root"
        )


def _extent(selection: Selection, nranks: int) -> int:
    """How many cases there are at most."""
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
    return found


def _check_injection(injection: Injection | None, nranks: int) -> None:
    for rank in (injection.ranks if injection is not None else None) or ():
        if rank >= nranks:
            raise RequestError(f"--inject on rank {rank}: the world has {count_text(nranks, 'rank')}")


def repetitions(method: Method, narms: int) -> tuple[int, int]:
    """Epochs and iterations of a case and arm, defaults filled in.

    Raises:
        RequestError: the two contradict each other, whatever the number of arms.
    """
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


def _refuse_empty(plan: Plan, room: Room) -> None:
    if plan.planned:
        return
    reasons = Counter(entry.reason for entry in plan.cases).most_common()
    shown = "; ".join(f"{reason} ({count})" for reason, count in reasons[:_REASONS_SHOWN])
    more = f"; and {len(reasons) - _REASONS_SHOWN} more reasons" if len(reasons) > _REASONS_SHOWN else ""
    mend = "; lower -e/--max-bytes" if any(entry.reason == room.shortage for entry in plan.cases) else ""
    raise RequestError(f"nothing to measure, every case asked for is skipped: {shown}{more}{mend}")


def _cases(
    selections: Sequence[Selection],
    cuts: Mapping[str, Placed],
    nranks: int,
    device: Device,
    seed: int,
    room: Room,
) -> Iterator[PlannedCase]:
    sizes_of = cache(trimmed)  # the same sizes come back for every operator, mode and form
    known: set[Case] = set()
    for selection, op in ((each, op) for each in selections for op in each.ops):
        entry = COLLECTIVES[op]
        placed = [cuts[cut.name] for cut in selection.topologies]
        for form in _forms(entry, selection, placed, nranks):
            refusal = cuts[form.topology].refusal or refusal_of(entry, form, device)
            itemsize = DTYPES[form.dtype].itemsize
            for size in sizes_of(entry, itemsize, selection.sizes, form.nranks, seed):
                case = replace(form, nbytes=size.nbytes, count=size.count)
                if len(selections) > 1:
                    if case in known:
                        continue
                    known.add(case)
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


def _forms(entry: Collective, selection: Selection, cuts: Sequence[Placed], nranks: int) -> Iterator[Case]:
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
