"""Panel: what was not measured, by reason, and what a reader of the run should know."""

from __future__ import annotations

from ncclbench.report.marks import where
from ncclbench.report.model import Report, Row
from ncclbench.report.panels.panel import Content, Panel

# The worst first.
_STATUSES = ("wrong", "failed", "unavailable", "skipped")


def build(report: Report) -> Content | None:
    """Rows without a speed that counts, grouped by status and reason, with counts."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        if row["status"] in _STATUSES:
            reason = row["reason"] or ("wrong elements in the result" if row["status"] == "wrong" else "")
            groups.setdefault((row["status"], reason), []).append(row)
    problems = [
        {"run": source.label, "text": problem} for source in report.sources for problem in source.run.problems
    ]
    if not (groups or problems):
        return None
    ordered = sorted(groups.items(), key=lambda group: (_STATUSES.index(group[0][0]), -len(group[1])))
    return {
        "groups": [
            {"status": status, "reason": reason, "count": len(rows), "which": where(rows)}
            for (status, reason), rows in ordered
        ],
        "problems": problems,
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="unmeasured",
    order=60,
    title="Not measured",
    description="Nothing is dropped silently: every case that was asked for is measured or named here.",
    build=build,
    template="unmeasured.html",
)
