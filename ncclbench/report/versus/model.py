"""What the page of a comparison draws from: its rows in families, its pairs, and how their curves look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ncclbench.report.calibrations import Calibration, usable_calibration
from ncclbench.report.model import Family, Row, Series, families_of, numbered_series
from ncclbench.store.model import Run

if TYPE_CHECKING:
    from ncclbench.compare.launches import Comparison
    from ncclbench.compare.sides import Side


@dataclass(frozen=True, slots=True)
class Gate:
    """What a comparison was held against.

    Attributes:
        passed: whether it may go on.
        message: what was asked and what decided, in one line.
    """

    passed: bool
    message: str


@dataclass(slots=True)
class Versus:
    """A comparison with what its panels need.

    Attributes:
        comparison: of two sides.
        gate: None where nothing was asked.
        families: by their keys, in the rows' order.
        pairs: rows by (base, new) as the rows name them; several where both sides have several arms.
        series: by ("base" or "new", its name).
    """

    comparison: Comparison
    gate: Gate | None
    families: dict[str, Family] = field(init=False)
    pairs: dict[tuple[str, str], list[Row]] = field(init=False)
    series: dict[tuple[str, str], Series] = field(init=False)

    def __post_init__(self) -> None:
        self.families = families_of(self.rows)
        self.pairs = {}
        self.series = {}
        for row in self.rows:
            self.pairs.setdefault((row["base"], row["new"]), []).append(row)
            for side in ("base", "new"):
                if (side, row[side]) not in self.series:
                    self.series[side, row[side]] = numbered_series(len(self.series), row[side])

    @property
    def rows(self) -> list[Row]:
        """The compare rows."""
        return self.comparison.rows

    @property
    def title(self) -> str:
        """What is held against what."""
        return f"{self.comparison.new.label} against {self.comparison.base.label}"

    @property
    def sides(self) -> list[tuple[str, Side]]:
        """Both sides with the word for each."""
        return [("base", self.comparison.base), ("new", self.comparison.new)]

    @property
    def runs(self) -> Iterator[tuple[str, Run]]:
        """Every run with its side's word; one that stands on both sides comes once."""
        seen: set[int] = set()
        for word, side in self.sides:
            for run in side.runs:
                if id(run) not in seen:
                    seen.add(id(run))
                    yield word, run

    @property
    def is_one_job(self) -> bool:
        """Whether both sides are arms of one job, so that the unit is the epoch."""
        return all(row["unit"] == "epochs" for row in self.rows)

    @property
    def calibrations(self) -> Iterator[Calibration]:
        """Of the runs that hold one that can be read."""
        found = (usable_calibration(run.meta) for _, run in self.runs)
        return (calibration for calibration in found if calibration is not None)

    def look(self, row: Row) -> Series:
        """How the new side of a row looks."""
        return self.series["new", row["new"]]


def arm_of(row: dict[str, Any], side: str) -> str:
    """The arm on a side of a row: rows of one run name the arms themselves."""
    return str(row.get(f"{side}_arm") or row[side])
