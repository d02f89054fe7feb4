"""What a calibration advises: a table of rules, each of which says a line about the document or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.environment.collect import whole_ranks
from ncclbench.units import format_bytes, format_percent

# A rate above this is more than the tests allow themselves.
ALLOWED_RATE = 0.05

# The flags of stats.series are tests at this level, so that of many sound cases one is flagged now and then.
_ALPHA = 0.01
# Below this difference nothing is worth a line.
_LEAST_DRIFT = 0.02
_CASES_SHOWN = 2
# The preflight's words for what a rule here says with a number.
_SHARED_CORES = "usable cores"

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rules look at; fields as the arguments of ``advise``."""

    document: Mapping[str, Any]
    environment: Mapping[str, Any]
    preflight: Sequence[Mapping[str, Any]]
    margin: float

    def where(self, holds: Callable[[Entry], object]) -> list[Entry]:
        """The cases for which something holds."""
        return [entry for entry in self.document["resolution"] if holds(entry)]


def advise(
    document: Mapping[str, Any],
    environment: Mapping[str, Any],
    preflight: Sequence[Mapping[str, Any]],
    margin: float,
) -> list[str]:
    """A line for everything that makes verdicts on this machine worse than they could be, the worst first.

    Args:
        document: a calibration without its advice.
        environment, preflight: as in run.json.
        margin: of equivalence, as a fraction.
    """
    facts = _Facts(document, environment, preflight, margin)
    return [line for rule in _RULES for line in rule(facts)]


def _false_verdicts(facts: _Facts) -> Iterator[str]:
    document = facts.document
    if document["rate_low"] <= ALLOWED_RATE:
        return
    reasons = [
        words
        for words, found in (
            ("epochs that follow each other are alike", facts.where(lambda each: each["correlated"])),
            ("one arm drifts against the other", facts.where(lambda each: each["drifts"])),
            ("new processes differ more than epochs do", facts.where(_is_process_bound)),
        )
        if found
    ]
    why = " and ".join(reasons) or "why is not seen in these epochs: look for others on the machine"
    yield (
        f"do not believe verdicts here: {document['false_verdicts']} of {document['comparisons']} "
        f"comparisons of equal arms were called different, chance allows one in twenty; {why}"
    )


def _cores(facts: _Facts) -> Iterator[str]:
    """Ranks that share a core, two hyperthreads of one included."""
    by_host: dict[int, list[Mapping[str, Any]]] = {}
    for rank in whole_ranks(facts.environment):
        by_host.setdefault(rank["host"], []).append(rank)
    for index, ranks in by_host.items():
        # Ranks that a launcher has bound to cores of their own bring them together.
        cores = sum({rank["cores"]: rank["usable_physical_cores"] for rank in ranks}.values())
        cores = min([cores, *(rank["cpu_quota_cores"] for rank in ranks if rank["cpu_quota_cores"])])
        if len(ranks) > cores:
            name = facts.environment["hosts"][index]["name"]
            yield (
                f"processes share a core: {len(ranks)} ranks on {cores:g} usable cores of {name}: "
                f"use --nproc-per-node {max(1, int(cores))}"
            )


def _findings(facts: _Facts) -> Iterator[str]:
    """A governor that saves power, other load, settings: what the preflight has found."""
    said = any(True for _ in _cores(facts))
    for finding in facts.preflight:
        if not (said and _SHARED_CORES in finding["what"]):
            mend = f": {finding['mend']}" if finding.get("mend") else ""
            yield f"{finding['what']}{mend}"


def _correlated(facts: _Facts) -> Iterator[str]:
    if found := facts.where(lambda entry: entry["correlated"]):
        yield (
            f"epochs that follow each other are alike ({_cases(found)}), so they are fewer facts than they "
            "seem: make each longer with more -n"
        )


def _drift(facts: _Facts) -> Iterator[str]:
    def drifts(entry: Entry) -> bool:
        return bool(entry["time_drifts"]) and abs(entry["time_drift"] - 1) > _LEAST_DRIFT

    if found := facts.where(drifts):
        most = max(found, key=lambda entry: abs(entry["time_drift"] - 1))
        yield (
            f"times drifted during the measurement, by up to {format_percent(abs(most['time_drift'] - 1))} "
            f"({_cases(found)}): compare arms in one job only, never one run after the other"
        )


def _warming(facts: _Facts) -> Iterator[str]:
    if found := facts.where(lambda entry: entry["warming"]):
        yield f"the first operations of an epoch are slower ({_cases(found)}): warm up more with -w"


def _processes(facts: _Facts) -> Iterator[str]:
    if found := facts.where(_is_process_bound):
        most = max(found, key=lambda entry: float(entry["spread_process"]))
        yield (
            f"new processes differ by {format_percent(most['spread_process'])}, more than the epochs of one "
            f"job ({_cases(found)}): what holds in one launch may not in the next, use --epoch-kind process"
        )


def _iterations(facts: _Facts) -> Iterator[str]:
    def bound(entry: Entry) -> bool:
        iteration, group = entry["spread_iteration"], entry["spread_group"]
        return iteration is not None and (group is None or iteration > 2 * group)

    found = facts.where(bound)
    if found and 2 * len(found) > len(facts.document["resolution"]):
        yield (
            f"single operations scatter more than groups do ({_cases(found)}): more -n in the same epochs "
            "finds smaller differences"
        )


def _company(facts: _Facts) -> Iterator[str]:
    def differs(entry: Entry) -> bool:
        ratio = entry["beside_over_alone"]
        return ratio is not None and (
            ratio["ci_low"] > 1 + facts.margin or ratio["ci_high"] < 1 / (1 + facts.margin)
        )

    if found := facts.where(differs):
        most = max(found, key=lambda entry: abs(entry["beside_over_alone"]["ratio"] - 1))
        ratio = most["beside_over_alone"]["ratio"]
        yield (
            f"an arm beside another takes {ratio:.2f}x the time it takes alone ({_cases(found)}): "
            "ratios hold, but take times to quote from a run with one arm"
        )


def _few(facts: _Facts) -> Iterator[str]:
    comparisons, low, high = (facts.document[key] for key in ("comparisons", "rate_low", "rate_high"))
    if comparisons and low <= ALLOWED_RATE and high > 2 * ALLOWED_RATE:
        yield (
            f"{comparisons} comparisons leave the rate of false verdicts between {format_percent(low)} and "
            f"{format_percent(high)}: more --epochs or --sizes narrow it"
        )


_RULES: tuple[Callable[[_Facts], Iterable[str]], ...] = (
    _false_verdicts,
    _cores,
    _findings,
    _correlated,
    _processes,
    _drift,
    _warming,
    _iterations,
    _company,
    _few,
)


def _is_process_bound(entry: Entry) -> bool:
    """Whether processes differ by more than chance, and by more than anything within one."""
    process, others = entry["spread_process"], (entry["spread_group"], entry["spread_iteration"])
    if process is None or entry["p_process"] is None or entry["p_process"] >= _ALPHA:
        return False
    return bool(process > max(other or 0.0 for other in others))


def case_name(entry: Entry) -> str:
    """An entry in words: operation, type where it is not the usual one, size, mode."""
    dtype = "" if entry["dtype"] == "float32" else f"{entry['dtype']} "
    return f"{entry['op']} {dtype}{format_bytes(entry['nbytes'])} {entry['mode']}"


def _cases(entries: Sequence[Entry]) -> str:
    names = ", ".join(case_name(entry) for entry in entries[:_CASES_SHOWN])
    more = len(entries) - _CASES_SHOWN
    return f"{names} and {more} more" if more > 0 else names
