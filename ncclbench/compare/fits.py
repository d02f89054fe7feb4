"""Where size begins to count on each side of a comparison: the alpha-beta fits of both, curve by curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncclbench.compare.between import hosts_of
from ncclbench.compare.launches import Comparison
from ncclbench.compare.sides import Side
from ncclbench.stats.fits import KEYS, CurveFit, Key, curve_fit, launches_fits, run_curves
from ncclbench.store.model import Run


@dataclass(frozen=True, slots=True)
class FitPair:
    """One curve on both sides.

    Attributes:
        row: the compare row of its largest size; its axes and names are those of the curve.
        base, new: the fits; None where a side has no curve there.
    """

    row: dict[str, Any]
    base: CurveFit | None
    new: CurveFit | None

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data, one entry a side: ``side``, ``name`` (as ``rows`` have it) and the fit."""
        return [
            {"side": side, "name": self.row[side], **fit.to_json()}
            for side, fit in (("base", self.base), ("new", self.new))
            if fit is not None
        ]


def fit_pairs(comparison: Comparison) -> list[FitPair]:
    """Every curve that has compared rows, in the order of these, fitted on both sides.

    Fitted are all sizes that a side has, with the statistic that is compared. Intervals are over what the
    comparison counts: epochs of one launch, several launches, or nodes.
    """
    largest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in comparison.rows:
        curve = (*(row[key] for key in KEYS if key != "arm"), row["base"], row["new"])
        if row["nbytes"] > 0 and row["nbytes"] > largest.get(curve, {"nbytes": 0})["nbytes"]:
            largest[curve] = row
    sides = {side: _Fits(getattr(comparison, side)) for side in ("base", "new")}
    return [
        FitPair(row, sides["base"].of(row, "base"), sides["new"].of(row, "new")) for row in largest.values()
    ]


class _Fits:
    """The fits of a side, each made when it is asked for."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._fits: dict[tuple[str, str], dict[Key, CurveFit]] = {}

    def of(self, row: dict[str, Any], word: str) -> CurveFit | None:
        """The fit under a row; ``word``: which side of the row this is."""
        arm = row.get(f"{word}_arm") or row[word]
        key = tuple(arm if name == "arm" else row[name] for name in KEYS)
        unit, statistic = row["unit"], row["statistic"]
        if (unit, statistic) not in self._fits:
            found = self._fitted(unit, statistic)
            self._fits[unit, statistic] = {tuple(fit.keys.values()): fit for fit in found}
        return self._fits[unit, statistic].get(key)

    def _fitted(self, unit: str, statistic: str) -> list[CurveFit]:
        runs = self._side.runs
        if len(runs) == 1:
            curves = run_curves(runs[0], statistic)
            return [curve_fit(key, times, statistic, "epochs") for key, times in curves.items()]
        if unit != "nodes":
            return launches_fits([[run] for run in runs], statistic, "launches")
        nodes: dict[frozenset[str], list[Run]] = {}
        for run in runs:
            nodes.setdefault(hosts_of(run), []).append(run)
        return launches_fits(list(nodes.values()), statistic, "nodes")
