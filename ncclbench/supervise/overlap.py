"""What the workers of an overlap run are asked to do, and how what they find becomes lines of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.errors import RequestError
from ncclbench.plan.model import Case, Plan
from ncclbench.store.overlaps import PARTS, OverlapResult, OverlapSkip, OverlapTimes, TimesUs
from ncclbench.units import format_bytes

# The stages in the order in which progress counts them, with the words for where a rank is.
STAGES = {
    "probing": "trying what the backend takes",
    "opening": "opening the process groups",
    "measuring": "the measurement of overlap",
}

# Nanoseconds are what a clock tells.
_DECIMALS = 3

Orders = Generator[dict[str, Any], Any, None]
Keep = Callable[[Sequence[OverlapResult]], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured.

    Attributes:
        plan: cases, arms, epochs and repetitions (its iterations).
        computes: names in kernels.KINDS.
        free_sms: how many multiprocessors the kernel leaves free, on a GPU.
        modes: "eager", "graph".
        ratio: how long the compute should take, times the communication alone.
    """

    plan: Plan
    computes: tuple[str, ...]
    free_sms: tuple[int, ...]
    modes: tuple[str, ...]
    ratio: float


@dataclass(slots=True)
class _Combination:
    """A case of the plan on an arm, with what is computed beside it; its kernel's length once calibrated."""

    case: Case
    arm: int
    compute: str
    free_sms: int | None
    mode: str
    length: int | None = None


def orders(wanted: Wanted, keep: Keep, tell: Callable[[str], None]) -> Orders:
    """Probe every arm, then epoch by epoch all cases.

    Raises:
        RequestError: there is nothing to compute with here, or nothing is left to measure.
    """
    plan = wanted.plan
    found = []
    for arm in range(len(plan.arms)):
        found.append((yield {"stage": "probing", "arm": arm}))
    if found[0]["kernels"] is not None:
        raise RequestError(f"there is nothing to compute with: {found[0]['kernels']}")
    multiprocessors = found[0]["multiprocessors"]
    left: list[_Combination] = []
    reasons: list[str] = []
    for combination in _combinations(wanted, multiprocessors is not None):
        refused = found[combination.arm]["refused"].get(combination.case.key)
        reason = refused or _why_not(combination, plan, multiprocessors)
        if reason is None:
            left.append(combination)
        else:
            reasons.append(reason)
            keep([_skip(combination, plan, "skipped", reason)])
    if not left:
        raise RequestError(f"nothing to measure, every case asked for is skipped: {reasons[0]}")
    for epoch in range(plan.epochs):
        yield {"stage": "opening", "epoch": epoch}
        for combination in list(left):
            beside = f"{combination.case.op} {format_bytes(combination.case.nbytes)} beside"
            tell(f"epoch {epoch + 1} of {plan.epochs}: {beside} {combination.compute}")
            if not (yield from _measure(combination, wanted, epoch, keep)):
                left.remove(combination)


def _measure(
    combination: _Combination, wanted: Wanted, epoch: int, keep: Keep
) -> Generator[dict[str, Any], Any, bool]:
    """One case in one epoch; False where it cannot be measured."""
    plan = wanted.plan
    found = yield {
        "stage": "measuring",
        "epoch": epoch,
        "case": plan.planned.index(combination.case),
        "arm": combination.arm,
        "compute": combination.compute,
        "free_sms": combination.free_sms,
        "mode": combination.mode,
        "length": combination.length,
        "ratio": wanted.ratio,
        "repetitions": plan.iters_in_epoch(epoch),
    }
    if found["reason"] is not None:
        keep([_skip(combination, plan, "failed", found["reason"])])
        return False
    combination.length = found["length"]
    keep([_times(combination, plan, epoch, found)])
    return True


def _combinations(wanted: Wanted, on_gpu: bool) -> Iterator[_Combination]:
    """Neighbours differ in what is compared: arms, then what is computed."""
    # Without a GPU nothing can be left free.
    free_sms = wanted.free_sms if on_gpu else (None,)
    for case in (entry.case for entry in wanted.plan.cases):
        for mode in wanted.modes:
            for free in free_sms:
                for compute in wanted.computes:
                    for arm in range(len(wanted.plan.arms)):
                        yield _Combination(case, arm, compute, free, mode)


def _why_not(combination: _Combination, plan: Plan, multiprocessors: int | None) -> str | None:
    entry = next(entry for entry in plan.cases if entry.case == combination.case)
    if entry.reason is not None:
        return entry.reason
    if multiprocessors is None:
        return "graph needs CUDA" if combination.mode == "graph" else None
    if combination.free_sms is not None and combination.free_sms >= multiprocessors:
        return f"the GPU has {multiprocessors} multiprocessors: leave fewer free"
    return None


def _named(combination: _Combination, plan: Plan) -> dict[str, Any]:
    case = combination.case
    return {
        "op": case.op,
        "dtype": case.dtype,
        "redop": case.redop,
        "nbytes": case.nbytes,
        "arm": plan.arms[combination.arm].id,
        "compute": combination.compute,
        "free_sms": combination.free_sms,
        "mode": combination.mode,
    }


def _skip(combination: _Combination, plan: Plan, status: Any, reason: str) -> OverlapSkip:
    return OverlapSkip(**_named(combination, plan), status=status, reason=reason[:1000])


def _times(combination: _Combination, plan: Plan, epoch: int, found: dict[str, Any]) -> OverlapTimes:
    """The line of what rank 0 gathered, shape (nranks, len(PARTS) + 4, repetitions)."""
    array: NDArray[np.float64] = found["found"]
    *parts, comm_done, compute_done, wrong, compute_wrong = array.transpose(1, 0, 2)
    return OverlapTimes(
        **_named(combination, plan),
        implementation=found["implementation"],
        length=found["length"],
        epoch=epoch,
        order=found["order"],
        times_us={part: _listed(times) or [] for part, times in zip(PARTS, parts, strict=True)},
        comm_done_us=_listed(comm_done),
        compute_done_us=_listed(compute_done),
        wrong=int(wrong[:, 0].sum()),
        compute_wrong=int(compute_wrong[:, 0].sum()),
    )


def _listed(times: NDArray[np.float64]) -> TimesUs | None:
    """None where not all of them were seen."""
    if not all(map(math.isfinite, times.flat)):
        return None
    rounded: TimesUs = np.maximum(np.round(times, _DECIMALS), 0.0).tolist()
    return rounded
