"""Panel: the answer in words and one number, the peaks, and what to do next."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ncclbench.hardware.reference import reference, share_text
from ncclbench.report.calibrations import calibration_lines
from ncclbench.report.claims import Summary, summarised
from ncclbench.report.endings import ending_of
from ncclbench.report.marks import comparison_steps, is_unstable, marked_rows, next_steps
from ncclbench.report.model import Report, Row, Source, good_rows, in_order
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.stopping import precision_lines
from ncclbench.report.text import list_text, rate_text, time_text
from ncclbench.stats.groups import wrong_where
from ncclbench.stats.imported import MEANS_ONLY
from ncclbench.stats.rows import NOT_MEASURED
from ncclbench.tables.modes import BANDWIDTH_MODES, LATENCY_MODES
from ncclbench.units import count_text, format_bytes


def build(report: Report) -> Content | None:
    """Always there where cases were measured: a page without an answer is no report."""
    if not report.sweeps:
        return None
    peaks = _peaks(report)
    return {
        "verdicts": [_verdict(source) for source in report.sweeps],
        "several_runs": len(report.sources) > 1,
        "peaks": peaks,
        "has_shares": any(peak["share"] for peak in peaks),
        "no_share": _no_share(peaks),
        "next_steps": next_steps(marked_rows(report)) + comparison_steps(report.comparisons),
    }


PANEL = Panel(
    name="verdict",
    order=0,
    title="Verdict",
    description="",
    build=build,
    template="verdict.html",
)


def _verdict(source: Source) -> dict[str, Any]:
    counts = _statuses(source)
    pairs = [summarised(base, new, rows) for (base, new), rows in _pairs(source).items()]
    tone, headline, details = _headline(source, counts)
    place = _place(source)
    if tone == "good" and len(pairs) == 1:
        # What was asked is how the arms compare; that all is well is said beside it.
        place = f"{headline}, {place}"
        headline = f"{pairs[0].title}: {pairs[0].words}"
    unstable = sum(is_unstable(row) for row in source.rows)
    if unstable:
        details.append(f"{unstable:,} of {count_text(counts['ok'], 'row')} unstable.")
    if source.run.plan.injection is not None:
        details.append(f"A slowdown was put into {source.run.plan.injection.arm} on purpose.")
    if source.run.is_imported:
        details.append(f"{MEANS_ONLY[0].upper()}{MEANS_ONLY[1:]}.")
    details += precision_lines(source.run)
    if tone == "good" and (any(pair.regressions for pair in pairs) or 2 * unstable > counts["ok"]):
        tone = "warn"
    return {
        "run": source.label,
        "tone": tone,
        "headline": headline,
        "place": place,
        "details": [line for line in details if line],
        "rest": _rest(counts),
        "pairs": [_pair(pair, titled=len(pairs) > 1 or pair.words not in headline) for pair in pairs],
        "calibration": calibration_lines([source.run.meta]) if pairs else [],
    }


def _headline(source: Source, counts: Counter[str]) -> tuple[str, str, list[str]]:
    """Tone, the answer in a few words, and what explains it: the worst that happened decides."""
    ending = ending_of(source.run, "the run failed")
    measured = f"{count_text(counts['ok'], 'row')} {'imported' if source.run.is_imported else 'measured'}"
    if counts["wrong"]:
        details = [_places(source, "wrong"), "Wrong data voids the speed."]
        return "bad", f"{count_text(counts['wrong'], 'row')} WRONG", details
    if counts["failed"]:
        return "bad", f"{count_text(counts['failed'], 'row')} failed", [_reasons(source, "failed")]
    if ending is not None or counts["not reached"]:
        return "warn", f"{measured}, {ending or 'incomplete'}", [str(source.run.meta.get("message") or "")]
    if not counts["ok"]:
        return "warn", "Nothing measured", [_reasons(source, "skipped"), _reasons(source, "unavailable")]
    return "good", f"{measured}, {_data(source)}", []


def _statuses(source: Source) -> Counter[str]:
    """Rows by status; those that the run never came to are no failures."""
    return Counter("not reached" if row["reason"] == NOT_MEASURED else row["status"] for row in source.rows)


def _data(source: Source) -> str:
    checked = [row["wrong"] is not None for row in source.rows if row["status"] == "ok"]
    if all(checked):
        return "data right"
    return "data right where checked" if any(checked) else "data not checked"


def _place(source: Source) -> str:
    """Where it ran: "on gloo, 2 ranks on 1 host"."""
    arms = list(dict.fromkeys(row["arm"] for row in source.rows))
    nranks = max((row["nranks"] for row in source.rows if row["nranks"]), default=source.run.plan.nranks)
    hosts = (source.run.meta.get("environment") or {}).get("hosts") or []
    where = f" on {count_text(len(hosts), 'host')}" if hosts else ""
    return f"on {list_text(arms)}, {count_text(nranks, 'rank')}{where}"


def _places(source: Source, status: str) -> str:
    rows = [row for row in source.rows if row["status"] == status]
    return list_text([_place_of(row) for row in rows])


def _place_of(row: Row) -> str:
    """The row in a few words, and of a cut which group it was: "all_reduce 1K on gloo"."""
    return f"{row['op']} {format_bytes(row['nbytes'])} on {row['arm']} {wrong_where(row)}".rstrip()


def _reasons(source: Source, status: str) -> str:
    rows = [row for row in source.rows if row["status"] == status]
    return list_text(list(dict.fromkeys(str(row["reason"]) for row in rows if row["reason"])), most=3)


def _rest(counts: Counter[str]) -> str:
    """What is not measured: "12 skipped, 24 unavailable"."""
    statuses = ("wrong", "failed", "unavailable", "skipped", "not reached")
    return ", ".join(f"{counts[status]:,} {status}" for status in statuses if counts[status])


def _pairs(source: Source) -> dict[tuple[str, str], list[Row]]:
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in source.comparisons:
        pairs.setdefault((row["base"], row["new"]), []).append(row)
    return pairs


def _pair(pair: Summary, titled: bool) -> dict[str, Any]:
    return {
        "title": pair.title,
        "titled": titled,
        "counts": pair.counts,
        "words": pair.words,
        "lines": pair.lines,
    }


def _peaks(report: Report) -> list[dict[str, str]]:
    """Per operation and series: the largest busbw and the smallest latency, each with its size.

    Of the busbw also ``share``, what part of the hardware's peak it is, or ``no_share``, why that is unknown.
    """
    grouped: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for row in good_rows(report.rows):
        grouped.setdefault(row["op"], {}).setdefault((row["run"], row["arm"]), []).append(row)
    peaks = []
    for op, (run, arm), rows in ((op, *entry) for op, arms in grouped.items() for entry in arms.items()):
        fast = _in_best_mode([row for row in rows if row["busbw_GBs"]], BANDWIDTH_MODES)
        quick = _in_best_mode(rows, LATENCY_MODES)
        peak = max(fast, key=lambda row: float(row["busbw_GBs"]), default=None)
        least = min(quick, key=lambda row: float(row["median_us"]))
        peaks.append(
            {
                "op": op,
                "series": report.series[run, arm].label,
                "colour": report.series[run, arm].colour,
                "rate": "–" if peak is None else rate_text(peak["busbw_GBs"]),
                "rate_at": "" if peak is None else _at(peak),
                # Where no bandwidth is above 0, that has a reason too.
                **_share(report, peak or next((row for row in rows if row["busbw_GBs"] is not None), None)),
                "time": time_text(least["median_us"]),
                "time_at": _at(least),
            }
        )
    return peaks


def _share(report: Report, peak: Row | None) -> dict[str, str]:
    if peak is None:
        return {"share": "", "no_share": ""}
    machine = report.machines[peak["run"]]
    found = reference(peak, machine)
    text = share_text(peak, machine) or ""
    stated = found.expected.text if found.expected else ""
    if found.peak_GBs is None:
        return {"share": stated, "no_share": found.why_none}
    return {"share": "; ".join(filter(None, (text, stated))), "no_share": ""}


def _no_share(peaks: list[dict[str, str]]) -> str:
    """Why bandwidths have no share of a peak, each reason once with what it is of."""
    reasons: dict[str, list[str]] = {}
    for peak in peaks:
        if peak["no_share"]:
            reasons.setdefault(peak["no_share"], []).append(peak["op"])
    if len(reasons) == 1 and all(peak["no_share"] or peak["rate"] == "–" for peak in peaks):
        (only,) = reasons
        return f"No share of a hardware peak: {only}."
    said = [f"{list_text(list(dict.fromkeys(ops)))}: {reason}" for reason, ops in reasons.items()]
    return f"No share of a hardware peak for {'; '.join(said)}." if said else ""


def _in_best_mode(rows: list[Row], order: tuple[str, ...]) -> list[Row]:
    modes = in_order({row["mode"] for row in rows}, order)
    return [row for row in rows if row["mode"] == modes[0]]


def _at(row: Row) -> str:
    """The size is of bytes, which "8 float32" would not say."""
    return f"{format_bytes(row['nbytes'])} bytes, {row['dtype']}"
