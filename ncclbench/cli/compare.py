"""``ncclbench compare``: two runs, two arms or two sets of launches, and a gate for scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import SeveralCommand, option, several_option, under
from ncclbench.cli.files import free_file
from ncclbench.cli.options import (
    exit_zero_option,
    json_option,
)
from ncclbench.cli.output import document, emit_json
from ncclbench.cli.redaction import checked, redact_option, shown_path, tell_owner
from ncclbench.compare.gate import Gate, parse_limit
from ncclbench.errors import EXIT_BAD_ANSWER, EXIT_OK, RequestError
from ncclbench.tables.statistics import STATISTICS
from ncclbench.terminal.streams import coloured, one_line, show, write

if TYPE_CHECKING:
    from ncclbench.compare.gate import GateResult
    from ncclbench.compare.launches import Comparison
    from ncclbench.compare.sides import Side
    from ncclbench.report.redact import Redactor

_SIDES = "What is compared"


class _Sides(SeveralCommand):
    several = ("--base", "--new")


@click.command(
    "compare",
    cls=_Sides,
    epilog="Example: ncclbench compare results/monday results/tuesday --fail-on slower:5%",
)
@click.argument(
    "runs",
    nargs=-1,
    metavar="[BASE NEW]",
    callback=lambda ctx, parameter, words: [values.path(word, "RUN") for word in words],
)
@several_option(
    "--base",
    _SIDES,
    "RUN...",
    "Launches of the base side: run folders, RUN:arm, or a label of runs in results/.",
    values.path,
)
@several_option("--new", _SIDES, "RUN...", "Launches of the new side.", values.path)
@under(
    _SIDES,
    option(
        "--baseline",
        metavar="last",
        parse=values.one_of(("last",)),
        help="The base is the last good run beside NEW: complete, right, not slowed, same hosts and ranks.",
    ),
    option(
        "--statistic",
        metavar="|".join(STATISTICS),
        otherwise="what the runs fixed",
        parse=values.one_of(STATISTICS),
        help="What is compared.",
    ),
    option(
        "--margin",
        metavar="MARGIN",
        otherwise="the base's",
        parse=values.margin,
        help="Differences up to it do not matter; the larger of the two counts.",
    ),
)
@under(
    "What is written",
    option("--out", metavar="FILE", parse=values.path, help="One HTML page about the comparison."),
    option("--csv", metavar="FILE", parse=values.path, help="The rows as CSV."),
)
@redact_option
@under(
    "How it answers",
    option(
        "--fail-on",
        metavar="slower:PERCENT",
        parse=parse_limit,
        help="End with 1 where a case is shown to be slower by more.",
    ),
    option(
        "--unclear",
        metavar="pass|fail",
        default="fail",
        parse=values.one_of(("pass", "fail")),
        help="What a case counts as of which --fail-on cannot tell.",
    ),
)
@json_option
@exit_zero_option
def command(**params: Any) -> int:
    """Compare two runs, two arms (RUN:arm) or two sets of launches: ratios of times, with verdicts.

    Every run is one launch, and a verdict needs 4 on each side. Two arms of one run are compared epoch by
    epoch.
    """
    from ncclbench.compare.gate import judge_gate
    from ncclbench.compare.launches import compare_sides
    from ncclbench.compare.sides import Opener
    from ncclbench.report.redact import Redactor
    from ncclbench.stats.intervals import Margin
    from ncclbench.terminal.comparison import conclusion, gate_line

    page, table = _file(params["out"], "--out"), _file(params["csv"], "--csv")
    base_words, new_words = _words(params)
    opener = Opener()
    if params["baseline"]:
        base_words = [opener.last_good(new_words)]
    base, new = opener.sides(base_words, new_words)
    redactor = None
    if params["redact"]:
        redactor = Redactor(list({id(run): run for run in (*base.runs, *new.runs)}.values()))
        base, new = redactor.side(base), redactor.side(new)
    margin = Margin(*params["margin"]) if params["margin"] else None
    comparison = compare_sides(base, new, statistic=params["statistic"], margin=margin)
    if params["baseline"]:
        comparison.notes.insert(0, f"--baseline last took {base.runs[0].folder}")
    gate = Gate(params["fail_on"], params["unclear"]) if params["fail_on"] else None
    result = judge_gate(comparison.rows, gate, comparison.unpaired, bool(comparison.wrong)) if gate else None
    held = gate_line(result, gate) if gate and result else None
    answer = [line for line in (_wrong_words(comparison), conclusion(comparison), held) if line]
    if table is not None:
        _write_table(comparison, table)
    if page is not None:
        _write_page(comparison, page, result, held, redactor)
    tell_owner(redactor)
    _answer(comparison, result, answer, params["as_json"], {"report": page, "csv": table}, redactor)
    if comparison.wrong:
        return EXIT_BAD_ANSWER
    bad = result is not None and result.answer == "fail"
    return EXIT_BAD_ANSWER if bad and not params["exit_zero"] else EXIT_OK


def _file(typed: str | None, option: str) -> Path | None:
    # A link is followed: what it points to is replaced, not the link.
    return None if typed is None else free_file(Path(os.path.realpath(typed)), f"name a file with {option}")


def _words(params: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What names the base and what the new side.

    Raises:
        RequestError: one of them is missing, or named in two ways.
    """
    runs, base, new = params["runs"], params["base"], params["new"]
    if params["baseline"] and base:
        raise RequestError("--baseline and --base both name the base: give one of them")
    wanted = (not base and not params["baseline"]) + (not new)
    if len(runs) != wanted:
        named = " ".join(["BASE"] * (not base and not params["baseline"]) + ["NEW"] * (not new))
        if wanted == 2:
            mend = "name two, or several a side with --base R1 R2 --new R3 R4"
        elif wanted == 1:
            mend = f"name one run as {named}" + ("" if new else ", or several with --new")
        else:
            mend = "leave away what stands before them"
        raise RequestError(f"compare takes {named or 'no runs'} here, not {len(runs)} runs: {mend}")
    words = list(runs)
    if not base and not params["baseline"]:
        base = [words.pop(0)]
    return list(base), list(new) or words


def _wrong_words(comparison: Comparison) -> str | None:
    if not comparison.wrong:
        return None
    return f"WRONG DATA in {', '.join(comparison.wrong)}: their times mean nothing"


def _write_table(comparison: Comparison, file: Path) -> None:
    from ncclbench.compare.overview import flat
    from ncclbench.stats.rows import write_summary_csv

    write_summary_csv([flat(row) for row in comparison.rows], file)


def _write_page(
    comparison: Comparison,
    file: Path,
    result: GateResult | None,
    held: str | None,
    redactor: Redactor | None,
) -> None:
    from ncclbench.report.build import write_comparison
    from ncclbench.report.versus.model import Gate as Shown

    gate = (
        Shown(result.answer == "pass", held.removeprefix(f"gate {result.answer.upper()}: "))
        if result is not None and held is not None
        else None
    )
    write_comparison(comparison, file, gate, redactor)


def _answer(
    comparison: Comparison,
    result: GateResult | None,
    answer: Sequence[str],
    as_json: bool,
    files: Mapping[str, Path | None],
    redactor: Redactor | None,
) -> None:
    from ncclbench.compare.confounded import confounded
    from ncclbench.compare.fits import fit_pairs
    from ncclbench.compare.overview import by_collective
    from ncclbench.terminal.comparison import comparison_lines

    bad = bool(comparison.wrong) or (result is not None and result.answer == "fail")
    runs = [*comparison.base.runs, *comparison.new.runs]
    for run in {id(run): run for run in runs}.values():
        for problem in run.problems:
            show(f"ncclbench: {one_line(f'{run.folder}: {problem}')}\n", sys.stderr)
    if as_json:
        rest = {
            "rows": comparison.rows,
            "collectives": by_collective(comparison.rows),
            "fits": [entry for pair in fit_pairs(comparison) for entry in pair.to_json()],
            "differences": comparison.differences,
            **confounded(comparison).to_json(),
            "gate": result.answer if result else None,
            "unpaired": comparison.unpaired,
            "notes": comparison.notes,
            "wrong": comparison.wrong,
            "base": _side(comparison.base),
            "new": _side(comparison.new),
            **{name: shown_path(file, redactor) for name, file in files.items()},
        }
        emit_json(checked(document("compare", ok=not bad, message="; ".join(answer), rest=rest), redactor))
        return
    lines = comparison_lines(comparison, sys.stdout)
    lines += [f"{name}: {file}" for name, file in files.items() if file is not None]
    lines += ["#", *(coloured(line, "red" if bad else "bold", sys.stdout) for line in answer)]
    write("\n".join(lines) + "\n", sys.stdout)


def _side(side: Side) -> dict[str, Any]:
    return {"label": side.label, "arm": side.arm, "runs": [run.folder for run in side.runs]}
