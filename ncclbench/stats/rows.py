"""The rows of a whole run: one for every case and arm of the plan, measured or not."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncclbench.plan.model import Arm, PlannedCase
from ncclbench.stats.imported import imported_row
from ncclbench.stats.intervals import Margin
from ncclbench.stats.summary import summary_row
from ncclbench.store.folder import replace_file
from ncclbench.store.model import Run, Unit
from ncclbench.tables.statistics import DEFAULT_STATISTIC

# What is no single value, and no cell of a table.
_NESTED = ("groups",)

NOT_MEASURED = "not measured: the run ended before it"


def run_rows(run: Run) -> list[dict[str, Any]]:
    """One row per planned case and arm, in the plan's order; what was not measured says why.

    Of an imported run one row per printed mean, in the order of the files.
    """
    if run.is_imported:
        return [imported_row(printed, run.meta) for printed in run.printed]
    return [_row(run, entry, arm) for entry in run.plan.cases for arm in run.plan.arms]


def run_statistic(run: Run, units: Sequence[Unit]) -> str:
    """Name of what verdicts compare: the plan's choice, or what suits the clock of the samples."""
    clock = units[0].clock if units else "total"
    return run.plan.statistic or DEFAULT_STATISTIC[clock]


def run_margin(run: Run) -> Margin:
    """The run's margin of equivalence."""
    return Margin(run.plan.margin_ratio, run.plan.margin_us)


def outcome(run: Run, entry: PlannedCase, arm: Arm) -> tuple[str, str | None]:
    """Status and reason of a case on an arm, before its data are looked at."""
    if entry.status == "skipped":
        return "skipped", entry.reason
    key = (entry.case.key, arm.id)
    status, reason = run.statuses.get(key, ("ok", None))
    if key in run.units:
        # An arm that is not to be had when a run is resumed does not undo what it measured before.
        return ("failed", reason) if status == "failed" else ("ok", None)
    if status != "ok":
        return status, reason
    described = run.meta.get("arms", {}).get(arm.id, {})
    if described.get("status", "ok") != "ok":
        return described["status"], described.get("reason")
    return "failed", NOT_MEASURED


def why_stopped(run: Run, entry: PlannedCase) -> str | None:
    """Why no epoch was added to a case; None where that was not kept."""
    stop = run.stops.get(entry.case.key)
    return None if stop is None else stop.why


def write_summary_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The rows as CSV, one line each, the keys as header.

    Raises:
        MeasurementError: the system refuses the write.
    """
    text = io.StringIO()
    keys = dict.fromkeys(key for row in rows for key in row if key not in _NESTED)
    table = csv.DictWriter(text, list(keys), extrasaction="ignore")
    table.writeheader()
    table.writerows(rows)
    replace_file(path, text.getvalue().encode())


def _row(run: Run, entry: PlannedCase, arm: Arm) -> dict[str, Any]:
    units = run.units.get((entry.case.key, arm.id), [])
    status, reason = outcome(run, entry, arm)
    return summary_row(
        entry.case,
        arm,
        units,
        implementation=run.meta.get("arms", {}).get(arm.id, {}).get("implementation"),
        statistic=run_statistic(run, units),
        status=status,
        reason=reason,
        margin=run_margin(run),
        share_gpu=run.plan.share_gpu,
        stopped=why_stopped(run, entry),
        groups=run.plan.groups.get(entry.case.topology, ()),
    )
