"""``--require``: what a run must reach, as one writes it, and as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ncclbench.errors import RequestError
from ncclbench.names import flat, lookup, nearest
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.units import parse_bytes

Metric = Literal["busbw", "algbw", "time"]

_METRICS = ("busbw", "algbw", "time")
_EXAMPLES = "90%peak, 'all_reduce@1G>=450GB/s' or 'all_reduce@8<=20us'"

# Factor to GB/s (1e9 bytes) and to microseconds. Gb/s are bits: the case of a b counts.
_RATES = {"GB/s": 1.0, "MB/s": 1e-3, "Gb/s": 0.125}
_TIMES = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}

_FORM = re.compile(
    r"(?P<op>[A-Za-z_0-9]+)?\s*(?:@\s*(?P<size>[^\s:<>=]+))?\s*(?::\s*(?P<metric>[A-Za-z]+))?\s*"
    r"(?P<relation>>=|<=|=>|=<|==|=|>|<|≥|≤)\s*(?P<bound>.*)"
)
_BOUND = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>%\s*peak|%|[A-Za-zµ/]*)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement.

    Attributes:
        text: as typed.
        op: name in COLLECTIVES; None for every collective that was measured.
        nbytes: size; None for the largest that was measured of each collective.
        metric: "busbw" or "algbw", which must be at least the bound, or "time", which must be at most.
        bound: GB/s (1e9 bytes), microseconds, or with ``of_peak`` a fraction of the row's peak.
        of_peak: the bound is a share of what the hardware could give.
    """

    text: str
    op: str | None
    nbytes: int | None
    metric: Metric
    bound: float
    of_peak: bool = False

    @property
    def is_latency(self) -> bool:
        """Whether a time is asked for, which must not be longer."""
        return self.metric == "time"

    @property
    def unit(self) -> str:
        """Of values and bound in answers."""
        return "us" if self.is_latency else "GB/s"


def parse_requirement(text: str, option: str = "--require") -> Requirement:
    """A requirement from ``[OP][@SIZE][:METRIC]>=BOUND``; docs/hardware.md has the grammar.

    Raises:
        RequestError: not of that form; the line says what to write.
    """
    stripped = text.strip()
    whole = f"{option} {text!r}"
    short = _BOUND.fullmatch(stripped)
    match = _FORM.fullmatch(f">={stripped}" if short and short["unit"].startswith("%") else stripped)
    if match is None:
        cut = re.fullmatch(r"[a-z_0-9]*@?[0-9.]*[KMGT]?", stripped) and stripped
        quote = "; quote it, or the shell takes > and < for itself" if cut else ""
        raise RequestError(f"{whole} is not a requirement: write it like {_EXAMPLES}{quote}")
    relation = match["relation"].replace("≥", ">=").replace("≤", "<=")
    if relation not in (">=", "<="):
        right = _suggested(stripped[: match.start("relation")], relation, match["bound"])
        raise RequestError(f"{whole} has {relation!r} for a bound: write {right!r}")
    op = match["op"]
    if op is not None and op not in COLLECTIVES:
        op = {flat(name): name for name in COLLECTIVES}.get(flat(op)) or op
        lookup(COLLECTIVES, "collective", op)
    nbytes = None if match["size"] is None else parse_bytes(match["size"], f"{option} size")
    number, unit = _bound(match["bound"], whole)
    metric = _metric(match["metric"], unit, whole)
    if (metric == "time") is not (unit in _TIMES):
        raise RequestError(f"{whole} asks for {metric} in {unit}: take {_units(metric)}")
    right = "<=" if metric == "time" else ">="
    if relation != right:
        what = "a time is bounded from above" if metric == "time" else "a bandwidth is bounded from below"
        raise RequestError(f"{whole}: {what}, write {right}")
    if metric != "time" and op and not COLLECTIVES[op].has_data:
        raise RequestError(f"{whole}: {op} moves no data, ask for a time like '{op}<=20us'")
    if metric == "algbw" and unit == "%peak":
        raise RequestError(f"{whole}: a peak bounds the bus bandwidth, leave :algbw away")
    factor = 0.01 if unit == "%peak" else (_RATES | _TIMES)[unit]
    return Requirement(stripped, op, nbytes, metric, number * factor, of_peak=unit == "%peak")


def _suggested(before: str, relation: str, bound: str) -> str:
    """What was meant by a requirement with another relation, or with no unit."""
    unit = (_BOUND.fullmatch(bound) or {"unit": "?"})["unit"]
    is_time = unit in _TIMES or (not unit and "<" in relation)
    default = "us" if is_time else "GB/s"
    return f"{before.strip()}{'<=' if is_time else '>='}{bound}{'' if unit else default}"


def _bound(text: str, whole: str) -> tuple[float, str]:
    """Number and unit, the unit as the tables have it."""
    match = _BOUND.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"{whole}: {text!r} is not a bound, write it like 450GB/s, 20us or 90%peak")
    unit = re.sub(r"\s", "", match["unit"])
    known = [*_RATES, *_TIMES, "%peak"]
    if unit not in known:
        near = nearest(unit, known)
        if unit == "%":
            hint = f"write {match['number']}%peak"
        elif re.fullmatch(r"[kmgt]i?(b|bit|byte)s?(/s|ps|/sec)?", unit, re.IGNORECASE):
            hint = "write GB/s for bytes or Gb/s for bits"
        else:
            hint = f"write {near}" if unit and near else f"take {', '.join(known)}"
        raise RequestError(f"{whole} has {f'the unit {unit!r}' if unit else 'no unit'}: {hint}")
    number = float(match["number"])
    if not 0 < number < 1e9:
        raise RequestError(f"{whole}: a bound must be above zero and below 1e9")
    return number, unit


def _metric(typed: str | None, unit: str, whole: str) -> Metric:
    if typed is None:
        return "time" if unit in _TIMES else "busbw"
    for metric in ("busbw", "algbw", "time"):
        if typed == metric:
            return metric
    raise RequestError(f"{whole} asks for {typed!r}: take {', '.join(_METRICS)}")


def _units(metric: Metric) -> str:
    return ", ".join(_TIMES if metric == "time" else [*_RATES, "%peak"])
