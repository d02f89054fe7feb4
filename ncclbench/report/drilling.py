"""Figures of a drill: how long each phase took with each strategy, and what bandwidth was left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ncclbench.report.figures import (
    ALWAYS,
    Figure,
    Plot,
    Trace,
    error_bars,
    log_axis,
    plain,
    rounded,
)
from ncclbench.report.model import Series, numbered_series
from ncclbench.report.text import rate_text, tick, time_text
from ncclbench.stats.recovery import PHASE_WORDS, OverTrials, Recovery
from ncclbench.store.drills import PHASES
from ncclbench.units import count_text

# A bar with what is above and below it, and what a figure has besides.
_BAR_PX, _PHASE_PX, _FRAME_PX = 13, 12, 90
_STAGES_PX = 300
# Bars of so many strategies are too thin to be told apart.
MOST_STRATEGIES = 12

# A quantity before, during and after; None where it was not reached.
_Stages = Mapping[str, OverTrials | None]


def ms_text(time_ms: float) -> str:
    """A time given in milliseconds, as the page prints times."""
    return time_text(1e3 * time_ms)


def interval_text(found: OverTrials) -> str:
    """The 95 % interval of a time in milliseconds; a dash where there is none."""
    if found.low is None or found.high is None:
        return "–"
    return f"{ms_text(found.low)} – {ms_text(found.high)}"


def name_of(recovery: Recovery, all_of: Sequence[Recovery]) -> str:
    """A strategy's name, with what else tells it from the others of its fault."""
    alike = [one for one in all_of if (one.fault, one.strategy) == (recovery.fault, recovery.strategy)]
    return recovery.strategy if len(alike) == 1 else f"{recovery.strategy}, {recovery.spare} spare"


def by_fault(found: Sequence[Recovery]) -> dict[str, list[Recovery]]:
    """Recoveries by their fault, in the order in which they came."""
    groups: dict[str, list[Recovery]] = {}
    for recovery in found:
        groups.setdefault(recovery.fault, []).append(recovery)
    return groups


def phases_figure(found: Sequence[Recovery], name: str) -> Figure | None:
    """Each phase's time since the fault, a bar for each strategy, with its interval over trials."""
    plots, most = {}, 0
    for fault, own in by_fault(found).items():
        shown = own[:MOST_STRATEGIES]
        there = [phase for phase in PHASES if any(recovery.phases_ms[phase] for recovery in shown)]
        if there and any(found.median > 0 for one in shown for found in _known(one)):
            plots[fault] = _phases_plot(shown, there, len(own) - len(shown))
            most = max(most, len(there) * (_PHASE_PX + _BAR_PX * len(shown)))
    if not plots:
        return None
    alt = "Time since the fault of each phase of the recovery, by strategy, median and 95 % interval"
    return Figure(name, "Phases of the recovery", alt, "fault", _FRAME_PX + most, {ALWAYS: plots})


def _known(recovery: Recovery) -> list[OverTrials]:
    return [found for found in recovery.phases_ms.values() if found is not None]


def _phases_plot(shown: Sequence[Recovery], phases: Sequence[str], left_out: int) -> Plot:
    traces = []
    ends = []
    for index, recovery in enumerate(shown):
        own = [(phase, found) for phase in phases if (found := recovery.phases_ms[phase]) is not None]
        own = [(phase, found) for phase, found in own if found.median > 0]
        if not own:
            continue
        series = numbered_series(index, name_of(recovery, shown))
        medians = [found.median for _, found in own]
        bars = error_bars(series, medians, [(found.low, found.high) for _, found in own])
        traces.append(
            _bars(series, "h")
            | {
                "x": rounded(medians),
                "y": [PHASE_WORDS[phase] for phase, _ in own],
                "error_x": bars | {"color": "var(--ink)"},
                "text": [_hover(series.label, PHASE_WORDS[phase], found) for phase, found in own],
            }
        )
        ends += [end for _, found in own for end in (found.median, found.low, found.high) if end]
    words = [PHASE_WORDS[phase] for phase in phases]
    layout = {
        "barmode": "group",
        "bargap": 0.25,
        "xaxis": log_axis(ends, lambda value: tick(ms_text(value)), "time since the fault"),
        "yaxis": {"categoryorder": "array", "categoryarray": words, "autorange": "reversed"},
        "showlegend": True,
    }
    note = "Bars: median over trials; lines: 95 % interval, from 3 trials on."
    if left_out:
        note += f" {count_text(left_out, 'strategy is', 'strategies are')} in the table only."
    return Plot(traces, layout, note)


def _hover(strategy: str, phase: str, found: OverTrials) -> str:
    interval = f", 95 % interval {interval_text(found)}" if found.low is not None else ""
    return (
        f"<b>{plain(strategy)}</b> {phase}<br>{ms_text(found.median)}{interval}, "
        f"worst {ms_text(found.worst)} of {count_text(found.n, 'trial')}"
    )


def _bars(series: Series, orientation: str) -> Trace:
    return {
        "type": "bar",
        "orientation": orientation,
        "name": plain(series.label),
        "hoverinfo": "text",
        "textposition": "none",
        "marker": {"color": series.colour},
    }


def bandwidth_figure(found: Sequence[Recovery], name: str) -> Figure | None:
    """Bus bandwidth before the fault, with a rank less, and whole again, a bar for each strategy."""

    def stages(recovery: Recovery) -> _Stages:
        return {
            "before": recovery.before_GBs,
            "at n-1": recovery.during_GBs,
            "at n again": recovery.after_GBs,
        }

    alt = "Bus bandwidth before the fault, at one rank less, and after the replacement joined, by strategy"
    plots = _stage_plots(found, stages, "busbw (GB/s)", rate_text)
    return Figure(name, "Bandwidth", alt, "fault", _STAGES_PX, {ALWAYS: plots}) if plots else None


def pace_figure(found: Sequence[Recovery], name: str) -> Figure | None:
    """Steps that the job made in a second, where a rank was slow and then no more."""

    def stages(recovery: Recovery) -> _Stages:
        if recovery.slow_steps_per_s is None:
            return {}
        return {
            "before": recovery.before_steps_per_s,
            "with the slow rank": recovery.slow_steps_per_s,
            "at n-1": recovery.during_steps_per_s,
            "at n again": recovery.after_steps_per_s,
        }

    alt = "Steps a second before a rank became slow, while it was, without it, and with its replacement"
    plots = _stage_plots(found, stages, "steps a second", lambda pace: f"{pace:,.0f} steps a second")
    return Figure(name, "Pace of the job", alt, "fault", _STAGES_PX, {ALWAYS: plots}) if plots else None


def _stage_plots(
    found: Sequence[Recovery],
    stages: Callable[[Recovery], _Stages],
    title: str,
    text: Callable[[float], str],
) -> dict[str, Plot]:
    """A plot for each fault: groups of bars by stage, a bar for each strategy."""
    plots = {}
    for fault, own in by_fault(found).items():
        traces = _stage_traces(own[:MOST_STRATEGIES], stages, text)
        if traces:
            layout = {
                "barmode": "group",
                "yaxis": {"title": {"text": title}, "rangemode": "tozero"},
                "showlegend": True,
            }
            plots[fault] = Plot(traces, layout, "Bars: median over trials; lines: 95 % interval.")
    return plots


def _stage_traces(
    shown: Sequence[Recovery], stages: Callable[[Recovery], _Stages], text: Callable[[float], str]
) -> list[Trace]:
    traces = []
    for index, recovery in enumerate(shown):
        own = [(words, rate) for words, rate in stages(recovery).items() if rate is not None]
        if not own:
            continue
        series = numbered_series(index, name_of(recovery, shown))
        medians = [rate.median for _, rate in own]
        bars = error_bars(series, medians, [(rate.low, rate.high) for _, rate in own])
        traces.append(
            _bars(series, "v")
            | {
                "x": [words for words, _ in own],
                "y": rounded(medians),
                "error_y": bars | {"color": "var(--ink)"},
                "text": [
                    f"<b>{plain(series.label)}</b> {words}<br>{text(rate.median)}, "
                    f"{count_text(rate.n, 'trial')}"
                    for words, rate in own
                ],
            }
        )
    return traces


def seconds_text(seconds: float | None) -> str:
    """A time given in seconds, as the page prints times; a dash where not known."""
    return "–" if seconds is None else time_text(1e6 * seconds)
