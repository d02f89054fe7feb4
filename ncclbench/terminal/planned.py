"""What ``ncclbench plan`` shows: a line per case, what is skipped, and in words what the run can find."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.compare.forecast import Forecast
from ncclbench.plan.model import Plan
from ncclbench.stats.intervals import FEWEST_EPOCHS
from ncclbench.tables.topologies import WORLD
from ncclbench.terminal.columns import aligned, headed
from ncclbench.terminal.show import unmeasured_lines
from ncclbench.units import count_text, format_bytes, format_memory, format_seconds

Row = Mapping[str, Any]

_HEADS = ("case", "time", "memory", "epochs", "finds", "margin")
# The last of them say nothing where nothing is compared.
_OF_COMPARISONS = 2


def plan_lines(plan: Plan, told: Forecast) -> list[str]:
    """The table: size and what a case costs and finds; then what will not be measured and why."""
    rows = [row for row in told.rows if row["status"] == "planned"]
    columns = len(_HEADS) if told.family else len(_HEADS) - _OF_COMPARISONS
    cells = [_HEADS[:columns], *([_name(row), *_cells(row)][:columns] for row in rows)]
    lines = [_heading(plan, len(rows)), "# time: of all arms together; memory: per rank"]
    if told.family:
        family = count_text(told.family, "comparison")
        lines.append(f"# finds: the smallest difference found with 90 % power, judged among {family}")
    lines += headed(aligned(cells))
    settled: dict[tuple[str, str | None], tuple[str, str]] = {
        (entry.case.key, None): ("skipped", entry.reason or "")
        for entry in plan.cases
        if entry.status == "skipped"
    }
    return [*lines, *unmeasured_lines(plan, settled), "#"]


def _heading(plan: Plan, ncases: int) -> str:
    arms = ", ".join(arm.id for arm in plan.arms)
    if plan.precision is not None:
        how = f"until {_percent(plan.precision)} precise"
    else:
        how = f"{count_text(plan.iters, 'iteration')} in {count_text(plan.epochs, 'epoch')}"
    return f"# {_ranks(plan)}; {arms}; {count_text(ncases, 'case')}, {how}"


def conclusion(plan: Plan, told: Forecast, calibration: Mapping[str, Any] | None) -> str:
    """The last line: how much, how long, and whether the margin can be resolved, or what would do it."""
    ncases = len(plan.planned)
    cases = count_text(ncases, "case")
    memory = f"{format_memory(plan.bytes_per_rank)} per rank"
    return f"{cases}, {_duration(told)}, {memory}; {_finding(plan, told, calibration)}"


def _duration(told: Forecast) -> str:
    if told.seconds is None:
        return "time unknown"
    return f"{'at most' if told.at_most else 'about'} {format_seconds(told.seconds)}"


def _finding(plan: Plan, told: Forecast, calibration: Mapping[str, Any] | None) -> str:
    if not told.family:
        return f"one arm, so nothing is compared{_uncalibrated(plan, told, calibration)}"
    judged = [row for row in told.rows if row["resolves"] is not None]
    if len(plan.teams) > 1:
        return (
            f"arms in {len(plan.teams)} sets of processes, in turns: what difference that finds no "
            f"calibration tells{_uncalibrated(plan, told, calibration)}"
        )
    if not judged:
        few = "" if plan.epochs >= FEWEST_EPOCHS else f" (a verdict needs {FEWEST_EPOCHS} epochs at least)"
        return f"what difference it finds is unknown{_uncalibrated(plan, told, calibration)}{few}"
    rest = _uncalibrated(plan, told, calibration)
    blind = [row for row in judged if not row["resolves"]]
    if not blind:
        return f"a difference as large as the margin is found in all {len(judged)} calibrated cases{rest}"
    return (
        f"the margin cannot be resolved in {len(blind)} of {len(judged)} cases with {_limit(plan, blind)}: "
        f"{_remedy(plan, blind)}{rest}"
    )


def _uncalibrated(plan: Plan, told: Forecast, calibration: Mapping[str, Any] | None) -> str:
    """What to do about cases that nothing is known of; empty where there are none."""
    unknown = [row for row in told.rows if row["status"] == "planned" and row["calibrated_nbytes"] is None]
    if not unknown:
        return ""
    backend = next(arm.backend for arm in plan.arms if arm.id == plan.base_arm)
    mend = f"run ncclbench calibrate with the same --ops on {_ranks(plan)} of {backend}"
    if calibration is None:
        return f"; no calibration is kept here: {mend}"
    return f"; {len(unknown)} of {len(plan.planned)} cases are not calibrated: {mend}"


def _ranks(plan: Plan) -> str:
    return count_text(plan.nranks, "rank")


def _limit(plan: Plan, blind: Sequence[Row]) -> str:
    """What these cases have too little of."""
    if plan.precision is not None:
        return f"--precision {100 * plan.precision:g}%"
    if plan.time_budget_s is not None and any(row["epochs"] < plan.epochs for row in blind):
        return f"--time-budget {plan.time_budget_s:g}s"
    return count_text(plan.epochs, "epoch")


def _remedy(plan: Plan, blind: Sequence[Row]) -> str:
    """What would resolve it, or that nothing does."""
    needs = [row["epochs_needed"] for row in blind]
    if None in needs:
        return "no number of epochs would; take a larger --margin or a quieter machine"
    epochs = max(needs)
    costs = [row["epoch_s"] and row["epochs_needed"] * (row["epoch_s"] + row["overhead_s"]) for row in blind]
    takes = "" if None in costs else f" (up to {format_seconds(max(costs))} a case)"
    if plan.precision is not None:
        return f"that takes {epochs} epochs{takes}: lower --precision, or take a larger --margin"
    # -n counts the iterations of all epochs together.
    words = f"--epochs {epochs} -n {epochs * plan.iters_in_epoch(0)}"
    if plan.time_budget_s is not None and None not in costs:
        words += f" --time-budget {math.ceil(max(costs))}s"
    return f"{words} would{takes}, or a larger --margin"


def _name(row: Row) -> str:
    parts = [row["op"], row["dtype"], row["redop"] or "", format_bytes(row["nbytes"]), row["mode"]]
    parts += [] if row["topology"] == WORLD.name else [row["topology"]]
    parts += [] if row["root"] is None else [f"root {row['root']}"]
    parts += ["async"] if row["async"] else []
    return " ".join(part for part in parts if part)


def _cells(row: Row) -> list[str]:
    at_most = "<" if row["seconds_from"] == "budget" else ""
    return [
        "?" if row["seconds"] is None else f"{at_most}{format_seconds(row['seconds'])}",
        format_memory(row["bytes_per_rank"]),
        "?" if row["epochs"] is None else str(row["epochs"]),
        "-" if row["resolves"] is None else "none" if row["smallest"] is None else _percent(row["smallest"]),
        "-" if row["margin"] is None else _percent(row["margin"]),
    ]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %" if fraction < 10 else "over 1000 %"
