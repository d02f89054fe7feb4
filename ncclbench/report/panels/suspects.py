"""Panel: who is slow, in words, with the evidence; what was looked at, and what was not."""

from __future__ import annotations

from typing import Any

from ncclbench.attribution.links import FALSE_NAMES
from ncclbench.attribution.model import Suspect
from ncclbench.attribution.supporting import late_ranks
from ncclbench.attribution.words import name_of
from ncclbench.report.endings import ending_of
from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.probed import alone_figure, arrivals_figure, busbw_GBs, groups_figure
from ncclbench.report.searched import Searched
from ncclbench.report.text import list_text, rate_text, time_text
from ncclbench.units import count_text, format_percent

_TONES = {"none": "good", "unclear": "warn"}
# Ranks that come last, and pairs with wrong data, are named up to so many.
_MOST_NAMED = 3


def build(report: Report) -> Content | None:
    """One block per search; nothing for other runs."""
    if not report.searches:
        return None
    blocks = [_block(source, search, number) for number, (source, search) in enumerate(report.searches)]
    return {
        "blocks": blocks,
        "figures": [figure for block in blocks for figure in block["figures"]],
        "several_runs": len(report.sources) > 1,
    }


PANEL = Panel(
    name="suspects",
    order=-5,
    title="Who is slow",
    description="",
    build=build,
    template="suspects.html",
)


def _block(source: Source, search: Searched, number: int) -> dict[str, Any]:
    answer = search.answer
    figures = (
        alone_figure(search, f"alone-{number}"),
        arrivals_figure(search, f"arrivals-{number}"),
        groups_figure(search, f"groups-{number}"),
    )
    facts = [
        ("hosts to drain", ", ".join(answer.drain_hosts)),
        ("looked at", answer.looked_at),
        ("not looked at", answer.not_looked_at),
        ("who comes last", _last(search)),
        ("all to all", _all_to_all(search)),
    ]
    tone, headline, notes = _headline(source, search)
    return {
        "run": source.label,
        "tone": tone,
        "headline": headline,
        "message": f"{answer.message[0].upper()}{answer.message[1:]}.",
        "place": _place(source, search),
        "notes": notes,
        "suspects": [_suspect(one) for one in answer.suspects],
        "facts": [(name, text) for name, text in facts if text],
        "figures": [figure for figure in figures if figure is not None],
    }


def _headline(source: Source, search: Searched) -> tuple[str, str, list[str]]:
    """Tone, the answer in a few words, and what comes before it."""
    answer = search.answer
    tone = _TONES.get(answer.verdict, "bad")
    if answer.suspects:
        headline = f"Slow: {list_text([name_of(one) for one in answer.suspects])}"
    else:
        headline = "It cannot be told who is slow" if answer.verdict == "unclear" else "Nobody stands out"
        tone = "warn" if answer.is_blind else tone
    if not source.run.probes:
        tone, headline = "warn", "Nothing measured"
    notes = []
    ending = ending_of(source.run, "the search failed")
    if ending is not None:
        # An answer from a part of the search is one, but no all-clear.
        tone = "warn" if tone == "good" else tone
        headline = f"{headline}, {ending}"
        notes.append(str(source.run.meta.get("message") or ""))
    if search.wrong:
        pairs = [f"{src} → {dst}" for src, dst in search.wrong]
        tone, headline = "bad", f"WRONG DATA between {list_text(pairs, _MOST_NAMED)}; {headline}"
        notes.append("Wrong data voids the speed: of these pairs none is counted.")
    return tone, headline, [note for note in notes if note]


def _place(source: Source, search: Searched) -> str:
    """What was done and where: "matrix on gloo, 64 ranks on 8 hosts"."""
    arms = list_text([arm.id for arm in source.run.plan.arms])
    hosts = count_text(len(search.places.hosts), "host")
    return f"{source.run.meta['kind']} on {arms}, {count_text(len(search.places.host_of), 'rank')} on {hosts}"


def _suspect(suspect: Suspect) -> dict[str, str]:
    low, high = suspect.ci_low, suspect.ci_high
    return {
        "who": name_of(suspect),
        "factor": f"{suspect.ratio:.2f}x",
        "interval": "–" if low is None or high is None else f"{low:.2f} – {high:.2f}x",
        "evidence": suspect.evidence,
    }


def _last(search: Searched) -> str:
    """Who comes last more often than chance, in a loop without a fence."""
    iterations = sum(one.iterations for one in search.evidence.arrivals)
    if not iterations:
        return ""
    late = sorted(late_ranks(search.evidence, FALSE_NAMES), key=lambda one: -one.last)
    chance = f"chance {format_percent(1 / len(search.places.host_of))}"
    if not late:
        return f"nobody in particular, in {iterations:,} iterations ({chance})"
    said = [
        f"{search.rank_text(one.rank)} in {one.last:,} of {iterations:,} iterations "
        f"({100 * one.interval[0]:.0f} to {100 * one.interval[1]:.0f} %; {chance}), "
        f"{_by(one.lateness_us)}"
        for one in late[:_MOST_NAMED]
    ]
    more = [f"and {len(late) - _MOST_NAMED} more"] if len(late) > _MOST_NAMED else []
    return "; ".join([*said, *more])


def _by(lateness_us: float) -> str:
    return f"by {time_text(lateness_us)} in the middle" if lateness_us > 0 else "mostly no later than others"


def _all_to_all(search: Searched) -> str:
    for group in search.evidence.groups:
        if group.op == "all_to_all" and (rate := busbw_GBs(group)) is not None:
            return f"{rate_text(rate)} busbw on {count_text(len(group.ranks), 'rank')}"
    return ""
