"""Runs against runs: the launch is the unit, or the node where the sides ran on different hosts.

Epochs of one launch are alike in what the launch drew (buffers, ports, neighbours, clocks), so that however
many there are, they say little of the next launch. Each launch therefore counts once on each case: with the
geometric mean over its epochs of the statistic fixed before it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ncclbench.compare.alike import arm_pairs, pair_cases, side_that_has_it
from ncclbench.compare.imported import compare_printed, has_imported
from ncclbench.compare.judged import judged_rows
from ncclbench.compare.paired import compare_arms
from ncclbench.compare.rows import NEVER_MEANT
from ncclbench.compare.sides import Side, has_wrong_data
from ncclbench.compare.throttled import throttled_text
from ncclbench.environment.against import changed, changes_between
from ncclbench.errors import RequestError
from ncclbench.stats.imported import MEANS_ONLY
from ncclbench.stats.intervals import Margin
from ncclbench.stats.rows import outcome, run_margin

# What was asked for and can differ between runs of equal cases, by name in the plan.
_ASKED = ("epochs", "iters", "warmup_iters", "check", "epoch_kind", "precision", "time_budget_s", "seed")


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is said of two sides.

    Attributes:
        base, new: the sides; ``rows`` name them by their labels.
        rows: one per pair of equal cases, as compare's rows; ratios are of times, new over base.
        differences: of environments and of what was asked for, as ``environment.against.changes`` has them.
        unpaired: cases that found no partner: ``case`` (its key, or "all"), ``side`` (where it was to run:
            "base", "new", "both" or "neither") and ``reason``.
        notes: what else a reader must know, a line each.
        wrong: folders of runs whose data check found wrong elements.
    """

    base: Side
    new: Side
    rows: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    unpaired: list[dict[str, Any]]
    notes: list[str]
    wrong: list[str]


def compare_sides(
    base: Side, new: Side, *, statistic: str | None = None, margin: Margin | None = None
) -> Comparison:
    """Every case that both sides have, judged as one family; two arms of one run, epoch by epoch.

    Args:
        statistic: what to compare; None for what the runs fixed before they began.
        margin: of equivalence; None for that of the base's first run.

    Raises:
        RequestError: nothing can be paired; the line says why.
    """
    if has_imported(base, new):
        arms = arm_pairs(base, new)
        margin = margin or run_margin(base.runs[0])
        rows, unpaired = compare_printed(base, new, arms, statistic, margin)
        differences = _differences(base, new)
    elif _is_one_launch(base, new):
        rows, unpaired = _epoch_by_epoch(base, new, statistic, margin)
        differences = []
    else:
        arms = arm_pairs(base, new)
        pairs, unpaired = pair_cases(base, new, arms, statistic)
        rows = judged_rows(pairs, base, new, margin or run_margin(base.runs[0]))
        differences = _differences(base, new)
    if not rows:
        raise RequestError(_why_nothing(base, new, unpaired))
    runs = {id(run): run for run in (*base.runs, *new.runs)}.values()
    wrong = [str(run.folder) for run in runs if has_wrong_data(run)]
    return Comparison(base, new, rows, differences, unpaired, _notes(base, new), wrong)


def _is_one_launch(base: Side, new: Side) -> bool:
    return base.is_one_run and new.is_one_run and base.runs[0] is new.runs[0]


def _epoch_by_epoch(
    base: Side, new: Side, statistic: str | None, margin: Margin | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two arms of one run."""
    run = base.runs[0]
    base_arm, new_arm = (next(arm for arm in run.plan.arms if arm.id == side.arms[0]) for side in (base, new))
    rows = compare_arms(run, base_arm.id, new_arm.id, statistic, margin)
    unpaired = []
    for entry in run.plan.cases:
        outcomes = [(arm.id, *outcome(run, entry, arm)) for arm in (base_arm, new_arm)]
        meant = [status not in NEVER_MEANT for _, status, _ in outcomes]
        never = [f"{arm}: {status}: {reason}" for arm, status, reason in outcomes if status in NEVER_MEANT]
        if never:
            side = side_that_has_it(*meant)
            unpaired.append({"case": entry.case.key, "side": side, "reason": never[0]})
    return rows, unpaired


def _differences(base: Side, new: Side) -> list[dict[str, Any]]:
    """Of the environments, then of what was asked for."""
    sides = [[run.meta.get("environment") or {} for run in side.runs] for side in (base, new)]
    changes = changes_between(*sides)
    if has_imported(base, new):
        # What another tool was asked for has other names, and mostly is not told.
        return changes
    asked = [changed(name, _asked(base, name), _asked(new, name)) for name in _ASKED]
    return changes + [change for change in asked if change is not None]


def _asked(side: Side, name: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in side.runs:
        counts[json.dumps(getattr(run.plan, name))] += run.plan.nranks
    return counts


def _why_nothing(base: Side, new: Side, unpaired: list[dict[str, Any]]) -> str:
    worlds = [sorted({run.plan.nranks for run in side.runs}) for side in (base, new)]
    if not set(worlds[0]) & set(worlds[1]) and not has_imported(base, new):
        ours, theirs = (" and ".join(map(str, each)) for each in worlds)
        return f"nothing can be compared: BASE has {ours} ranks, NEW {theirs}: measure with as many"
    reasons = Counter(entry["reason"] for entry in unpaired)
    if not reasons:
        return "nothing can be compared: the runs hold no cases"
    reason, count = reasons.most_common(1)[0]
    case = next(entry["case"] for entry in unpaired if entry["reason"] == reason)
    of_what = "" if case == "all" else f" ({case})"
    more = f", and {len(unpaired) - count} more" if count < len(unpaired) else ""
    return (
        f"nothing can be compared: {reason}{of_what}{more}: "
        "both sides need cases of the same collective, size, type, mode and ranks"
    )


def _notes(base: Side, new: Side) -> list[str]:
    """What holds for whole runs."""
    notes = []
    for name, side in (("BASE", base), ("NEW", new)):
        for run in side.runs:
            status = run.meta.get("status", "complete")
            if status != "complete":
                notes.append(f"{name}: {run.folder} is not complete ({status})")
            if run.plan.injection is not None:
                notes.append(f"{name}: {run.folder} was slowed on purpose on {run.plan.injection.arm}")
            if (throttled := throttled_text(run, side.arms)) is not None:
                notes.append(f"{name}: {run.folder} was throttled on {throttled}")
            if run.is_imported:
                tools = " and ".join(dict.fromkeys(arm.backend for arm in run.plan.arms))
                notes.append(f"{name}: {run.folder} was measured by {tools}; {MEANS_ONLY}")
    measured = [run for side in (base, new) for run in side.runs if not run.is_imported]
    if measured and all(run.plan.check == 0 for run in measured):
        notes.append("data were checked on neither side (-c 0)")
    margins = {(run.plan.margin_ratio, run.plan.margin_us) for side in (base, new) for run in side.runs}
    if len(margins) > 1:
        notes.append("the runs have different margins: that of BASE's first counts, or --margin")
    return notes
