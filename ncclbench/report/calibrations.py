"""What a calibration (equal arms compared on the same machine) says, to be quoted beside claims."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ncclbench.report.model import Row
from ncclbench.store import calibrations as kept
from ncclbench.units import count_text, format_bytes, format_percent

MISSING = (
    "No calibration of this machine: ncclbench calibrate shows how often equal arms are called different "
    "here, and how small a difference can be found."
)
UNREADABLE = "The calibration in run.json cannot be read: run ncclbench calibrate again."


class Calibration(kept.Calibration, frozen=True):
    """A calibration as a run holds it, with what is said of it."""

    @property
    def date(self) -> str:
        """The day it was made; the text as it stands where it is no time."""
        try:
            return datetime.fromisoformat(self.created).date().isoformat()
        except ValueError:
            return self.created

    @property
    def budget(self) -> str:
        """The time that the smallest differences are for: "20 s"."""
        return f"{self.budget_s:g} s"

    def smallest(self, row: Row) -> float | None:
        """The smallest difference found within the budget on the row's very case; None where not known."""
        for entry in self.resolution:
            case = (entry.op, entry.dtype, entry.nbytes, entry.mode, entry.statistic)
            if case == tuple(row[key] for key in ("op", "dtype", "nbytes", "mode", "statistic")):
                return entry.smallest
        return None

    @property
    def line(self) -> str:
        """One sentence that can stand beside a claim."""
        line = (
            f"A/A on this machine, {self.date}: {self.false_verdicts} of "
            f"{count_text(self.comparisons, 'equal pair')} called different (95 % interval of the rate "
            f"{format_percent(self.rate_low)} to {format_percent(self.rate_high)})"
        )
        known = [(entry.smallest, entry) for entry in self.resolution if entry.smallest is not None]
        if known:
            least, most = (end(known, key=lambda pair: pair[0]) for end in (min, max))
            reach = _reach(*least) + ("" if least == most else f" to {_reach(*most)}")
            line += f"; resolves {reach} in {self.budget} a case"
        return f"{line}."


def _reach(smallest: float, entry: kept.Resolution) -> str:
    return f"{format_percent(smallest)} ({entry.op} {format_bytes(entry.nbytes)} {entry.mode})"


def calibration_of(meta: dict[str, Any]) -> Calibration | None:
    """The calibration in a run's description; None where there is none.

    Raises:
        ValueError: it is no calibration that this version can read.
    """
    document = meta.get("calibration")
    return None if document is None else msgspec.convert(document, Calibration)


def usable_calibration(meta: dict[str, Any]) -> Calibration | None:
    """The same, None also where it cannot be read."""
    try:
        return calibration_of(meta)
    except ValueError:
        return None


def calibration_lines(metas: Iterable[dict[str, Any]]) -> list[str]:
    """What to quote beside claims made from runs with these descriptions, each calibration once."""
    lines: dict[str, None] = {}
    for meta in metas:
        try:
            calibration = calibration_of(meta)
        except ValueError:
            lines[UNREADABLE] = None
        else:
            lines[MISSING if calibration is None else calibration.line] = None
    return list(lines)
