"""What a person sees of a run: findings first, then the table as it grows, then what was not measured."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ncclbench import __version__
from ncclbench.plan.model import SHARED_GPU, Case, Plan
from ncclbench.store.model import Stop, Unit
from ncclbench.terminal.progress import Progress, start_progress
from ncclbench.terminal.streams import coloured, one_line, show
from ncclbench.terminal.table import Row, Table, group_title
from ncclbench.terminal.verdicts import verdict_lines
from ncclbench.units import count_text, format_bytes, format_seconds, rank_ranges

# A case costs its fences and checks, and about as much again for so many bytes: for the time left.
_BYTES_LIKE_OVERHEAD = 2 << 20
# Names in one line of the list of what was not measured; the rest is counted.
_NAMES_SHOWN = 4
_WRONG_ROWS_SHOWN = 5

_COLOUR = {"error": "red", "warning": "yellow"}

Earlier = Mapping[tuple[str, str], Sequence[Unit]]


class TerminalListener:
    """A ``supervise.events.Listener``: the table on standard output, all else on standard error.

    Args:
        as_json: standard output belongs to the JSON document, so no table.
        earlier: units of earlier attempts, as in ``Run.units``, where a run is resumed.
        stopped: why, by the keys of the cases that get no more epochs for that; None where nothing says.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        earlier: Earlier | None = None,
        stopped: Mapping[str, Stop | None] | None = None,
    ) -> None:
        self._out: TextIO | None = None if as_json else sys.stdout
        self._err: TextIO | None = sys.stderr
        self._units: defaultdict[tuple[str, str], list[Unit]] = defaultdict(list)
        self._earlier = earlier or {}
        self._plan: Plan | None = None
        self._progress: Progress | None = None
        self._table: Table | None = None
        self._title = ""
        self._settled: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._told: set[tuple[str, str, str]] = set()
        self._work_left: dict[str, float] = {}
        self._stopped: set[str] = set(stopped or ())
        self._stops = [stop for stop in (stopped or {}).values() if stop is not None]
        self._next_row = 0

    def started(
        self, folder: Path, plan: Plan, environment: dict[str, Any], preflight: Sequence[dict[str, Any]]
    ) -> None:
        """Findings, what will be measured, and rows that are complete already."""
        self._plan = plan
        self._table = Table(plan)
        cases = {case.key: case for case in plan.planned}
        for (key, arm), units in self._earlier.items():
            self._units[key, arm] += [_slowest(unit, plan, cases[key]) for unit in units if key in cases]
        self._earlier = {}
        for entry in plan.cases:
            if entry.status == "skipped":
                self._settled[entry.case.key, None] = ("skipped", entry.reason or "")
        self._lines(finding_lines(preflight, self._err), self._err)
        self._lines(_heading(folder, plan, environment), self._out)
        self._work_left = {case.key: self._work_of(plan, case) for case in plan.planned}
        self._stopped |= {key for key, work in self._work_left.items() if not work}
        self._show_ready()
        epochs = plan.epochs if plan.precision is None else None
        self._progress = start_progress(sum(self._work_left.values()), epochs, self._err)

    def settled(self, case: str, arm: str, status: str, reason: str) -> None:
        """Kept for the list at the end; what is not just skipped is also said at once, each reason once."""
        self._settled[case, arm] = (status, reason)
        if status != "skipped" and (arm, status, reason) not in self._told:
            self._told.add((arm, status, reason))
            self.note(f"{arm} {status}: {reason}")
        arms = () if self._plan is None else self._plan.arms
        if self._progress is not None and all((case, each.id) in self._settled for each in arms):
            self._progress.drop(self._work_left.pop(case, 0.0))

    def measured(self, case: Case, epoch: int, units: Sequence[Unit], seconds: float) -> None:
        """Counted."""
        if self._plan is not None:
            for unit in units:
                self._units[unit.case, unit.arm].append(_slowest(unit, self._plan, case))
        if self._progress is None or self._plan is None:
            return
        left = self._work_left[case.key]
        work = min(left, _work(case) if self._plan.precision is None else seconds)
        self._work_left[case.key] = left - work
        self._progress.advance(work, epoch, f"{case.op} {case.dtype} {format_bytes(case.nbytes)}")

    def stopped(self, case: Case, stop: Stop) -> None:
        """Rows of the case: its last epoch is there."""
        if self._progress is not None:
            self._progress.drop(self._work_left.pop(case.key, 0.0))
        self._stopped.add(case.key)
        self._stops.append(stop)
        self._show_ready()

    def note(self, text: str) -> None:
        """The line, on standard error."""
        self._lines([f"ncclbench: {one_line(text)}"], self._err)

    def ended(self) -> None:
        """Rows that did not get all their epochs, then what was not measured and why."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
        if self._plan is None:
            return
        for case in self._plan.planned:
            self._show_rows(case)
        self._lines(unmeasured_lines(self._plan, self._settled), self._out)
        self._lines(precision_lines(self._plan, self._stops), self._out)

    def _show_ready(self) -> None:
        """Rows in the plan's order, whichever case was ready first: so far as nothing before them is open."""
        while self._plan is not None and self._next_row < len(self._plan.planned):
            case = self._plan.planned[self._next_row]
            arms = self._plan.arms
            if case.key not in self._stopped and not all((case.key, arm.id) in self._settled for arm in arms):
                return
            self._next_row += 1
            self._show_rows(case)

    def _show_rows(self, case: Case) -> None:
        """The case's rows, one per arm, each shown once."""
        # Imported with the first row, when it is long loaded: it brings scipy, and workers could have
        # started before.
        from ncclbench.stats.summary import summary_row

        plan, table = self._plan, self._table
        if plan is None or table is None:
            return
        lines = []
        for arm in plan.arms:
            units = self._units.pop((case.key, arm.id), None)
            if units:
                row = summary_row(
                    case,
                    arm,
                    units,
                    implementation=None,
                    statistic=str(plan.statistic),
                    share_gpu=plan.share_gpu,
                )
                line = table.line(row)
                lines.append(coloured(line, "red", self._out) if row["wrong"] else line)
        title = group_title(case)
        if lines and title != self._title:
            self._title = title
            lines = ["#", title, *table.header(), *lines]
        self._lines(lines, self._out)

    def _work_of(self, plan: Plan, case: Case) -> float:
        """In any unit: what a case costs as a rule, or the seconds that it may take."""
        if case.key in self._stopped:
            return 0.0
        if plan.precision is not None and plan.time_budget_s is not None:
            return plan.time_budget_s
        return _work(case) * self._epochs_left(plan, case)

    def _epochs_left(self, plan: Plan, case: Case) -> int:
        """Epochs that no earlier attempt has measured; arms are measured together, if at all."""
        return max(0, plan.epochs - max(len(self._units[case.key, arm.id]) for arm in plan.arms))

    def _lines(self, lines: Sequence[str], stream: TextIO | None) -> None:
        if not lines or stream is None:
            return
        if self._progress is not None:
            self._progress.pause()
        show("\n".join(lines) + "\n", stream)
        if self._progress is not None:
            self._progress.resume()


def _slowest(unit: Unit, plan: Plan, case: Case) -> Unit:
    """A unit as rows here need it: of each sample what the slowest rank took.

    Cases become complete in the last epoch, and all samples of all ranks until then would be a run's worth.
    """
    # Imported when it is long loaded: see _show_rows.
    import numpy as np

    from ncclbench.stats.groups import members_of

    members = members_of(plan.groups.get(case.topology, ()))
    ranks = slice(None) if members is None else members
    times_us = unit.total_us if unit.device_us is None else unit.device_us
    slowest_us = times_us[ranks].max(axis=0, keepdims=True)
    nothing_us = np.zeros_like(slowest_us)
    return replace(
        unit,
        start_us=nothing_us,
        launch_us=nothing_us,
        device_us=None if unit.device_us is None else slowest_us,
        total_us=slowest_us,
        wrong=None if unit.wrong is None else (sum(unit.wrong),),
        delay_us=None,
        health=None,
    )


def show_conclusion(
    rows: Sequence[Row],
    comparisons: Sequence[Row],
    report: Path | None,
    *,
    unstable: int = 0,
    as_json: bool = False,
) -> None:
    """The last lines of a sweep: verdicts, unstable rows, wrong data, loudly, and where the report lies."""
    stream = sys.stderr if as_json else sys.stdout
    wrong = [row for row in rows if row["wrong"]]
    lines = [] if as_json else verdict_lines(comparisons)
    if unstable and not as_json:
        measured = sum(row["status"] == "ok" for row in rows)
        text = f"# {unstable} of {count_text(measured, 'row')} unstable, epochs differ by more than 10 %"
        lines += ["#", coloured(f"{text}: more --epochs, or a quieter machine", "yellow", stream)]
    if wrong:
        # Imported when it is long loaded: see _show_rows.
        from ncclbench.stats.groups import wrong_where

        text = f"WRONG DATA in {count_text(len(wrong), 'row')}: their times mean nothing"
        lines.append(coloured(text, "red", stream))
        lines += [
            f"  {_row_name(row)}: {row['wrong']} wrong elements {wrong_where(row)}".rstrip()
            for row in wrong[:_WRONG_ROWS_SHOWN]
        ]
        if len(wrong) > _WRONG_ROWS_SHOWN:
            lines.append(f"  and {count_text(len(wrong) - _WRONG_ROWS_SHOWN, 'more row')}")
    if report is not None:
        lines.append(f"report: {report}")
    if lines:
        show("\n".join(lines) + "\n", stream)


def finding_lines(preflight: Sequence[Mapping[str, Any]], stream: TextIO | None) -> list[str]:
    """Preflight findings, errors first, each once with the ranks it was found on."""
    ranks: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for finding in preflight:
        ranks[finding["severity"], finding["what"], finding.get("mend") or ""] += finding["ranks"]
    lines = []
    for (severity, what, mend), where in sorted(ranks.items(), key=lambda item: item[0][0] != "error"):
        # What names its ranks needs no second list: "on the others (rank 1)" would read as the opposite.
        named = " on rank" in what
        place = f" ({rank_ranges(where)})" if where and not named else ""
        text = one_line(f"{what}{place}{': ' if mend else ''}{mend}")
        lines.append(f"{coloured(f'{severity}:', _COLOUR.get(severity, 'bold'), stream)} {text}")
    return lines


def precision_lines(plan: Plan, stops: Sequence[Stop]) -> list[str]:
    """How many cases are as precise as asked for, and how wide the others' intervals still are."""
    if plan.precision is None or not stops:
        return []
    missed = [stop for stop in stops if not stop.is_within(plan.precision)]
    line = f"# within {plan.precision:.2%}: {len(stops) - len(missed)} of {len(stops)} cases"
    if missed:
        spent = sum(stop.why == "budget" for stop in missed)
        widths = [stop.half_width for stop in missed if stop.half_width is not None]
        widest = f", the widest interval {max(widths):.2%} either way" if widths else ""
        line += f"; {spent} ran out of time{widest}: a longer --time-budget narrows it with its root"
    return ["#", line]


def unmeasured_lines(plan: Plan, settled: Mapping[tuple[str, str | None], tuple[str, str]]) -> list[str]:
    """One line per reason: how many cases, of which operations, dtypes and arms.

    ``settled``: (case key, arm id or None for all arms) to (status, reason).
    """
    cases = {entry.case.key: entry.case for entry in plan.cases}
    found: dict[tuple[str, str], list[tuple[Case, str | None]]] = defaultdict(list)
    for (key, arm), outcome in settled.items():
        if key in cases:
            found[outcome].append((cases[key], arm))
    lines = []
    for (status, reason), entries in found.items():
        ops = _some({case.op: None for case, _ in entries})
        dtypes = _some({case.dtype: None for case, _ in entries})
        arms = _some({arm: None for _, arm in entries if arm is not None and len(plan.arms) > 1})
        ncases = len({case.key for case, _ in entries})
        where = f"{ops} {dtypes}{f' on {arms}' if arms else ''}"
        lines.append(f"# {status}: {count_text(ncases, 'case')} of {where}: {one_line(reason)}")
    return ["#", *lines] if lines else []


def _heading(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> list[str]:
    hosts = len(environment.get("hosts", ()))
    arms = ", ".join(arm.id for arm in plan.arms)
    if plan.precision is None:
        extent = f"{count_text(plan.iters, 'iteration')} in {count_text(plan.epochs, 'epoch')}"
    else:
        extent = f"each until its interval is within {plan.precision:.2%}"
        if plan.time_budget_s is not None:
            extent += f" or {format_seconds(plan.time_budget_s)} are spent"
    lines = [
        f"# ncclbench {__version__}, run {folder}",
        f"# {count_text(plan.nranks, 'rank')} on {count_text(hosts, 'host')}; "
        f"{arms}; {count_text(len(plan.planned), 'case')}, {extent}",
        "# size: the larger of send and receive per rank",
        "# time: median of the slowest rank's; interval: over epochs",
    ]
    if plan.share_gpu:
        lines.append(f"# {SHARED_GPU}")
    return lines


def _row_name(row: Row) -> str:
    redop = f" {row['redop']}" if row["redop"] else ""
    return f"{row['op']} {row['dtype']}{redop} {format_bytes(row['nbytes'])} {row['mode']} on {row['arm']}"


def _work(case: Case) -> float:
    return 1 + case.nbytes / _BYTES_LIKE_OVERHEAD


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
