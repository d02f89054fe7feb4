"""The alpha-beta fits of a run, or of several launches of one thing: one for each curve over sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclbench.plan.model import Case
from ncclbench.stats.alphabeta import FIGURES, Fit, fit_curve
from ncclbench.stats.imported import imported_row
from ncclbench.stats.rows import outcome
from ncclbench.store.model import Run, Unit
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.statistics import STATISTICS

# What is alike along a curve.
KEYS = ("op", "dtype", "redop", "root", "topology", "mode", "async", "in_place", "nranks", "arm")

# What alpha is by the mode. Operations that follow each other without a wait overlap: that is no latency.
_ALPHA_IS = {
    "isolated": "latency",
    "graph": "latency",
    "back-to-back": "time per operation, back to back",
}

# The name of what curves of printed means are of.
MEAN = "mean"

Key = tuple[Any, ...]
# Times in microseconds by epoch, or by whatever else was repeated, by size in bytes.
Times = dict[int, dict[int, float]]
Curves = dict[Key, Times]


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The fit of one curve.

    Attributes:
        keys: ``KEYS`` with their values.
        statistic: of the samples in an epoch, whose times were fitted.
        unit: what intervals are over: "epochs", "launches" or "nodes".
        factor: bus bandwidth over algorithm bandwidth; None where the operation is not known.
        fit: what it shows.
    """

    keys: Mapping[str, Any]
    statistic: str
    unit: str
    factor: float | None
    fit: Fit

    @property
    def alpha_is(self) -> str:
        """What the figure called ``latency_us`` is in words: only of operations that wait a latency."""
        return _ALPHA_IS.get(self.keys["mode"], "time per operation")

    def to_json(self) -> dict[str, Any]:
        """Plain data. Each figure has ``_low`` and ``_high`` (of 95 %) and ``_reason`` beside it."""
        row = {**self.keys, "statistic": self.statistic, "unit": self.unit, "units": self.fit.units}
        row |= {"sizes": self.fit.sizes, "misfit": self.fit.misfit, "reason": self.fit.why}
        row["latency_is"] = self.alpha_is
        for name in FIGURES:
            estimate = self.fit.figures[name]
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            row[f"{name}_reason"] = estimate.why
        bandwidth = self.fit.figures["bandwidth_GBs"]
        factor = self.factor or None  # the bus bandwidth of one rank is 0 by definition, and says nothing
        for end, value in (("", bandwidth.value), ("_low", bandwidth.low), ("_high", bandwidth.high)):
            row[f"busbw_GBs{end}"] = None if value is None or factor is None else value * factor
        row["segments"] = [
            {
                "first_bytes": int(segment.first_bytes),
                "last_bytes": int(segment.last_bytes),
                "alpha_us": segment.alpha_us,
                "beta_GBs": 1e-3 / segment.us_per_byte,
            }
            for segment in self.fit.segments
        ]
        return row


def run_fits(run: Run, statistic: str = "median") -> list[CurveFit]:
    """The fits of all curves of a run, over its epochs, in the order of its cases.

    Args:
        statistic: of the samples in each epoch; of an imported run only the mean is known.
    """
    name = MEAN if run.is_imported else statistic
    return [curve_fit(key, times, name, "epochs") for key, times in run_curves(run, name).items()]


def launches_fits(launches: Sequence[Iterable[Run]], statistic: str, unit: str) -> list[CurveFit]:
    """The fits of curves that several launches have, over launches; epochs within one count together.

    Args:
        launches: each with its runs: one, or of nodes all launches on a node.
        unit: what each of them is: "launches" or "nodes".
    """
    curves: Curves = {}
    for index, runs in enumerate(launches):
        gathered: dict[Key, dict[int, list[float]]] = {}
        for run in runs:
            for key, times in run_curves(run, statistic).items():
                for nbytes, epochs in times.items():
                    gathered.setdefault(key, {}).setdefault(nbytes, []).append(_mean(epochs.values()))
        for key, sizes in gathered.items():
            for nbytes, means in sizes.items():
                curves.setdefault(key, {}).setdefault(nbytes, {})[index] = _mean(means)
    return [curve_fit(key, times, statistic, unit) for key, times in curves.items()]


def curve_fit(key: Key, times: Times, statistic: str, unit: str) -> CurveFit:
    """The fit of a curve, of what was measured at all of its sizes."""
    keys = dict(zip(KEYS, key, strict=True))
    sizes = sorted(times)
    whole = sorted(set.intersection(*(set(times[nbytes]) for nbytes in sizes)))
    if whole:
        table = [[times[nbytes][index] for nbytes in sizes] for index in whole]
    else:
        table = [[_mean(times[nbytes].values()) for nbytes in sizes]]
    entry = COLLECTIVES.get(keys["op"])
    factor = None if entry is None or keys["nranks"] is None else entry.busbw_factor(keys["nranks"])
    return CurveFit(keys, statistic, unit, factor, fit_curve(sizes, table))


def run_curves(run: Run, statistic: str) -> Curves:
    """The curves of a run with good data, by the values of ``KEYS``.

    Args:
        statistic: a name in STATISTICS, or ``MEAN`` over iterations and ranks, which is what printed times
            are of.
    """
    if run.is_imported:
        return _printed_curves(run)
    of_unit = _reader(statistic)
    curves: Curves = {}
    for entry in run.plan.cases:
        if entry.case.nbytes == 0:
            continue
        for arm in run.plan.arms:
            units = run.units.get((entry.case.key, arm.id), [])
            is_good = units and outcome(run, entry, arm)[0] == "ok"
            if is_good and not any(sum(unit.wrong or ()) for unit in units):
                times = curves.setdefault(_key(entry.case, arm.id), {})
                times[entry.case.nbytes] = {unit.epoch: of_unit(unit) for unit in units}
    return curves


def _printed_curves(run: Run) -> Curves:
    """Of printed means; cycles of one output are of one launch and count together."""
    found: dict[Key, dict[int, list[float]]] = {}
    for printed in run.printed:
        row = imported_row(printed, run.meta)
        if row["status"] == "ok" and row["nbytes"] > 0 and row["median_us"] is not None:
            key = tuple(row[name] for name in KEYS)
            found.setdefault(key, {}).setdefault(row["nbytes"], []).append(row["median_us"])
    return {
        key: {nbytes: {0: _mean(times)} for nbytes, times in sizes.items()} for key, sizes in found.items()
    }


def _key(case: Case, arm: str) -> Key:
    row = {**case.to_json(), "arm": arm}
    return tuple(row[name] for name in KEYS)


def _reader(statistic: str) -> Callable[[Unit], float]:
    """An epoch's time of one operation in microseconds."""
    if statistic == MEAN:
        return lambda unit: float(unit.rank_time_us.mean())
    quantile = STATISTICS[statistic].quantile
    return lambda unit: float(np.quantile(unit.time_us, quantile))


def _mean(times: Iterable[float]) -> float:
    """The geometric mean; 0 where a time is."""
    array = np.array(list(times))
    return float(np.exp(np.log(array).mean())) if bool((array > 0).all()) else 0.0
