"""What ``ncclbench calibrate`` shows: how far it is, a line per case, advice, and last what it all means."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncclbench import __version__
from ncclbench.compare.advice import ALLOWED_RATE, case_name
from ncclbench.plan.model import Case, Plan
from ncclbench.store.model import Stop, Unit
from ncclbench.terminal.columns import aligned, headed
from ncclbench.terminal.progress import Progress, start_progress
from ncclbench.terminal.show import finding_lines, unmeasured_lines
from ncclbench.terminal.streams import one_line, show
from ncclbench.units import count_text, format_bytes, format_seconds, format_us

Entry = Mapping[str, Any]


class CalibrationListener:
    """A ``supervise.events.Listener`` for the runs of a calibration, one after the other.

    Attributes:
        seconds: for each run that has begun, by case key, what its epochs took.
        overhead_s: for each run that has begun, what epochs after the first took beside their cases.
    """

    def __init__(self, plans: Sequence[Plan], folder: Path, *, as_json: bool) -> None:
        """Nothing shown yet.

        Args:
            plans: of all runs, in their order.
            folder: of the calibration.
            as_json: standard output belongs to the JSON document.
        """
        self.seconds: list[dict[str, list[float]]] = []
        self.overhead_s: list[list[float]] = []
        self._plans = plans
        self._folder = folder
        self._out = None if as_json else sys.stdout
        self._progress: Progress | None = None
        self._first_epoch = 0
        self._epoch = 0
        self._measured_s = 0.0
        self._left: dict[str, int] = {}
        self._settled: dict[tuple[str, str | None], tuple[str, str]] = {}

    def started(
        self, folder: Path, plan: Plan, environment: dict[str, Any], preflight: Sequence[dict[str, Any]]
    ) -> None:
        """With the first run the findings and what will be done; then one progress over all runs."""
        if self._progress is None:
            show("".join(f"{line}\n" for line in finding_lines(preflight, sys.stderr)), sys.stderr)
            show("\n".join(_heading(self._folder, plan, environment)) + "\n", self._out)
            total = sum(each.epochs * len(each.planned) for each in self._plans)
            epochs = sum(each.epochs for each in self._plans)
            self._progress = start_progress(float(total), epochs, sys.stderr)
        self._progress.drop(sum(self._left.values()))
        self._first_epoch = sum(each.epochs for each in self._plans[: len(self.seconds)])
        self._left = dict.fromkeys((case.key for case in plan.planned), plan.epochs)
        self.seconds.append({})
        self.overhead_s.append([])
        self._epoch = 0

    def settled(self, case: str, arm: str, status: str, reason: str) -> None:
        """Kept for the list at the end."""
        self._settled[case, None] = (status, reason)

    def measured(self, case: Case, epoch: int, units: Sequence[Unit], seconds: float) -> None:
        """One step further."""
        now_s = time.monotonic()
        if epoch > self._epoch:
            # Groups were ended and made between the last case of the former epoch and this one.
            self.overhead_s[-1].append(max(0.0, now_s - self._measured_s - seconds))
        self._epoch, self._measured_s = epoch, now_s
        self.seconds[-1].setdefault(case.key, []).append(seconds)
        self._left[case.key] -= 1
        if self._progress is not None:
            name = f"{case.op} {case.dtype} {format_bytes(case.nbytes)}"
            self._progress.advance(1.0, self._first_epoch + epoch, name)

    def stopped(self, case: Case, stop: Stop) -> None:
        """Nothing to show: what is left is dropped when the next run starts."""

    def note(self, text: str) -> None:
        """The line, on standard error."""
        if self._progress is not None:
            self._progress.pause()
        show(f"ncclbench: {one_line(text)}\n", sys.stderr)
        if self._progress is not None:
            self._progress.resume()

    def ended(self) -> None:
        """What was not measured and why."""
        if self._progress is not None:
            self._progress.drop(sum(self._left.values()))
            self._progress.close()
        show("".join(f"{line}\n" for line in unmeasured_lines(self._plans[0], self._settled)), self._out)


def calibration_lines(document: Mapping[str, Any]) -> list[str]:
    """The table of a calibration, then how often equal arms were called different, then the advice."""
    budget = _budget(document)
    heads = ("case", "time (us)", "spread", "process", "group", "iteration", "drift", "beside", "finds")
    rows = [heads, *(_cells(entry) for entry in document["resolution"])]
    lines = [
        "#",
        "# spread: of the ratio of two equal arms over epochs; process, group, iteration: how far one arm's",
        "# time varies by new processes, new groups, and the iterations it happened to get; drift: of its",
        "# time over the run; beside: its time beside the other arm over alone; finds: the smallest",
        f"# difference found with 90 % power in {budget} a case",
    ]
    lines += headed(aligned(rows))
    lines.append("#")
    lines += [f"advice: {one_line(line)}" for line in document["advice"]]
    return lines


def conclusion(document: Mapping[str, Any]) -> list[str]:
    """In words: whether verdicts can be believed here, and what differences they can find."""
    if not document["resolution"]:
        return ["no case could be measured: the backend takes none of them"]
    return [_belief(document), _reach(document)]


def _belief(document: Mapping[str, Any]) -> str:
    comparisons, false = document["comparisons"], document["false_verdicts"]
    if comparisons == 0:
        return "too few epochs to compare anything: raise --time-budget or --epochs"
    counted = (
        f"{false} of {comparisons} comparisons of equal arms called different "
        f"(95 % interval {_percent(document['rate_low'])} to {_percent(document['rate_high'])}), "
        f"{document['same']} called the same"
    )
    if document["rate_low"] > ALLOWED_RATE:
        return f"verdicts CANNOT be believed here: {counted}"
    if document["rate_high"] <= ALLOWED_RATE:
        return f"verdicts can be believed here: {counted}"
    return f"nothing speaks against verdicts here, 5 % may be false: {counted}"


def _reach(document: Mapping[str, Any]) -> str:
    budget = _budget(document)
    found = sorted(
        (entry for entry in document["resolution"] if entry["smallest"] is not None),
        key=lambda entry: float(entry["smallest"]),
    )
    if not found:
        return f"{budget} a case are too short for any difference to be found"
    best, worst = found[0], found[-1]
    words = f"{budget} a case find a difference of {_percent(worst['smallest'])} ({case_name(worst)})"
    if len(found) > 1:
        words = (
            f"{budget} a case find differences from {_percent(best['smallest'])} ({case_name(best)}) "
            f"to {_percent(worst['smallest'])} ({case_name(worst)})"
        )
    return words


def _budget(document: Mapping[str, Any]) -> str:
    return format_seconds(document["budget_s"]).replace(".0 s", " s")


def _heading(folder: Path, plan: Plan, environment: Mapping[str, Any]) -> list[str]:
    hosts = len(environment["hosts"])
    return [
        f"# ncclbench {__version__}, calibration {folder}",
        f"# {count_text(plan.nranks, 'rank')} on {count_text(hosts, 'host')}; "
        f"{plan.arms[0].backend} against itself; {count_text(len(plan.planned), 'case')}",
    ]


def _cells(entry: Entry) -> tuple[str, ...]:
    beside = entry["beside_over_alone"]
    return (
        case_name(entry),
        format_us(entry["time_us"]),
        _or_dash(entry["spread"]),
        _or_dash(entry["spread_process"]),
        _or_dash(entry["spread_group"]),
        _or_dash(entry["spread_iteration"]),
        _or_dash(None if entry["time_drift"] is None else entry["time_drift"] - 1, sign=True),
        "-" if beside is None else f"{beside['ratio']:.2f}x",
        _or_dash(entry["smallest"]),
    )


def _or_dash(fraction: float | None, *, sign: bool = False) -> str:
    return "-" if fraction is None else _percent(fraction, "+" if sign else "")


def _percent(fraction: float, sign: str = "") -> str:
    return f"{100 * fraction:{sign}.1f} %"
