"""Panel: the answer in words and one number, the gate, and what the numbers rest on."""

from __future__ import annotations

from typing import Any

from ncclbench.compare.between import FEWEST_LAUNCHES, FEWEST_NODES, NEEDS_LAUNCHES, hosts_of
from ncclbench.compare.confounded import confounded
from ncclbench.compare.overview import LARGE_BYTES, counted, counts, typical_ratio
from ncclbench.report.calibrations import calibration_lines, usable_calibration
from ncclbench.report.claims import GLYPHS, Summary, case_text, summarised
from ncclbench.report.effects import heat_legend, heat_table
from ncclbench.report.marks import comparison_steps
from ncclbench.report.model import Row
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, ratio_text
from ncclbench.report.versus.calibration import OF_ONE_JOB
from ncclbench.report.versus.model import Versus
from ncclbench.stats.imported import MEANS_ONLY
from ncclbench.units import count_text, format_bytes


def build(versus: Versus) -> Content:
    """Always there: a page without an answer is no report."""
    pairs = [summarised(base, new, rows) for (base, new), rows in versus.pairs.items()]
    tone, headline, details = _headline(versus, pairs)
    number, caption = _number(versus.rows, pairs)
    found = confounded(versus.comparison)
    # Quoted beside arms of one job only: then both sides are this run.
    calibration = usable_calibration(versus.comparison.base.runs[0].meta)
    return {
        "compared": _sentence(found.compared("→")),
        "confounded": _sentence(found.warning("→")),
        "tone": tone,
        "headline": headline,
        "number": number,
        "caption": caption,
        "details": details,
        "gate": versus.gate,
        "pairs": [_pair(pair, len(pairs) > 1) for pair in pairs],
        "about": _about(versus),
        "rests_on": _rests_on(versus),
        "calibration": _calibration_lines(versus),
        "parts": _parts(versus),
        "limit": format_bytes(LARGE_BYTES),
        "tables": [
            heat_table(f"{new} against {base}", rows, versus.families, lambda _: calibration)
            for (base, new), rows in versus.pairs.items()
        ],
        "glyphs": GLYPHS,
        "legend": heat_legend(versus.rows),
        "next_steps": [*_launch_steps(versus.rows), *comparison_steps(versus.rows)],
    }


PANEL: Panel[Versus] = Panel(
    name="verdict",
    order=0,
    title="Verdict",
    description="",
    build=build,
    template="versus-verdict.html",
)


def _headline(versus: Versus, pairs: list[Summary]) -> tuple[str, str, list[str]]:
    """Tone, the answer in a few words, and what explains it: the worst that was found decides."""
    rows = versus.rows
    found = counts(rows)
    total = count_text(len(rows), "case")
    regressions = sum(pair.regressions for pair in pairs)
    gains = sum(row["beyond_margin"] and (row["ratio"] or 1) < 1 for row in rows)
    details = []
    if versus.comparison.wrong:
        details = [f"In {', '.join(versus.comparison.wrong)}. Wrong data voids the speed."]
        return "bad", "WRONG data", details
    if regressions:
        tone, headline = "bad", f"Slower beyond the margin in {regressions:,} of {total}"
        if gains:
            headline += f", faster in {gains:,}"
    elif found["slower"]:
        tone, headline = "warn", f"Slower in {found['slower']:,} of {total}, none beyond the margin"
    elif found["unclear"] == len(rows):
        tone, headline, details = "warn", *_all_unclear(versus, total)
    elif found["faster"]:
        tone, headline = "good", f"Faster in {found['faster']:,} of {total}, slower in none"
    elif found["unclear"]:
        tone, headline = "good", f"No difference shown: the same in {found['same']:,} of {total}"
    else:
        tone, headline = "good", f"The same in all {total}" if len(rows) > 1 else "The same"
    if versus.gate is not None:
        tone = "bad" if not versus.gate.passed else tone if regressions == 0 else "warn"
    if len(pairs) == 1 and found["unclear"] < len(rows):
        details.append(f"{versus.title}: {counted(found)}.")
    return tone, headline, details


def _all_unclear(versus: Versus, total: str) -> tuple[str, list[str]]:
    """Where nothing is clear, the reader must know whether that is for want of launches or for noise."""
    doubts = {str(row["doubt"] or "") for row in versus.rows}
    if doubts == {MEANS_ONLY}:
        return "Ratios without a verdict: printed means", [
            "A printed mean does not tell how far off it would be another time."
        ]
    if all(NEEDS_LAUNCHES in doubt for doubt in doubts):
        base, new = (len(side.runs) for _, side in versus.sides)
        few = "one launch a side" if base == new == 1 else f"{base} against {new} launches"
        return f"Ratios without a verdict: {few}", [
            "Another launch of the same thing would differ too, and by how much is not known."
        ]
    headline = f"Unclear in all {total}" if len(versus.rows) > 1 else "Unclear"
    return headline, ["These measurements support no claim, neither of a difference nor of its absence."]


def _launch_steps(rows: list[Row]) -> list[dict[str, str]]:
    """What would give a verdict where launches are too few for one."""
    if not all(NEEDS_LAUNCHES in str(row["doubt"]) for row in rows):
        return []
    step = (
        f"sweep {FEWEST_LAUNCHES} times on each side under one --label, in turns, and compare the labels. "
        f"For a claim about kinds of nodes take {FEWEST_NODES} nodes of each."
    )
    return [{"what": "For a verdict", "step": step, "which": ""}]


def _about(versus: Versus) -> str:
    """What a claim would be about, where the sides ran on hosts of their own; "" elsewhere."""
    ours, theirs = ({hosts_of(run) for run in side.runs} for _, side in versus.sides)
    hosts = [frozenset[str]().union(*each) for each in (ours, theirs)]
    if not all(hosts) or hosts[0] & hosts[1]:
        return ""
    names = [list_text(sorted(each)) for each in hosts]
    if any(row["unit"] == "nodes" for row in versus.rows):
        return f"On kinds of nodes: {len(ours)} against {len(theirs)}, and each node counts once."
    of_two = all(len(each) == 1 for each in hosts)
    return f"On these {'two ' if of_two else ''}nodes, {names[0]} and {names[1]}, not on their kinds."


def _sentence(line: str | None) -> str:
    return "" if line is None else f"{line[0].upper()}{line[1:]}."


def _number(rows: list[Row], pairs: list[Summary]) -> tuple[str, str]:
    """The one number to remember, and what it is."""
    worst = max((pair.worst for pair in pairs if pair.worst), key=lambda row: row["ratio"], default=None)
    if worst is not None:
        return f"{ratio_text(worst['ratio'])} time", f"the worst regression: {case_text(worst)}"
    best = min((pair.best for pair in pairs if pair.best), key=lambda row: row["ratio"], default=None)
    if best is not None:
        return f"{ratio_text(best['ratio'])} time", f"the largest gain: {case_text(best)}"
    typical = typical_ratio(rows)
    if typical is None:
        return "", ""
    number = f"{ratio_text(typical)} time"
    # A direction is a claim: only where a row makes it.
    word = "slower" if typical > 1 else "faster"
    said = word if counts(rows)[word] and number != "1.000x time" else "new over base"
    over = f"typical over all {len(rows):,} cases" if len(rows) > 1 else ""
    return number, "; ".join(part for part in (said, over) if part)


def _pair(pair: Summary, titled: bool) -> dict[str, Any]:
    return {
        "title": pair.title,
        "titled": titled,
        "counts": pair.counts,
        "words": pair.words,
        "lines": pair.lines,
    }


def _rests_on(versus: Versus) -> str:
    """The unit of the comparison and how many there are."""
    row = versus.rows[0]
    statistics = ", ".join(dict.fromkeys(str(row["statistic"]) for row in versus.rows))
    unit = row["unit"]
    if unit == "epochs":
        most = max(int(row["epochs"]) for row in versus.rows)
        return (
            f"Compared: the {statistics} of each epoch, side by side in one job, {count_text(most, 'epoch')}."
        )
    base, new = (len(side.runs) for _, side in versus.sides)
    return (
        f"Compared: the {statistics}. The unit is the {'node' if unit == 'nodes' else 'launch'}: "
        f"{count_text(base, 'launch', 'launches')} of the base, {new} of the new side."
    )


def _calibration_lines(versus: Versus) -> list[str]:
    """What to quote beside the answer; beside launches with the side it is of."""
    if versus.is_one_job:
        return calibration_lines([versus.comparison.base.runs[0].meta])
    sides: dict[str, list[str]] = {}
    for word, side in versus.sides:
        for line in calibration_lines(run.meta for run in side.runs):
            sides.setdefault(line, []).append(word)
    lines = [line if len(words) > 1 else f"The {words[0]} side: {line}" for line, words in sides.items()]
    return [*lines, OF_ONE_JOB] if next(versus.calibrations, None) else lines


def _parts(versus: Versus) -> list[dict[str, Any]]:
    """Per pair, operation and mode: small and large messages apart."""
    parts = []
    for (_, new), rows in versus.pairs.items():
        grouped: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            grouped.setdefault((row["op"], row["mode"]), []).append(row)
        for (op, mode), own in grouped.items():
            small = [row for row in own if row["nbytes"] < LARGE_BYTES]
            large = [row for row in own if row["nbytes"] >= LARGE_BYTES]
            parts.append({"new": new, "op": op, "mode": mode, "spans": [_span(small), _span(large)]})
    return parts


def _span(rows: list[Row]) -> dict[str, str] | None:
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    typical = typical_ratio(rows)
    if not rows:
        return None
    return {
        "typical": "–" if typical is None else ratio_text(typical),
        "range": f"{ratio_text(min(ratios))} – {ratio_text(max(ratios))}" if ratios else "–",
        "verdicts": counted(counts(rows)),
    }
