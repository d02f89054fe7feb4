"""What is said of a run that measured until it was precise enough: which cases were, how wide the rest is."""

from __future__ import annotations

from ncclbench.store.model import Run
from ncclbench.units import count_text, format_bytes, format_percent


def precision_lines(run: Run) -> list[str]:
    """How many cases reached the precision asked for, how many did not; none where nothing stopped."""
    asked = run.plan.precision
    by_reason: dict[str, list[str]] = {}
    for case, stop in run.stops.items():
        within = asked is not None and stop.is_within(asked)
        by_reason.setdefault("precision" if within else stop.why, []).append(case)
    budget = by_reason.get("budget", [])
    total = count_text(len(run.stops), "case")
    if asked is None:
        # Every case of an ordinary run ends with its last epoch; only one that did not is worth a word.
        return [f"{len(budget):,} of {total} stopped by the time budget."] if budget else []
    if not run.stops:
        return []
    reached = by_reason.get("precision", [])
    line = f"{len(reached):,} of {total} reached the precision of ±{format_percent(asked)}"
    if reached:
        line += f" (half-widths up to ±{format_percent(max(_width(run, case) for case in reached))})"
    lines = [f"{line}."]
    for cases, why in (
        (budget, "ran out of the time budget"),
        (by_reason.get("epochs", []), "used up its epochs"),
    ):
        if cases:
            widest = max(cases, key=lambda case: _width(run, case))
            lines.append(f"{count_text(len(cases), 'case')} {why}{_reach(run, widest, len(cases))}.")
    return lines


def _width(run: Run, case: str) -> float:
    """The half-width of the 95 % interval that a case reached; 0 where it is not known."""
    return run.stops[case].half_width or 0.0


def _reach(run: Run, case: str, ncases: int) -> str:
    """How wide the widest of several cases is."""
    half_width = run.stops[case].half_width
    if half_width is None:
        return ""
    named = next((entry.case for entry in run.plan.cases if entry.case.key == case), None)
    place = "" if named is None else f", {named.op} {format_bytes(named.nbytes)} {named.mode}"
    return (
        f" at ±{format_percent(half_width)}{place}"
        if ncases == 1
        else f", the widest at ±{format_percent(half_width)}{place}"
    )
