"""STATISTICS: what a verdict may compare: one number for an epoch's samples, chosen before the run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistic:
    """One location of a distribution of times.

    Attributes:
        name: as typed after ``--statistic``.
        quantile: the fraction of samples below it.
        description: when to use it.
    """

    name: str
    quantile: float
    description: str


_ENTRIES = (
    Statistic("p10", 0.10, "the undisturbed operation, where most samples are disturbed"),
    Statistic("p25", 0.25, "steady on shared CPUs, where the median sits between scheduled and not"),
    Statistic("median", 0.50, "the usual sample: steady on GPUs"),
    Statistic("p75", 0.75, "the slower half's middle"),
    Statistic("p90", 0.90, "the tail; needs many samples in each epoch"),
)

STATISTICS: dict[str, Statistic] = {entry.name: entry for entry in _ENTRIES}

# By the clock of the samples, where the plan names none.
DEFAULT_STATISTIC = {"device": "median", "total": "p25"}
