"""What the benchmarks of verdicts share: one sweep of two equal arms, and each case judged alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ncclbench.compare.paired import compare_run
from ncclbench.plan.model import Case
from ncclbench.stats.rates import clopper_pearson
from ncclbench.store.model import Run, Unit
from ncclbench.store.reader import load_run
from ncclbench.tables.statistics import STATISTICS


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case of one sweep, judged as the only question that was asked."""

    case: Case
    row: dict[str, object]
    base: list[Unit]
    new: list[Unit]

    @property
    def word(self) -> str:
        """The verdict."""
        return str(self.row["verdict"])

    @property
    def quantile(self) -> float:
        """What the verdict is on."""
        return STATISTICS[str(self.row["statistic"])].quantile


def sweep_twins(folder: Path, *, sizes: str, budget_s: float, seed: int, more: list[str]) -> Run:
    """all_reduce on two equal gloo arms in turns, until every case has had its time.

    A folder that holds the whole run already is read and not measured again.
    """
    if not _is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "ncclbench", "sweep", "--backends", "gloo,gloo"]
        command += ["--nproc-per-node", "2", "--sizes", sizes, "--modes", "isolated", "--seed", str(seed)]
        # No precision is so fine: the budget ends every case.
        command += ["--precision", "0.01%", "--time-budget", f"{budget_s:g}s", "--json", *more]
        subprocess.run([*command, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return load_run(folder)


def _is_whole(folder: Path) -> bool:
    return (folder / "run.json").exists() and load_run(folder).meta["status"] == "complete"


def judged_alone(run: Run) -> Iterator[Comparison]:
    """Every case of the run by itself: no correction for the others."""
    for entry in run.plan.cases:
        alone = replace(run, plan=replace(run.plan, cases=(entry,)))
        (row,) = compare_run(alone)
        base, new = (run.units[entry.case.key, arm.id] for arm in run.plan.arms)
        yield Comparison(entry.case, row, base, new)


def rate(hits: int, trials: int) -> str:
    """A rate with its exact 95 % interval."""
    low, high = clopper_pearson(hits, trials)
    return f"{hits} of {trials} = {hits / trials:.1%} [{low:.1%}, {high:.1%}]"


def epoch_values(units: list[Unit], quantile: float, shift: float = 1.0) -> np.ndarray:
    """The quantile of each epoch, microseconds, with ``shift`` times the delay that was injected."""
    values = []
    for unit in units:
        delay_us = np.zeros(1) if unit.delay_us is None else np.array(unit.delay_us)
        times_us = unit.rank_time_us + (shift - 1) * delay_us[:, np.newaxis]
        values.append(np.quantile(times_us.max(axis=0), quantile))
    return np.array(values)
