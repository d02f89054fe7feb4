"""Where the scatter of a case's times comes from: new processes, new groups, or single iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from ncclbench.stats.intervals import Floats
from ncclbench.store.model import Unit

# Processes that a component of their own is asked for; with fewer it is noise.
_FEWEST_PROCESSES = 3


@dataclass(frozen=True, slots=True)
class Components:
    """Standard deviations of the log statistic of one epoch; their squares add up to its variance.

    None where the estimate is not above zero, or the data cannot tell it from the others.

    Attributes:
        process: from one set of processes to the next.
        group: from one process group to the next within the same processes.
        iteration: by the samples an epoch happened to get; falls with the root of their number.
        p_process: p of the F test that new processes add nothing.
    """

    process: float | None
    group: float | None
    iteration: float | None
    p_process: float | None


def components(processes: Sequence[Sequence[Unit]], quantile: float) -> Components:
    """The components of one case on one arm, from the epochs that each set of processes measured.

    A nested design: iterations (in the visits of an epoch) in groups (epochs) in processes. The log of the
    statistic is taken of every visit; mean squares within epochs, within processes and between processes
    are equated with what they are expected to be (method of moments, or ANOVA estimators: Searle, Casella
    and McCulloch, "Variance Components", 1992, ch. 3 and 4). Estimates below zero are possible and mean that
    a component is too small for so few data.

    Args:
        processes: the units of each; an epoch counts where it has the visits that most have.
        quantile: what of the samples is the statistic.
    """
    visits = _usual_visits(processes)
    logs = [
        [_visit_logs(unit, quantile) for unit in units if len(unit.visits) == visits] for units in processes
    ]
    if not all(bool(np.isfinite(each).all()) for found in logs for each in found):
        return Components(None, None, None, None)  # times of zero: the clock is too coarse
    epochs = [np.array([each.mean() for each in found]) for found in logs if found]
    within_epochs = _pooled([each for found in logs for each in found])
    within_processes = _pooled(epochs)
    iteration = None if within_epochs is None else within_epochs / visits
    group = None
    if within_processes is not None and iteration is not None:
        group = within_processes - iteration
    process, p_process = _between(epochs, within_processes)
    return Components(_root(process), _root(group), _root(iteration), p_process)


def _usual_visits(processes: Sequence[Sequence[Unit]]) -> int:
    counts = [len(unit.visits) for units in processes for unit in units]
    return max(set(counts), key=counts.count, default=0)


def _visit_logs(unit: Unit, quantile: float) -> Floats:
    """Log of the statistic of each visit, shape (visits,)."""
    parts = np.split(unit.time_us, np.cumsum(unit.visits)[:-1])
    with np.errstate(divide="ignore"):
        logs: Floats = np.log([np.quantile(part, quantile) for part in parts])
    return logs


def _pooled(sets: Sequence[Floats]) -> float | None:
    """Variance around each set's own mean, pooled over the sets; None where no set has two values."""
    df = sum(values.size - 1 for values in sets)
    if df < 1:
        return None
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in sets)
    return squares / df


def _between(epochs: Sequence[Floats], within: float | None) -> tuple[float | None, float | None]:
    """Variance that processes add, and the p of its F test, from the epochs' values in each process.

    Processes may have unequally many epochs (unbalanced one-way classification, in the same book).
    """
    sizes = np.array([values.size for values in epochs], dtype=np.float64)
    df_between, df_within = len(epochs) - 1, float(sizes.sum()) - len(epochs)
    if len(epochs) < _FEWEST_PROCESSES or not within:
        return None, None
    means = np.array([values.mean() for values in epochs])
    grand = float((sizes * means).sum() / sizes.sum())
    between = float((sizes * (means - grand) ** 2).sum()) / df_between
    usual = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / df_between
    return (between - within) / usual, float(fdtrc(df_between, df_within, between / within))


def _root(variance: float | None) -> float | None:
    return math.sqrt(variance) if variance is not None and variance > 0 else None
