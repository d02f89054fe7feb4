"""How much of communication hides behind compute: from the times of an overlap run to its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.stats.intervals import log_mean, t_half_width
from ncclbench.stats.overlap_place import why_no_figure
from ncclbench.store.model import Run
from ncclbench.store.overlaps import OverlapCase, OverlapSkip, OverlapTimes
from ncclbench.units import count_text

# What rows are about; both are held against communication and compute alone.
ARMS = TOGETHER, SERIAL = "together", "serial"

# Nothing can hide where one comes after the other, and nowhere more than all of the shorter. What is read
# beyond that is what the method gets wrong here: with more than this it tells nothing.
MOST_ERROR = 0.1

Floats = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantity over epochs.

    Attributes:
        value: its mean over the epochs' medians; ``low``, ``high``: 95 % interval of it, None of one epoch.
    """

    value: float
    low: float | None
    high: float | None


def times_us(line: OverlapTimes, part: str) -> Floats:
    """Shape (repetitions,): how long a part took on the slowest rank."""
    return _slowest(line.times_us[part])


def efficiency(line: OverlapTimes, part: str = TOGETHER) -> Floats:
    """Shape (repetitions,): which part of the shorter of the two did not show, repetition by repetition.

    (T_comm + T_comp - T_part) / min(T_comm, T_comp): 1 where the shorter is hidden entirely, 0 where nothing
    is, below 0 where the two are in each other's way; NaN where a clock was too coarse. Source: Intel MPI
    Benchmarks User Guide, "Measuring Communication and Computation Overlap" (IMB-NBC), which clips it to
    [0, 1], and so cannot read 0 on average where nothing hides. Here it is never clipped.
    """
    comm, compute, both = (times_us(line, name) for name in ("comm", "compute", part))
    shorter = np.minimum(comm, compute)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(shorter > 0, (comm + compute - both) / shorter, np.nan))


def slowdown(line: OverlapTimes, of: str) -> Floats | None:
    """Shape (repetitions,): time of "comm" or "compute" while both run, over its time alone.

    None where it was not seen when that was done.
    """
    done = line.comm_done_us if of == "comm" else line.compute_done_us
    if done is None:
        return None
    alone = times_us(line, of)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(alone > 0, _slowest(done) / alone, np.nan))


def mean_over_epochs(medians: Iterable[float]) -> Estimate | None:
    """The mean with its t interval; of values that may be negative. None of no finite value."""
    values = np.array([value for value in medians if np.isfinite(value)])
    if not values.size:
        return None
    mean = float(values.mean())
    if values.size < 2:
        return Estimate(mean, None, None)
    half = t_half_width(values)
    return Estimate(mean, mean - half, mean + half)


def ratio_over_epochs(medians: Iterable[float]) -> Estimate | None:
    """The geometric mean with its t interval on logarithms; None of no positive value."""
    values = [value for value in medians if np.isfinite(value) and value > 0]
    if not values:
        return None
    mean = log_mean(values)
    if mean is None:
        return Estimate(values[0], None, None)
    return Estimate(mean.estimate, *mean.interval())


def overlap_rows(run: Run) -> list[Row]:
    """The rows of an overlap run as ``--json`` has them: two for each case and backend, in their order.

    Times are the medians of the epochs' medians of the slowest rank's. What is wrong has no speed.
    """
    measured: dict[Any, dict[int, OverlapTimes]] = {}
    skipped: dict[Any, OverlapSkip] = {}
    for result in run.results:
        if isinstance(result, OverlapTimes):
            measured.setdefault(result.case, {})[result.epoch] = result
        elif isinstance(result, OverlapSkip):
            skipped[result.case] = result
    no_figure = why_no_figure(run)
    rows: list[Row] = []
    for case, lines in measured.items():
        skip = skipped.get(case)
        failure = skip.reason if skip is not None and skip.status == "failed" else None
        rows += _measured_rows(list(lines.values()), no_figure, failure)
    for case, skip in skipped.items():
        if case not in measured:
            why = {"status": skip.status, "reason": skip.reason}
            rows += [_row(skip, arm, run.plan.nranks) | why for arm in ARMS]
    return rows


def _measured_rows(lines: Sequence[OverlapTimes], no_figure: str | None, failure: str | None) -> list[Row]:
    """Both rows of a case; ``failure``: why a later epoch of it was not measured, None where all were."""
    first = lines[0]
    wrong, compute_wrong = sum(line.wrong for line in lines), max(line.compute_wrong for line in lines)
    status = "wrong" if wrong or compute_wrong else "ok" if failure is None else "failed"
    shared = {
        "implementation": first.implementation,
        "length": first.length,
        "n": sum(line.repetitions for line in lines),
        "epochs": len(lines),
        "comm_us": _median(lines, "comm"),
        "compute_us": _median(lines, "compute"),
        "wrong": wrong,
        "compute_wrong": compute_wrong,
        "status": status,
    }
    found = {arm: mean_over_epochs(np.median(efficiency(line, arm)) for line in lines) for arm in ARMS}
    reason = (
        _wrong_words(wrong, compute_wrong)
        or (None if failure is None else f"in epoch {len(lines) + 1}: {failure}")
        or no_figure
        or _control_words(found[SERIAL])
        or _excess_words(found[TOGETHER])
    )
    rows = []
    for arm, estimate in found.items():
        own = {
            "together_us": _median(lines, arm),
            "exposed_us": _exposed_us(lines, arm),
            **_named("efficiency", None if status == "wrong" else estimate, interval=""),
            "meaningful": reason is None,
            "reason": reason,
        }
        for of in ("comm", "compute") if arm == TOGETHER and status != "wrong" else ():
            own |= _named(f"{of}_slowdown", _slowdown(lines, of))
        rows.append(_row(first, arm, first.nranks) | shared | own)
    return rows


def _row(case: OverlapCase, arm: str, nranks: int) -> Row:
    """A row without its numbers."""
    return {
        "op": case.op,
        "dtype": case.dtype,
        "redop": case.redop,
        "nbytes": case.nbytes,
        "nranks": nranks,
        "arm": arm,
        "backend": case.arm,
        "implementation": None,
        "compute": case.compute,
        "length": None,
        "free_sms": case.free_sms,
        "mode": case.mode,
        "n": 0,
        "epochs": 0,
        **dict.fromkeys(("comm_us", "compute_us", "together_us", "exposed_us")),
        **_named("efficiency", None, interval=""),
        **_named("comm_slowdown", None),
        **_named("compute_slowdown", None),
        "wrong": None,
        "compute_wrong": None,
        "meaningful": False,
        "status": "skipped",
        "reason": None,
    }


def _named(name: str, estimate: Estimate | None, interval: str | None = None) -> Row:
    """An estimate as keys of a row; ``interval``: what its ends begin with."""
    prefix = f"{name}_" if interval is None else interval
    value, low, high = (None,) * 3 if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {name: value, f"{prefix}ci_low": low, f"{prefix}ci_high": high}


def _median(lines: Sequence[OverlapTimes], part: str) -> float:
    return float(np.median([np.median(times_us(line, part)) for line in lines]))


def _exposed_us(lines: Sequence[OverlapTimes], part: str) -> float:
    """What shows of the communication: how much longer it takes than the compute alone."""
    shown = [np.median(times_us(line, part) - times_us(line, "compute")) for line in lines]
    return float(np.median(shown))


def _slowdown(lines: Sequence[OverlapTimes], of: str) -> Estimate | None:
    found = [slowdown(line, of) for line in lines]
    return ratio_over_epochs(float(np.median(each)) for each in found if each is not None)


def _slowest(times: Sequence[Sequence[float]]) -> Floats:
    slowest: Floats = np.array(times, dtype=np.float64).max(axis=0)
    return slowest


def _wrong_words(wrong: int, compute_wrong: int) -> str | None:
    said = [f"{wrong:,} elements of the collective's results are wrong"] if wrong else []
    if compute_wrong:
        said.append(f"the kernel computed wrong results on {count_text(compute_wrong, 'rank')}")
    return " and ".join(said) or None


def _control_words(control: Estimate | None) -> str | None:
    if control is None:
        return "its times are below what the clock can tell"
    if abs(control.value) > MOST_ERROR:
        read = f"the serial control reads {control.value:.2f} where nothing can hide"
        return f"{read}: its times are too short or too noisy here"
    return None


def _excess_words(together: Estimate | None) -> str | None:
    """Both at once cannot be over sooner than the longer of the two alone."""
    if together is not None and together.value > 1 + MOST_ERROR:
        read = f"it reads {together.value:.2f} where no more than 1 can hide"
        return f"{read}: the longer of the two took less beside the other than alone, by noise"
    return None
