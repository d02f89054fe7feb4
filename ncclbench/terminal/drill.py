"""What a person sees of a drill: words, a table of phases for each strategy, and the contract cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ncclbench.stats.recovery import PHASE_WORDS, Outcome, OverTrials, Recovery, by_outcome, recoveries
from ncclbench.store.drills import PHASES, ContractOutcome, DrillTrial
from ncclbench.terminal.columns import aligned, headed
from ncclbench.terminal.streams import one_line
from ncclbench.units import format_time, format_us

_MOST_OUTCOMES = 5
_LONGEST_LINE = 120


def drill_lines(
    trials: Sequence[DrillTrial],
    contract: Sequence[ContractOutcome] = (),
    unavailable: Mapping[str, str] | None = None,
) -> list[str]:
    """What stands above the answer on a terminal.

    Args:
        trials: of one or several strategies, in the order in which they were made.
        contract: what torch did in the contract cases.
        unavailable: strategies that cannot be had here, and why.
    """
    found = recoveries(trials)
    parts = list(map(_phase_lines, found))
    parts.append([one_line(f"# {name}: not here: {reason}") for name, reason in (unavailable or {}).items()])
    parts.append(_contract_lines(contract) if contract else [])
    lines = [line for part in parts if part for line in ("#", *part)]
    return lines[1:]


def sentence(recovery: Recovery) -> str:
    """A strategy's answer in one sentence: how often it recovered, how long the job stood, what was wrong."""
    tried = recovery.trials - recovery.watched
    if recovery.only_watched:
        said = [f"{'once' if recovery.trials == 1 else f'{recovery.trials} times'}, {recovery.why_watched}"]
    else:
        said = [f"{recovery.recovered - recovery.watched} of {tried} recovered"]
    if recovery.watched and not recovery.only_watched:
        said.append(f"{recovery.why_watched} in {recovery.watched}")
    smaller, whole = (recovery.phases_ms[name] for name in ("first_good_n_minus_1", "first_good_n"))
    if smaller is not None:
        said.append(f"first good collective at n-1 after {_time(smaller)}")
    if whole is not None:
        said.append(f"{'' if smaller else 'first good collective '}at n after {_time(whole)}")
    if recovery.slow_steps_per_s is not None:
        said.append(_pace(recovery))
    elif smaller is None and whole is None:
        last = recovery.phases_ms["last_notice"]
        said.append(f"the last survivor notices after {_time(last)}" if last else "no survivor noticed")
    if recovery.correct < recovery.trials:
        said.append(f"WRONG DATA or none in {recovery.trials - recovery.correct}")
    if recovery.leftover_processes:
        said.append(f"{recovery.leftover_processes} processes left behind")
    return f"{recovery.fault}, {recovery.strategy}: {', '.join(said)}"


def _pace(recovery: Recovery) -> str:
    """How fast the job was before, meanwhile and after: "steps a second: 268, 48 with the slow rank"."""
    told = {
        "": recovery.before_steps_per_s,
        " with the slow rank": recovery.slow_steps_per_s,
        " at n-1": recovery.during_steps_per_s,
        " at n again": recovery.after_steps_per_s,
    }
    known = [f"{found.median:.0f}{when}" for when, found in told.items() if found is not None]
    return f"steps a second: {', '.join(known)}"


def _time(found: OverTrials) -> str:
    return f"{milliseconds(found.median)} ms"


def milliseconds(value_ms: float) -> str:
    """Three significant digits, without an exponent."""
    return format_us(value_ms) if value_ms < 10_000 else f"{value_ms:,.0f}"


def _phase_lines(recovery: Recovery) -> list[str]:
    spare = f", {recovery.spare} spare" if recovery.phases_ms["replacement_ready"] is not None else ""
    lines = [
        one_line(f"# {recovery.fault}, {recovery.strategy}{spare}, milliseconds since the fault:"),
    ]
    cells = [("phase", "median", "95 % interval", "worst", "trials")]
    for phase in PHASES:
        found = recovery.phases_ms[phase]
        if found is None:
            continue
        times = milliseconds(found.median), _interval(found), milliseconds(found.worst)
        cells.append((PHASE_WORDS[phase], *times, str(found.n)))
    if len(cells) > 1:
        widest = max(map(len, PHASE_WORDS.values()))
        lines += headed(aligned(cells, at_least=(widest, 9, 21, 9)))
    if recovery.asked_ms is not None and recovery.start_ms is not None:
        asked, took = _time(recovery.asked_ms), _time(recovery.start_ms)
        lines.append(f"# replacement asked for after {asked}, once the bandwidth was taken; ready in {took}")
    if recovery.before_steps_per_s is not None:
        lines.append(f"# {_pace(recovery)}")
    lines += _bandwidth_lines(recovery)
    if recovery.unmeasured:
        lines.append(f"# {recovery.unmeasured}")
    if recovery.clock_error_us:
        lines.append(f"# clocks of several hosts: wrong by up to {recovery.clock_error_us:.0f} us")
    for outcome in recovery.outcomes[:_MOST_OUTCOMES]:
        lines += _outcome_lines(outcome, recovery.trials)
    if len(recovery.outcomes) > _MOST_OUTCOMES:
        lines.append(f"# and {len(recovery.outcomes) - _MOST_OUTCOMES} other outcomes in the report")
    return lines


def _outcome_lines(outcome: Outcome, trials: int) -> list[str]:
    """How often, and what; what was told to some ranks and to others each on a line of its own."""
    which = "" if outcome.recovered else "not recovered, "
    whole = one_line(f"# {which}{outcome.count} of {trials}: {outcome.text}")
    parts = outcome.text.split("; ")
    if len(whole) <= _LONGEST_LINE or len(parts) == 1:
        return [whole]
    return [f"# {which}{outcome.count} of {trials}:", *(f"#   {one_line(part)}" for part in parts)]


def _interval(found: OverTrials) -> str:
    if found.low is None or found.high is None:
        return "-"
    return f"{milliseconds(found.low)} .. {milliseconds(found.high)}"


def _bandwidth_lines(recovery: Recovery) -> list[str]:
    rates = {
        "before": recovery.before_GBs,
        "at n-1": recovery.during_GBs,
        "after": recovery.after_GBs,
    }
    known = [f"{when} {found.median:.4g}" for when, found in rates.items() if found is not None]
    if not known:
        return []
    kept = ""
    if recovery.kept is not None:
        kept = f" ({100 * recovery.kept.median:.0f} % of before)"
    return [f"# busbw in GB/s, median: {', '.join(known)}{kept}"]


def _contract_lines(contract: Sequence[ContractOutcome]) -> list[str]:
    consistent = sum(outcome.consistent for outcome in contract)
    lines = [f"# contract: {consistent} of {len(contract)} cases consistent over ranks"]
    for outcome in contract:
        word = "consistent" if outcome.consistent else "NOT CONSISTENT"
        after = {True: "; a fresh uuid works afterwards", False: "; a fresh uuid does NOT work afterwards"}
        recovered = "" if outcome.recovered is None else after[outcome.recovered]
        lines.append(one_line(f"{outcome.case}: {word}{recovered}"))
        if not outcome.consistent:
            lines.append("    " + one_line(f"expected: {outcome.expected}"))
            for ranks, words, seconds in by_outcome(outcome):
                took = "" if seconds is None else f" after {format_time(1e6 * seconds)}"
                lines.append("    " + one_line(f"{ranks}: {words}{took}"))
            lines.append("    " + one_line(f"see it again: {outcome.command}"))
    return lines
