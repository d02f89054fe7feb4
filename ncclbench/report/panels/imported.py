"""Panel: the files that an imported run was read from, what they lack, and what contradicted itself."""

from __future__ import annotations

from typing import Any

from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import three_digits
from ncclbench.units import count_text

# Of a file's problems; the others are in run.json.
_MOST_PROBLEMS = 12

_FROM = {
    "text": "from the text",
    "option": "as given",
    "header": "from the text",
    "derived": "derived from the numbers",
}


def build(report: Report) -> Content | None:
    """One block per file; nothing where every run was measured here."""
    files = [
        {"run": source.label, **_file(entry)}
        for source in report.sources
        for entry in (source.run.meta.get("imported") or {}).get("files") or []
    ]
    return {"files": files, "several_runs": len(report.sources) > 1} if files else None


PANEL = Panel(
    name="imported",
    order=62,
    title="Imported files",
    description="What other tools printed: means only, no intervals. What contradicts itself was left out.",
    build=build,
    template="imported.html",
)


def _file(entry: dict[str, Any]) -> dict[str, Any]:
    problems = entry.get("problems") or []
    return {
        "name": str(entry.get("file") or ""),
        "facts": [(name, text) for name, text in _facts(entry) if text],
        "problems": [_problem(problem) for problem in problems[:_MOST_PROBLEMS]],
        "more": max(0, len(problems) - _MOST_PROBLEMS),
    }


def _facts(entry: dict[str, Any]) -> list[tuple[str, str]]:
    made_by = [entry.get("format"), entry.get("version"), entry.get("library")]
    return [
        ("made by", ", ".join(str(word) for word in made_by if word)),
        ("collective", _known(entry, "op")),
        ("ranks", _known(entry, "nranks")),
        ("GPU", str(entry.get("gpu") or "")),
        ("rows", _rows(entry)),
        ("average busbw", _average(entry)),
        ("missing", ", ".join(str(part) for part in entry.get("missing") or [])),
        ("ended early", str(entry.get("failure") or "")),
    ]


def _known(entry: dict[str, Any], key: str) -> str:
    value, source = entry.get(key), entry.get(f"{key}_from")
    if value is None:
        return "not told"
    return f"{value} ({_FROM[source]})" if source in _FROM else str(value)


def _rows(entry: dict[str, Any]) -> str:
    taken, rejected = entry.get("rows_taken"), entry.get("rows_rejected")
    text = count_text(int(taken or 0), "line") + " taken"
    return f"{text}, {rejected} rejected" if rejected else text


def _average(entry: dict[str, Any]) -> str:
    average, fits = entry.get("average_busbw_GBs"), entry.get("average_fits")
    if not isinstance(average, int | float):
        return ""
    text = f"{three_digits(average)} GB/s"
    if fits is None:
        return text
    return f"{text}, fits the rows" if fits else f"{text}, is not that of these rows"


def _problem(problem: Any) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    line = problem.get("line")
    return f"line {line}: {problem.get('reason')}" if line is not None else str(problem.get("reason"))
