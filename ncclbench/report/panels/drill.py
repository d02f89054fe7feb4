"""Panel: what a drill found: who recovered and how long it took, the contract cases, every trial."""

from __future__ import annotations

from typing import Any

from ncclbench.report.drilling import (
    bandwidth_figure,
    interval_text,
    ms_text,
    name_of,
    pace_figure,
    phases_figure,
    seconds_text,
)
from ncclbench.report.endings import ending_of
from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text
from ncclbench.stats.recovery import PHASE_WORDS, Recovery, by_outcome, recoveries
from ncclbench.store.drills import PHASES, ContractOutcome, DrillTrial
from ncclbench.units import count_text, format_percent

# Trials in the table; samples.jsonl has all.
MOST_TRIALS = 400
# What became of trials in words, of each strategy; the trials below have all.
MOST_OUTCOMES = 6


def build(report: Report) -> Content | None:
    """One block for each drill; nothing for other runs."""
    drills = [source for source in report.sources if source.run.is_drill]
    if not drills:
        return None
    blocks = [_block(source, number) for number, source in enumerate(drills)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="drill",
    order=-15,
    title="Recovery",
    description="",
    build=build,
    template="drill.html",
)


def _block(source: Source, number: int) -> dict[str, Any]:
    run = source.run
    found = recoveries(run.trials)
    tone, headline = _headline(source)
    figures = (
        phases_figure(found, f"phases-{number}"),
        pace_figure(found, f"pace-{number}"),
        bandwidth_figure(found, f"bandwidth-{number}"),
    )
    return {
        "run": source.label,
        "tone": tone,
        "headline": headline,
        "notes": _notes(source),
        "place": _place(source),
        "strategies": [_strategy(recovery, found) for recovery in found],
        "outcomes": [
            {
                "who": f"{recovery.fault}, {name_of(recovery, found)}",
                "count": f"{outcome.count} of {count_text(recovery.trials, 'trial')}",
                "text": outcome.text,
                "recovered": outcome.recovered,
            }
            for recovery in found
            for outcome in recovery.outcomes[:MOST_OUTCOMES]
        ],
        "figures": [figure for figure in figures if figure is not None],
        "unmeasured": dict.fromkeys(
            f"{recovery.strategy}: {recovery.unmeasured}." for recovery in found if recovery.unmeasured
        ),
        "phases": _phases(found),
        "contract": [_case(outcome) for outcome in run.contract],
        "trials": [_trial(trial) for trial in run.trials[:MOST_TRIALS]],
        "phase_words": list(PHASE_WORDS.values()),
        "more": max(0, len(run.trials) - MOST_TRIALS),
    }


def _headline(source: Source) -> tuple[str, str]:
    """Tone, and the answer in a few words."""
    trials, contract = source.run.trials, source.run.contract
    wrong = sum(trial.recovered and not trial.correct for trial in trials)
    left = sum(trial.leftover_processes for trial in trials)
    failed = sum(not trial.recovered for trial in trials)
    found = recoveries(trials)
    tried = sum(one.trials - one.watched for one in found)
    split = sum(not outcome.consistent for outcome in contract)
    said = []
    if wrong:
        said.append(f"WRONG DATA after {wrong} of {count_text(len(trials), 'trial')}")
    if left:
        said.append(f"{count_text(left, 'process', 'processes')} left behind")
    if trials:
        every = "the trial" if tried == 1 else f"all {tried:,} trials"
        some = f"{tried - failed:,} of {count_text(tried, 'trial')}"
        watched = dict.fromkeys(one.why_watched for one in found)
        said.append(f"{some if failed else every} recovered" if tried else ", ".join(watched))
    if contract:
        cases = count_text(len(contract), "contract case")
        said.append(f"{len(contract) - split} of {cases} consistent over ranks")
    if not said:
        said.append("nothing drilled")
    ending = ending_of(source.run, "the drill failed")
    if ending is not None:
        said.append(ending)
    if wrong or left:
        tone = "bad"
    elif failed or split or ending or not (trials or contract):
        tone = "warn"
    else:
        tone = "good"
    headline = ", ".join(said)
    return tone, f"{headline[0].upper()}{headline[1:]}"


def _notes(source: Source) -> list[str]:
    notes = []
    if source.run.meta.get("status") in ("failed", "interrupted") and source.run.meta.get("message"):
        notes.append(str(source.run.meta["message"]))
    errors_us = [trial.clock_error_us for trial in source.run.trials if trial.clock_error_us]
    if errors_us:
        notes.append(f"Clocks of several hosts: times are wrong by up to {max(errors_us):.0f} µs.")
    unavailable = source.run.meta.get("unavailable")
    if isinstance(unavailable, dict) and unavailable:
        notes.append("Not here: " + "; ".join(f"{name}: {reason}" for name, reason in unavailable.items()))
    return notes


def _place(source: Source) -> str:
    """What was done to whom: "kill of rank 2 at step 20, gloo, 3 ranks on node-00"."""
    run = source.run
    faults = dict.fromkeys(
        f"{trial.fault} of rank {trial.victim} at step {trial.step}" for trial in run.trials
    )
    arms = list_text([arm.id for arm in run.plan.arms])
    return ", ".join([*list(faults)[:4], arms, count_text(run.plan.nranks, "rank")])


def _strategy(recovery: Recovery, found: list[Recovery]) -> dict[str, Any]:
    smaller, whole = (recovery.phases_ms[name] for name in ("first_good_n_minus_1", "first_good_n"))
    last = recovery.phases_ms["last_notice"]
    kept = recovery.kept
    return {
        "fault": recovery.fault,
        "name": name_of(recovery, found),
        "recovered": _recovered(recovery),
        "all_recovered": recovery.recovered == recovery.trials,
        "times": ["–" if one is None else ms_text(one.median) for one in (last, smaller, whole)],
        "start": "–" if recovery.start_ms is None else ms_text(recovery.start_ms.median),
        "kept": "–" if kept is None else format_percent(kept.median),
        "correct": f"{recovery.correct} of {recovery.trials}",
        "leftover": str(recovery.leftover_processes),
    }


def _recovered(recovery: Recovery) -> str:
    """Of those trials in which somebody was to recover."""
    if recovery.only_watched:
        return "–"
    return f"{recovery.recovered - recovery.watched} of {recovery.trials - recovery.watched}"


def _phases(found: list[Recovery]) -> list[dict[str, Any]]:
    """A line for each phase that a recovery has: its median, interval, worst and how many trials."""
    return [
        {
            "name": f"{recovery.fault}, {name_of(recovery, found)}",
            "lines": [
                [PHASE_WORDS[phase], ms_text(own.median), interval_text(own), ms_text(own.worst), str(own.n)]
                for phase in PHASES
                if (own := recovery.phases_ms[phase]) is not None
            ],
        }
        for recovery in found
        if any(recovery.phases_ms.values())
    ]


def _case(outcome: ContractOutcome) -> dict[str, Any]:
    after = {True: "works", False: "does not work", None: "not tried"}
    return {
        "name": outcome.case,
        "consistent": outcome.consistent,
        "expected": outcome.expected,
        "ranks": [
            f"{ranks}: {words} ({seconds_text(seconds)})" for ranks, words, seconds in by_outcome(outcome)
        ],
        "recovered": after[outcome.recovered],
        "command": outcome.command,
    }


def _trial(trial: DrillTrial) -> dict[str, Any]:
    phases = [trial.phases_ms.get(phase) for phase in PHASES]
    is_replaced = trial.phases_ms.get("replacement_ready") is not None
    said = [
        "" if trial.recovered else "not recovered",
        trial.outcome or ("" if trial.recovered else "no reason given"),
        "wrong data" if trial.recovered and not trial.correct else "",
        f"{trial.leftover_processes} processes left" if trial.leftover_processes else "",
    ]
    return {
        "number": str(trial.number + 1),
        "strategy": f"{trial.strategy} ({trial.spare})" if is_replaced else trial.strategy,
        "fault": f"{trial.fault} of rank {trial.victim}",
        "phases": ["–" if value is None else ms_text(value) for value in phases],
        "bad": not trial.recovered or not trial.correct,
        "said": "; ".join(text for text in said if text) or "as it should be",
    }
