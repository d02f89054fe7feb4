"""The gate for scripts: pass or fail on the rows of a comparison, with "unclear" counted as one is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ncclbench.compare.doubts import FENCE_BOUND
from ncclbench.errors import RequestError
from ncclbench.units import parse_percent

Answer = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Gate:
    """What fails a comparison.

    Attributes:
        limit: the most that the ratio of times, new over base, may be: 1.05 for ``slower:5%``.
        unclear: what a row counts as that cannot be told.
    """

    limit: float
    unclear: Answer


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate says of a comparison.

    Attributes:
        answer: of all rows together.
        slower: rows shown to be slower than the limit.
        unclear: rows of which that cannot be told.
        unseen: entries of ``unpaired`` that the base has: of these it cannot be told either.
    """

    answer: Answer
    slower: list[Mapping[str, Any]]
    unclear: list[Mapping[str, Any]]
    unseen: list[Mapping[str, Any]]


def parse_limit(text: str, option: str) -> float:
    """The largest ratio that passes, of ``slower:5%``.

    Raises:
        RequestError: not of that form.
    """
    word, colon, percent = text.strip().partition(":")
    if word != "slower" or not colon:
        raise RequestError(f"{option} {text!r} is not a gate: write it like slower:5%")
    return 1 + parse_percent(percent, option)


def judge_gate(
    rows: Sequence[Mapping[str, Any]],
    gate: Gate,
    unpaired: Sequence[Mapping[str, Any]] = (),
    wrong: bool = False,
) -> GateResult:
    """The answer over all rows, and over what the base has and no row is of.

    A row fails where the lower bound of its simultaneous interval lies above the limit: all rows together
    then fail by chance in at most 5 % of comparisons. It is unclear where its verdict can be none (too few
    epochs or launches, no ratio), where that interval reaches over the limit without lying above it, and
    where a skewed fence may hide that it does. A case without a partner is unclear where the base was to
    run it: one that only the new side has, or that neither was to run, is no failure.

    Args:
        unpaired: ``Comparison.unpaired``.
        wrong: the data check found wrong elements: that fails whatever else is told.
    """
    slower, unclear = [], []
    for row in rows:
        if not _may_be_claimed(row):
            unclear.append(row)
        elif row["simultaneous_low"] > gate.limit:
            slower.append(row)
        elif row["simultaneous_high"] > gate.limit or row["fence_bound"]:
            unclear.append(row)
    unseen = [entry for entry in unpaired if entry["side"] in ("base", "both")]
    fails = wrong or bool(slower) or bool((unclear or unseen) and gate.unclear == "fail")
    return GateResult("fail" if fails else "pass", slower, unclear, unseen)


def _may_be_claimed(row: Mapping[str, Any]) -> bool:
    """Whether the row's interval may be taken at its word, if only that it is slower."""
    return row["simultaneous_low"] is not None and row["doubt"] in (None, FENCE_BOUND)
