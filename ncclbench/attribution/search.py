"""Looking for slow elements over rounds: in all of them, in the last ones, and in the mean.

Each look makes one number of a reading's rounds and has it explained by ``fit``:

* the median of all rounds: what is slow throughout; a round far out moves nothing;
* the median of the last ones, from several rounds on: what became slow;
* the mean time, of ranks and hosts only: what is slow half of the time (a process that is stopped every few
  milliseconds, a throttled clock). There the median may fall to either side, and the fastest round shows
  nothing at all. A single link's mean is at the mercy of one round, so it is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ncclbench.attribution.elements import ONE_IN, SORTS, Elements, Ints, Order, Sort
from ncclbench.attribution.fit import Candidate, Fit, fit
from ncclbench.attribution.noise import WORTH_ROUNDS, Scatter, p_lasting, scatter_of, usual_scatter
from ncclbench.stats.intervals import Floats, LogMean

What = Literal["bandwidth", "both ways", "compute", "copies to the device", "copies from the device"]

# The last rounds that are looked at by themselves are as many as this at least, in as many looks at most.
FEWEST_LAST = 3
_MOST_WINDOWS = 6
# So many links slow at once in a round make it this many times as rare; more of them no rarer.
_AT_ONCE = 4
# So many readings tell how unsteady one is; the spread of fewer over a few rounds is a matter of chance.
_ENOUGH = 4
# Of a normal distribution: standard deviation over median absolute deviation.
_SD_OF_MAD = 1.4826


# The elements of readings, and whose readings these are (``fit``'s ``ends``).
Elementary = tuple[Order, tuple[Ints, ...]]


@dataclass(frozen=True, slots=True)
class Readings:
    """One kind of measurement of many pairs or ranks.

    Attributes:
        what: was measured.
        logs: logarithms of speeds, shape (readings, rounds); NaN where one is missing, but never a whole row.
        classes: readings of one class are comparable, shape (readings,).
        elements_of: the elements of some of the readings.
    """

    what: What
    logs: Floats
    classes: Ints
    elements_of: Callable[[Ints], Elementary]


@dataclass(frozen=True, slots=True)
class Look:
    """Rounds, and what is made of them.

    Attributes:
        start: the first round.
        mean: the mean time instead of the median.
        cost: by how much p values are multiplied for there being several looks: half of the chance of a false
            name is for the median of all rounds, the other looks share the rest.
    """

    start: int
    mean: bool
    cost: float


@dataclass(frozen=True, slots=True)
class Finding:
    """An element that reads slow at one look.

    Attributes:
        what: was measured.
        elements, index, label: which element it is.
        members: its readings that show it.
        partners: how many different ranks or hosts are at the other end of these, and of all of its readings.
        look: at which it was found.
        p: the chance of it among healthy ones, for this look and element alone times the look's ``cost``.
        p_size: the part of it that the size has; the rest is how lasting it is.
        lasting: in how many rounds of the look nearly all of its readings were slow, and of how many.
        slowness: logarithm of how many times slower than healthy ones of its class, shape (rounds,).
        beyond: the same, but slower than whatever else is slow on its readings' way.
        unknown: standard error of the logarithm of what it and the level would read if all were healthy.
        doubtful: it cannot be told from another explanation.
    """

    what: What
    elements: Elements
    index: int
    label: tuple[int, ...]
    members: Ints
    partners: tuple[int, int]
    look: Look
    p: float
    p_size: float
    lasting: tuple[int, int]
    slowness: Floats
    beyond: Floats
    unknown: float
    doubtful: bool

    @property
    def slow_rounds(self) -> np.ndarray:
        """In which rounds it is nearer to slow than to healthy, shape (rounds,)."""
        threshold = float(np.nanmedian(self.beyond[self.look.start :])) / 2
        if self.look.mean:
            threshold = _log_mean_exp(self.beyond) / 2
        slow: np.ndarray = self.beyond >= threshold
        return slow

    @property
    def is_always(self) -> bool:
        """Whether nearly all of its readings were slow in every round of all."""
        return self.look.start == 0 and self.lasting[0] == self.lasting[1]

    @property
    def onset(self) -> int:
        """The round, from 0, with which it became slow; 0 where it always was or that cannot be told."""
        slow = self.slow_rounds
        misfits = [int(slow[:at].sum() + (~slow[at:]).sum()) for at in range(slow.size)]
        best = int(np.argmin(misfits))
        clean = misfits[best] <= slow.size // ONE_IN and not slow[:best].all()
        return best if clean and not self.look.mean else 0

    @property
    def is_steady(self) -> bool:
        """Whether it was slow in nearly all rounds since it became slow."""
        since = self.slow_rounds[self.onset :]
        return bool((~since).sum() <= since.size // ONE_IN)

    def ratio(self) -> tuple[float, float, float]:
        """How many times slower since it became slow, and the 95 % interval.

        A t interval over rounds, with the square of ``unknown`` added to its variance. Widened to reach the
        estimate, as for medians of epochs.
        """
        series = self.slowness[self.onset :]
        series = series[np.isfinite(series)]
        # Now slow and now not: what counts is how long it all takes, and the median is one or the other.
        steady = not self.look.mean and self.is_steady
        estimate = float(np.median(series)) if steady else _log_mean_exp(series)
        n = series.size
        if n < 2:
            return math.exp(estimate), 0.0, math.inf
        own = float(series.var(ddof=1)) / n
        mean = LogMean(n, float(series.mean()), math.sqrt(own + self.unknown**2), n - 1)
        low, high = mean.interval()
        return math.exp(estimate), min(low, math.exp(estimate)), max(high, math.exp(estimate))


@dataclass(frozen=True, slots=True)
class Search:
    """What was found in one kind of measurement.

    Attributes:
        findings: at all looks.
        family: how many elements of each sort were asked about.
        rounds: how many there are.
        largest: logarithm of the largest slowness of a reading, in the median of all rounds.
        scatters: how healthy readings differ, of each class.
        whole: the fit to the median of all rounds.
    """

    findings: list[Finding]
    family: dict[Sort, int]
    rounds: int
    largest: float
    scatters: list[Scatter]
    whole: Fit


def looks(rounds: int) -> list[Look]:
    """The looks at so many rounds."""
    latest = max(0, rounds - FEWEST_LAST)
    starts = np.unique(np.linspace(1, latest, min(_MOST_WINDOWS, latest)).round()).tolist()
    shared = 2.0 * (len(starts) + 1)
    return [Look(0, False, 2.0), *(Look(int(at), False, shared) for at in starts), Look(0, True, shared)]


def search(readings: Readings, margin: float) -> Search:
    """All that reads slower than ``margin``, a logarithm, with the chance of it among healthy ones."""
    rounds = readings.logs.shape[1]
    every = np.arange(len(readings.logs))
    elements = readings.elements_of(every)
    whole = _See(readings, every, elements, looks(rounds)[0], margin)
    findings = list(whole.findings())
    for look in looks(rounds)[1:]:
        used = every[np.isfinite(readings.logs[:, look.start :]).any(axis=1)]
        mine = elements if used.size == every.size else readings.elements_of(used)
        findings += _See(readings, used, mine, look, margin).findings()
    return Search(
        findings,
        family={
            sort: sum(len(elements) for elements in whole.order.all() if elements.sort == sort)
            for sort in SORTS
        },
        rounds=rounds,
        largest=float(np.max(whole.fit.level - whole.fit.values)),
        scatters=list(whole.scatters.values()),
        whole=whole.fit,
    )


class _See:
    """One look at those readings that were made in its rounds."""

    def __init__(
        self, readings: Readings, used: Ints, elements: Elementary, look: Look, margin: float
    ) -> None:
        self.what = readings.what
        self.used = used
        self.look = look
        self.logs = readings.logs[used]
        self.classes = readings.classes[used]
        self.order, ends = elements
        window = self.logs[:, look.start :]
        values = -_row_log_mean_exp(-window) if look.mean else np.nanmedian(window, axis=1)
        self.fit = fit(values, self.classes, self.order, ends, margin)
        self.drift = self._drift()
        residuals = (self.fit.expected - self.fit.values)[self.fit.healthy]
        self.scatter = _SD_OF_MAD * float(np.median(np.abs(residuals))) if residuals.size else 0.0
        self.scatters = self._scatters()
        usual = np.nanmedian(self.logs, axis=1)[:, np.newaxis]
        self.slower = np.nan_to_num(usual + self.drift - self.logs)
        self.candidates_of: dict[int, list[int]] = {}
        for one in self.fit.candidates:
            self.candidates_of.setdefault(id(one.elements), []).append(one.index)

    def _drift(self) -> Floats:
        """How much faster than usual the healthy are in each round: the whole cluster's ups and downs.

        Shape (readings, rounds), by class.
        """
        drift = np.zeros_like(self.logs)
        moves = self.logs - self.fit.values[:, np.newaxis]
        for each in np.unique(self.classes):
            mine = self.classes == each
            if (mine & self.fit.healthy).any():
                drift[mine] = np.nan_to_num(_column_medians(moves[mine & self.fit.healthy]))
        return drift

    def _scatters(self) -> dict[int, Scatter]:
        """How single readings of each class differ, beside what is explained.

        They bound how much healthy hosts and ranks differ as well: what one of these had of its own would be
        in all of its readings.
        """
        single = [one for one in self.fit.candidates if one.elements.is_pair or one.elements.where == "alone"]
        left_out = np.concatenate([np.zeros(0, np.intp), *(one.members for one in single)])
        deviations = self.fit.expected - self.fit.values
        family = sum(len(elements) for elements in self.order.all())
        found = {}
        for each in np.unique(self.classes).tolist():
            here = np.flatnonzero(self.classes == each)
            suspected = [
                (one.slowness, (one.expected - self.fit.values[one.members])[mine])
                for one in single
                if (mine := self.classes[one.members] == each).any()
            ]
            # A slow link that several pairs share at once is unsteady, and says nothing of healthy ones.
            healthy = here[self.fit.healthy[here]]
            moves = (self.logs - self.drift)[healthy if healthy.size >= _ENOUGH else here, self.look.start :]
            found[each] = scatter_of(
                deviations[np.setdiff1d(here, left_out)], suspected, family, usual_scatter(moves)
            )
        return found

    def findings(self) -> Iterator[Finding]:
        """The candidates with their chances."""
        wobbles: dict[int, Floats] = {}
        for one in self.fit.candidates:
            if self.look.mean and one.elements.is_pair:
                continue
            key = id(one.elements)
            if key not in wobbles:
                others = np.delete(np.arange(len(one.elements)), self.candidates_of[key])
                wobbles[key] = self._wobbles(one.elements)[others]
            yield self._finding(one, wobbles[key])

    def _unknown(self, mine: Ints) -> float:
        """By the scatter of healthy readings: of the median of these, and of the median that is the level.

        The variance of a median is pi / 2 times that of a mean, but for one or two readings.
        """
        alike = int((self.fit.healthy & (self.classes == self.classes[mine[0]])).sum())
        return self.scatter * math.sqrt(
            sum((math.pi / 2 if n > 2 else 1) / max(1, n) for n in (len(mine), alike))
        )

    def _p_size(self, one: Candidate) -> float:
        """The chance of its slowness among healthy ones.

        If healthy hosts were so slow, at least half of their links would be: hence the factor of two.
        """
        classes = np.unique(self.classes[one.members]).tolist()
        p = max(self.scatters[each].p_beyond(one.slowness) for each in classes)
        return p if len(one.elements.members(one.index)) == 1 else min(1.0, 2 * p)

    def _wobbles(self, elements: Elements) -> Floats:
        """By how much each element is slower in a round than usual, shape (elements, rounds)."""
        if len(elements.reading) == len(elements):
            return self.slower[elements.reading]
        least = elements.medians if self.look.mean else elements.least
        return np.stack([least(column) for column in self.slower.T], axis=1)

    def _finding(self, one: Candidate, wobbles: Floats) -> Finding:
        mine = one.members
        series = _log_mean_exp_columns if self.look.mean else _column_medians
        least = series if self.look.mean else _column_least
        fastness = self.drift[mine] - self.logs[mine]
        beyond = series(one.expected[:, np.newaxis] + fastness)
        slowness = series(self.fit.level[mine][:, np.newaxis] + fastness)
        window = least(one.expected[:, np.newaxis] + fastness)[self.look.start :]
        window = window[np.isfinite(window)]
        # Half of what the least slow of its readings is slower by: one that leads to another slow end too has
        # less to show.
        gaps = one.expected - self.fit.values[mine]
        threshold = (one.slowness if self.look.mean else min(one.slowness, float(gaps.min()))) / 2
        lasting = int((window >= threshold).sum()), window.size
        # The more links must be slow at once, the rarer such rounds are. In a mean now one and now another
        # round counts, so that little is known of it before.
        worth = WORTH_ROUNDS * min(len(mine), _AT_ONCE) if not self.look.mean else WORTH_ROUNDS // _AT_ONCE
        p_rounds = p_lasting(*lasting, int((wobbles >= threshold).sum()), wobbles.size, worth)
        if len(one.elements.members(one.index)) == 1:
            # Any reading tells how often one is slow for a round, and there may be few of this sort.
            healthy = self.slower[self.fit.healthy]
            all_slow = int((healthy >= threshold).sum())
            p_rounds = max(p_rounds, p_lasting(*lasting, all_slow, healthy.size, worth))
        if self.look.start and lasting[0] < window.size - window.size // ONE_IN:
            p_rounds = 1.0  # it did not become slow then
        p_size = self._p_size(one)
        return Finding(
            what=self.what,
            elements=one.elements,
            index=one.index,
            label=one.label,
            members=self.used[mine],
            partners=one.partners,
            look=self.look,
            p=min(1.0, self.look.cost * max(p_size, p_rounds)),
            p_size=p_size,
            lasting=lasting,
            slowness=slowness,
            beyond=beyond,
            unknown=self._unknown(mine),
            doubtful=one.doubtful,
        )


def _column_medians(table: Floats) -> Floats:
    """Medians over rows, shape (columns,); NaN for a column of NaN."""
    found = np.full(table.shape[1], np.nan)
    read = np.isfinite(table).any(axis=0)
    found[read] = np.nanmedian(table[:, read], axis=0)
    return found


def _column_least(table: Floats) -> Floats:
    """What all but one in eight rows exceed, shape (columns,): the slowness that nearly all links share."""
    ordered = np.sort(table, axis=0)  # NaN last
    found: Floats = ordered[np.isfinite(table).sum(axis=0) // ONE_IN, np.arange(table.shape[1])]
    return found


def _log_mean_exp(values: Floats) -> float:
    return float(np.log(np.nanmean(np.exp(values))))


def _row_log_mean_exp(table: Floats) -> Floats:
    found: Floats = np.log(np.nanmean(np.exp(table), axis=1))
    return found


def _log_mean_exp_columns(table: Floats) -> Floats:
    found = np.full(table.shape[1], np.nan)
    read = np.isfinite(table).any(axis=0)
    found[read] = np.log(np.nanmean(np.exp(table[:, read]), axis=0))
    return found
