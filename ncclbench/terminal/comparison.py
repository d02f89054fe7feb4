"""What a person sees of a comparison: what changed, the table, what was left out, and the answer last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from ncclbench.compare.confounded import confounded
from ncclbench.compare.gate import Gate, GateResult
from ncclbench.compare.launches import Comparison
from ncclbench.compare.overview import LARGE_BYTES, by_collective, counted, counts, typical_ratio
from ncclbench.compare.sides import Side
from ncclbench.environment.against import side_text
from ncclbench.terminal.columns import aligned, commented, headed, padded
from ncclbench.terminal.streams import coloured, one_line
from ncclbench.terminal.verdicts import case_name, verdict_words, why_unclear
from ncclbench.units import count_text, format_bytes, format_us, noun_text

Row = Mapping[str, Any]

# Of a fact's text; the rest is in --json.
_WIDEST = 48
_CHANGES_SHOWN = 20
_NOTES_SHOWN = 12
_COLOURS = {"slower": "red", "unclear": "yellow"}
_HEADS = ("size", "BASE us", "NEW us", "NEW/BASE", "95 % interval", "verdict")
_WIDTHS = (8, 8, 8, 8, 16, 0)
# Of these the text stands to the left.
_LEFT = (4, 5)
# BASE or NEW.
_SIDE_WIDTH = 4


def comparison_lines(comparison: Comparison, stream: TextIO | None) -> list[str]:
    """Everything but the answer."""
    lines = [*_side_lines("BASE", comparison.base), *_side_lines("NEW", comparison.new)]
    if comparison.base.runs[0] is comparison.new.runs[0]:
        lines += ["#", "# both were measured in one job, in turns"]
    else:
        lines += ["#", *change_lines(comparison.differences, "BASE", "NEW")]
    footnotes = _Footnotes(comparison.rows)
    for title, rows in _tables(comparison.rows).items():
        lines += ["#", title, *_table(rows, footnotes, stream)]
    lines += footnotes.lines()
    if comparison.unpaired:
        lines += ["#", "# not compared", *_unpaired_lines(comparison.unpaired)]
    notes = comparison.notes
    if notes:
        lines += ["#", *(f"# note: {one_line(note)}" for note in notes[:_NOTES_SHOWN])]
        lines += [f"# and {len(notes) - _NOTES_SHOWN} more notes"] if len(notes) > _NOTES_SHOWN else []
    found = confounded(comparison)
    told = [f"# {one_line(text)}" for text in (found.compared(), found.warning()) if text]
    return [*lines, "#", *_collective_lines(comparison.rows), *(["#", *told] if told else [])]


def change_lines(changes: Sequence[Mapping[str, Any]], base: str, new: str) -> list[str]:
    """A table of what changed between two environments, as ``environment.against.changes`` has it."""
    if not changes:
        return ["# what changed: nothing that is recorded"]
    cells = [
        (str(change["what"]), _cut(side_text(change, "base")), _cut(side_text(change, "new")))
        for change in changes[:_CHANGES_SHOWN]
    ]
    cells.insert(0, ("what changed", base, new))
    lines = headed(aligned(cells, left=None))
    more = len(changes) - _CHANGES_SHOWN
    return [*lines, f"  and {more} more"] if more > 0 else lines


def conclusion(comparison: Comparison) -> str:
    """The answer in one line of words."""
    rows = comparison.rows
    found = counts(rows)
    many = count_text(len(rows), "case")
    if found["unclear"] == len(rows):
        typical = typical_ratio(rows)
        seen = f" (typically {ratio_words(typical, found)})" if typical is not None else ""
        return f"no verdict on {many}{seen}: {why_unclear(rows)}"
    parts = [f"{many}: {counted(found)}"]
    for word, worst in (("slower", max), ("faster", min)):
        known = [row for row in rows if row["verdict"] == word]
        if known:
            extreme = worst(known, key=lambda row: float(row["ratio"]))
            beyond = sum(bool(row["beyond_margin"]) for row in known)
            parts.append(
                f"most {word}: {case_name(extreme)} at {extreme['ratio']:.2f}x time"
                + (f" ({_margin_words(word, beyond)})" if beyond else "")
            )
    return "; ".join(parts)


def gate_line(result: GateResult, gate: Gate) -> str:
    """What the gate says, and because of what."""
    counts_as = f"(which counts as {gate.unclear})"
    reasons = [
        f"{len(rows)} {word}, the first {case_name(rows[0])}"
        for rows, word in (
            (result.slower, f"slower than {gate.limit:g}x time"),
            (result.unclear, f"unclear {counts_as}"),
        )
        if rows
    ]
    if result.unseen:
        first = result.unseen[0]
        named = "" if first["case"] == "all" else f"{first['case']}, "
        reasons.append(f"{len(result.unseen)} not compared {counts_as}, the first: {named}{first['reason']}")
    told = "; ".join(reasons) or f"no case is slower than {gate.limit:g}x time"
    return one_line(f"gate {result.answer.upper()}: {told}")


def ratio_words(ratio: float, found: Mapping[str, int]) -> str:
    """A ratio of times; "1.08x time, slower" where a verdict among those it is of says so."""
    word = "slower" if ratio > 1 else "faster"
    text = f"{ratio:.2f}x time"
    return f"{text}, {word}" if found[word] and text != "1.00x time" else text


def _margin_words(word: str, beyond: int) -> str:
    """Only beyond the margin is slower a regression."""
    kind = "regression" if word == "slower" else "improvement"
    return f"{beyond} beyond the margin: {noun_text(beyond, kind)}"


def _side_lines(name: str, side: Side) -> list[str]:
    run = side.runs[0]
    hosts = (run.meta.get("environment") or {}).get("hosts") or []
    names = ", ".join(str(host.get("name")) for host in hosts[:3]) + (" .." if len(hosts) > 3 else "")
    folder = str(run.folder) if side.is_one_run else ""
    began = str(run.meta.get("created") or "")[:16].replace("T", " ")
    where = f"{count_text(run.plan.nranks, 'rank')} on {names}"
    told = [side.label, folder, began, where, " and ".join(side.arms)]
    line = padded((name, one_line(", ".join(part for part in told if part))), (_SIDE_WIDTH, 0), left=None)
    return [f"# {line}"]


def _tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        words = [row["op"], row["dtype"], row["redop"] or "", row["mode"]]
        words += [row["topology"]] if row["topology"] != "world" else []
        words += ["async"] if row["async"] else []
        words += [] if row["root"] in (None, 0) else [f"root {row['root']}"]
        form = "in place" if row["in_place"] else "out of place"
        case = f"{' '.join(word for word in words if word)} ({form})"
        title = f"# {case}: {row['statistic']} of time, {row['base']} -> {row['new']}"
        tables.setdefault(one_line(title), []).append(row)
    return tables


class _Footnotes:
    """What is noted on several rows, said once below the tables."""

    def __init__(self, rows: Sequence[Row]) -> None:
        parts = Counter(part for row in rows for part in _parts(row))
        self._numbers = {
            part: number
            for number, part in enumerate((part for part, count in parts.items() if count > 1), 1)
        }

    def words(self, row: Row) -> list[str]:
        """The notes of a row, those that are said below as their numbers."""
        return [f"[{self._numbers[part]}]" if part in self._numbers else part for part in _parts(row)]

    def lines(self) -> list[str]:
        """What the numbers stand for."""
        return (
            ["#", *(f"# [{number}] {part}" for part, number in self._numbers.items())]
            if self._numbers
            else []
        )


def _parts(row: Row) -> list[str]:
    note = row.get("note")
    return [one_line(part) for part in str(note).split("; ")] if note else []


def _table(rows: Sequence[Row], footnotes: _Footnotes, stream: TextIO | None) -> list[str]:
    lines = [commented(padded(_HEADS, _WIDTHS, _LEFT))]
    for row in rows:
        interval = "" if row["ci_low"] is None else f"[{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}x"
        numbers = (format_bytes(row["nbytes"]), _us(row["base_us"]), _us(row["new_us"]))
        verdict = ", ".join([*verdict_words(row), *footnotes.words(row)]).replace(", [", " [")
        text = padded((*numbers, ratio, interval, verdict), _WIDTHS, _LEFT)
        colour = _COLOURS.get(row["verdict"])
        lines.append(coloured(text, colour, stream) if colour else text)
    return lines


def _collective_lines(rows: Sequence[Row]) -> list[str]:
    entries = by_collective(rows)
    classes = {"small": f"under {format_bytes(LARGE_BYTES)}", "large": f"{format_bytes(LARGE_BYTES)} and up"}
    names = [f"{entry['op']} {entry['mode']}, {classes[entry['messages']]}" for entry in entries]
    several = len({(entry["base"], entry["new"]) for entry in entries}) > 1
    if several:
        names = [f"{name}, {entry['new']}" for name, entry in zip(names, entries, strict=True)]
    cells = []
    for name, entry in zip(names, entries, strict=True):
        typical = "no ratio" if entry["ratio"] is None else f"{ratio_words(entry['ratio'], entry)} on average"
        cells.append((one_line(name), f"{typical}: {counted(entry)}"))
    return [f"# {line}" for line in aligned(cells, left=None)]


def _unpaired_lines(unpaired: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per reason: how many cases, and the first of them."""
    by_reason: dict[str, list[str]] = {}
    for entry in unpaired:
        by_reason.setdefault(str(entry["reason"]), []).append(str(entry["case"]))
    lines = []
    for reason, cases in by_reason.items():
        first = "" if cases[0] == "all" else f" ({cases[0]}{' ..' if len(cases) > 1 else ''})"
        number = "" if cases[0] == "all" else f"{count_text(len(cases), 'case')}: "
        lines.append(f"  {number}{one_line(reason)}{first}")
    return lines


def _us(time_us: float | None) -> str:
    return "-" if time_us is None else format_us(time_us)


def _cut(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 2]}.."
