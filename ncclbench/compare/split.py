"""How long an epoch is where that is free: how many visits to each arm, and operations in each.

An epoch's quantile pools its visits, and so passes over bursts of disturbance that hit some of them; a mean
over epochs does not. So epochs are as long as leaves enough of them in the budget, and at least so long that
making groups costs little of it. Only where epochs differ by far more than their visits explain, shorter
ones are better: with a cost per epoch c_e and per visit c_v, and variances s_e and s_v of the compared
logarithm, a budget gives the smallest variance of the mean with sqrt(c_e s_v / (c_v s_e)) visits per epoch
(Cochran, "Sampling techniques", 1977, sec. 10.6: two-stage sampling). That takes the variance of pooled
visits to fall as their number. On two cores with other load beside it fell faster, so lengths go towards it
by halves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclbench.plan.schedule import visit_step
from ncclbench.stats.intervals import Floats
from ncclbench.store.model import Unit

# To each arm in an epoch; a multiple of every step.
MOST_VISITS = 252

# Timed operations of a visit: as many as make its overhead a third of it, within these.
FEWEST_OPERATIONS = 5
_MOST_OPERATIONS = 25

# So many epochs make a t interval nearly as narrow as it gets, and show drift and dependence.
_WANTED_EPOCHS = 24
# The longest that an epoch of one case should take where a budget would allow for more.
_LONGEST_EPOCH_S = 0.5
# Groups and what else an epoch costs should be no more of it than this, as long as that leaves so many
# epochs in the budget.
_LARGEST_OVERHEAD = 0.2
_FEWEST_EPOCHS = 12
# Epochs are shortened where their own variance is so many times what their visits leave.
_DOMINATED = 2.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What measuring a case takes, seconds.

    Attributes:
        epoch_s: of an epoch, whatever is measured in it.
        visit_s: of a visit to one arm, without its samples.
        sample_s: of one sample and what belongs to it.
    """

    epoch_s: float
    visit_s: float
    sample_s: float

    def epoch_of(self, narms: int, visits: int, samples: float) -> float:
        """Seconds of an epoch with so many visits to each arm."""
        return self.epoch_s + visits * self.round_of(narms, samples)

    def round_of(self, narms: int, samples: float) -> float:
        """Seconds of a visit to each arm."""
        return narms * (self.visit_s + samples * self.sample_s)


def measured_cost(units: Sequence[Unit], seconds: float) -> Cost:
    """The cost of the epoch that ``units``, one per arm, were measured in; it took ``seconds`` in all."""
    starts: dict[int, float] = {}
    gaps = []
    samples = 0
    for unit in units:
        start_us = unit.start_us.min(axis=0)
        begins = np.cumsum([0, *unit.visits[:-1]])
        starts |= dict(zip(unit.turns, start_us[begins], strict=True))
        gaps += [np.diff(block) for block in np.split(start_us, begins[1:])]
        samples += len(start_us)
    between_us = np.concatenate(gaps)
    sample_s = float(between_us.mean()) / 1e6 if between_us.size else 0.0
    ordered = [starts[turn] for turn in sorted(starts)]
    if len(ordered) < 2:
        return Cost(0.0, max(0.0, seconds - samples * sample_s), sample_s)
    whole_visit_s = (ordered[-1] - ordered[0]) / (len(ordered) - 1) / 1e6
    visit_s = max(0.0, whole_visit_s - samples / len(ordered) * sample_s)
    return Cost(max(0.0, seconds - len(ordered) * whole_visit_s), visit_s, sample_s)


def operations_of(cost: Cost) -> int:
    """Timed operations of a visit."""
    if cost.sample_s <= 0:
        return _MOST_OPERATIONS
    return min(_MOST_OPERATIONS, max(FEWEST_OPERATIONS, math.ceil(2 * cost.visit_s / cost.sample_s)))


def epoch_target_s(budget_s: float) -> float:
    """Seconds that an epoch of one case should take."""
    return min(_LONGEST_EPOCH_S, budget_s / _WANTED_EPOCHS)


def visits_of(
    cost: Cost,
    narms: int,
    samples: float,
    variances: tuple[float, float] | None,
    budget_s: float,
    before: int | None,
) -> int:
    """Visits to each arm in the next epochs, so many that every arm comes first as often.

    Args:
        cost: as measured.
        samples: of a visit.
        variances: of an epoch and of a visit, from ``split_variance``; None where not known yet.
        budget_s: for the whole case.
        before: visits in the last epoch; None for the first choices.
    """
    round_s = cost.round_of(narms, samples)
    step = visit_step(narms)
    if round_s <= 0:
        return step
    worthwhile_s = min(cost.epoch_s / _LARGEST_OVERHEAD, budget_s / _FEWEST_EPOCHS)
    visits = (max(epoch_target_s(budget_s), worthwhile_s) - cost.epoch_s) / round_s
    if before is not None and variances is not None:
        of_epoch, of_visit = variances
        best = math.inf if of_epoch == 0 else math.sqrt(cost.epoch_s * of_visit / (round_s * of_epoch))
        dominated = of_epoch > _DOMINATED * of_visit / before
        visits = min(visits, max(best, before / 2)) if dominated else min(visits, before)
    return min(MOST_VISITS, max(step, step * round(min(visits, MOST_VISITS) / step)))


def split_variance(epochs: Floats, halves: Floats, visits: Floats) -> tuple[float, float] | None:
    """(variance between epochs, variance of one visit) of a logarithm, by the method of moments.

    Args:
        epochs: shape (n,): the logarithm in each epoch.
        halves: shape (n, 2): the same of either half of its visits.
        visits: shape (n,): visits in each epoch.

    Returns:
        None for fewer than eight epochs: it would be a guess.
    """
    if epochs.size < 8:
        return None
    of_visit = float(((halves[:, 0] - halves[:, 1]) ** 2 / 2 * visits / 2).mean())
    return max(0.0, float(epochs.var(ddof=1)) - of_visit * float((1 / visits).mean())), of_visit
