"""A draft judged: which collective on how many ranks, which rows are true, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncclbench.importing import nccl_judge as judge
from ncclbench.importing.model import Problem, Section
from ncclbench.importing.nccl_check import Checks, contradiction
from ncclbench.importing.nccl_draft import Draft
from ncclbench.importing.nccl_judge import TRAITS, Cell
from ncclbench.importing.nccl_layout import Columns, NotARow, Row, split
from ncclbench.importing.nccl_printed import Known, OpFrom, RanksFrom, printed
from ncclbench.importing.nccl_words import op_in_name
from ncclbench.importing.physics import figure
from ncclbench.store.printed import OverRanks

# Of each kind of problem so many are told line by line, the rest is counted.
_TOLD_EACH = 20


@dataclass(slots=True)
class Notes:
    """Problems as they are found: of a kind that never ends the first ones, and how many more there were."""

    told: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, line: int | None, reason: str, kind: str = "") -> None:
        """Tell a problem; those of one ``kind`` are limited."""
        if kind:
            self.counts[kind] += 1
            if self.counts[kind] > _TOLD_EACH:
                return
        self.told.append(Problem(line, reason))

    def finish(self) -> list[Problem]:
        """All of them, in the order of the lines; those of the whole come last."""
        more = [
            Problem(None, f"{count - _TOLD_EACH:,} more lines: {kind}")
            for kind, count in self.counts.items()
            if count > _TOLD_EACH
        ]
        return sorted([*self.told, *more], key=lambda problem: (problem.line is None, problem.line or 0))


def section_of(draft: Draft, option: str | None, file: Path, notes: Notes) -> tuple[Section, int]:
    """The section of a draft, and how many of its rows were rejected.

    Args:
        option: the collective as the user gave it.
        file: whose name may hint at the collective.
    """
    section = Section(
        draft.tool,
        draft.line,
        version=draft.version,
        nccl=draft.nccl,
        runtime=draft.runtime,
        devices=draft.devices,
        settings=draft.settings,
        environment=draft.environment,
        out_of_bounds=draft.out_of_bounds,
        failure=draft.failure,
    )
    notes.told += draft.problems
    if draft.mixed is not None:
        section.devices, draft.devices = [], []
    rows, columns, rejected = _rows(draft, notes)
    cells = judge.cells_of(rows)
    if columns is not None and columns.is_cpu_time:
        cells = []
        notes.add(draft.line, "the time column is CPU time (-C 1): times are size over algbw", "cputime")
    listed = _listed_ranks(draft, notes)
    op, op_from, ops = _op(draft, option, rows, columns, cells, listed, notes)
    if op is None and rows:
        hint = op_in_name(file)
        more = f": the file's name speaks of {hint}, which is only a hint" if hint else ""
        notes.add(
            draft.line, f"neither text nor figures tell the collective{more}; give it with --op", "no op"
        )
    nranks, nranks_from = _ranks(draft, ops, rows, cells, listed, notes)
    is_guess = op is None and columns is not None and not columns.printed
    if is_guess and nranks_from == "derived" and listed is not None:
        nranks, nranks_from = None, None  # neither the list nor columns without a header are to be believed
    equal_ranks = judge.equal_bandwidths(cells, nranks)
    is_cpu_time = columns is not None and columns.is_cpu_time
    checks = Checks(frozenset(ops), nranks, equal_ranks, is_cpu_time)
    if checks.equal_ranks is not None and op != "hypercube":
        notes.add(
            draft.line,
            "algbw equals busbw: the formula before June 2020, by which algbw already held (n-1)/n; "
            "busbw is as today, algbw as printed is not size over time",
            "old formula",
        )
    taken: list[Row] = []
    usual_root = judge.usual_root(rows)
    for row in rows:
        reason = contradiction(row, checks)
        if reason is not None:
            rejected += 1
            notes.add(row.line, f"row rejected: {reason}", "rows that contradict themselves")
        else:
            taken.append(row)
            for kind, remark in checks.remarks(row):
                notes.add(row.line, remark, kind)
            if usual_root is not None and row.root != usual_root:
                notes.add(row.line, f"root {row.root}, and {usual_root} in all other rows", "roots")
    section.nranks = nranks
    section.nhosts, section.ranks_per_host = _spread(draft, nranks)
    over_ranks = _over_ranks(draft, op, notes) if taken else "mean"
    section.rows = [
        printed(row, half, draft, checks, Known(op, op_from, nranks_from, over_ranks))
        for row in taken
        for half in row.halves
    ]
    section.row_lines = len(taken)
    _footer(draft, section, taken, notes)
    section.missing = _missing(draft, columns)
    return section, rejected


def _rows(draft: Draft, notes: Notes) -> tuple[list[Row], Columns | None, int]:
    """Rows by the header's columns, or by those that the rows themselves show."""
    columns = draft.columns
    if draft.mixed is not None:
        for line, _ in draft.rows:
            notes.add(
                line,
                f"row rejected: two tests write into each other ({draft.mixed}): "
                "label their lines (pdsh, srun --label), or write a file each",
                "rows of tests that write into each other",
            )
        return [], columns, len(draft.rows)
    rows, bad = _split(draft, columns) if columns is not None else ([], [])
    if draft.rows and not rows:
        found = judge.layout_of(draft.rows)
        if found is not None:
            if columns is not None:
                notes.add(draft.line, "no row fits the header: columns are decided by the rows", "columns")
            elif not draft.problems:
                notes.add(draft.rows[0][0], "no header: columns are decided by the rows", "columns")
            columns = found
            rows, bad = _split(draft, columns)
        elif columns is None:
            bad = [(line, "no header, and no layout in which it is true") for line, _ in draft.rows]
    for line, reason in bad:
        notes.add(line, f"row rejected: {reason}", "rows that hold no numbers or not all")
    for row in rows:
        if row.line in draft.joined:
            notes.add(
                row.line, "row was broken in two by other output and is put together", "rows put together"
            )
    return rows, columns, len(bad)


def _split(draft: Draft, columns: Columns | None) -> tuple[list[Row], list[tuple[int, str]]]:
    assert columns is not None
    rows, bad = [], []
    for line, tokens in draft.rows:
        try:
            rows.append(split(line, tokens, columns))
        except NotARow as reason:
            bad.append((line, str(reason)))
    return rows, bad


def _listed_ranks(draft: Draft, notes: Notes) -> int | None:
    """Ranks by the device lines: the highest plus one, as lists leave some out; of one group of several."""
    if not draft.devices:
        return None
    ranks = {line.rank for line in draft.devices}
    most = max(ranks) + 1
    if len(draft.groups) > 1:
        sizes = set(draft.groups.values())
        return sizes.pop() if len(sizes) == 1 else None
    if len(ranks) < most:
        notes.add(draft.line, f"{len(ranks)} of {most} devices are listed", "devices")
    if most % _per_process(draft):
        reason = f"devices up to rank {most - 1} are listed, though each process drives {_per_process(draft)}"
        notes.add(draft.line, reason, "devices")
        return None
    return most


def _spread(draft: Draft, nranks: int | None) -> tuple[int | None, int | None]:
    """Hosts, and ranks on the one with the most; None where not every rank is listed with its host."""
    ranks_on = Counter(line.host for line in draft.devices)
    is_whole = nranks is not None and {line.rank for line in draft.devices} == set(range(nranks))
    if not is_whole or None in ranks_on or len(draft.groups) > 1:
        return None, None
    return len(ranks_on), max(ranks_on.values())


def _over_ranks(draft: Draft, op: str | None, notes: Notes) -> OverRanks:
    """What the printed times are of the ranks', as the command above the table asks (``-a``)."""
    asked = draft.asked.get(op, {"mean"}) if op else set().union(*draft.asked.values())
    others = sorted(asked - {"mean"})
    if not others:
        return "mean"
    notes.add(
        draft.line,
        f"times are {others[0]} over the ranks (-a), not their mean: not paired with means",
        "not the mean over ranks",
    )
    return others[0]


def _op(
    draft: Draft,
    option: str | None,
    rows: Sequence[Row],
    columns: Columns | None,
    cells: Sequence[Cell],
    listed: int | None,
    notes: Notes,
) -> tuple[str | None, OpFrom, set[str]]:
    """The collective, how that is known, and what it may be.

    What the test announced comes first, then a command line before it, then the option, then the figures.
    """
    if not rows or columns is None:
        known = {draft.banner_op} if draft.banner_op else set()
        return draft.banner_op, "text" if known else None, known
    possible = judge.possible_ops(rows, columns)
    fits = judge.fitting(possible, cells, listed)
    agrees = bool(fits)
    if not agrees:
        fits = judge.fitting(possible, cells, None)
    text = draft.banner_op
    if text is not None and (text not in possible or not judge.fitting([text], cells, None)):
        notes.add(draft.line, f"the text says {text}, the rows say otherwise", "op")
    elif text is None:
        text = _commanded(draft, cells, fits, notes)
    if text is not None:
        if option is not None and option != text:
            notes.add(draft.line, f"--op says {option}, the text {text}: the text was believed", "op option")
        return text, "text", {text}
    if option is not None:
        if option in TRAITS and judge.fitting([option], cells, None):
            if option not in possible:
                notes.add(draft.line, f"--op says {option}, though it prints other columns", "op option")
            return option, "option", {option}
        notes.add(draft.line, f"--op says {option}, which these rows cannot be: not believed", "op option")
    if len(fits) == 1 and agrees:
        return next(iter(fits)), "derived", fits
    return None, None, fits


def _commanded(draft: Draft, cells: Sequence[Cell], fits: set[str], notes: Notes) -> str | None:
    """The collective that command lines before the table run, if it is one, and one that the rows can be."""
    named = set(draft.mentioned)
    true = named & fits if len(named) > 1 else judge.fitting(named, cells, None)
    if not true:
        for op in sorted(named):
            notes.add(draft.line, f"a command before the table runs {op}, which its rows are not", "op")
    return next(iter(true)) if len(true) == 1 else None


def _ranks(
    draft: Draft,
    ops: set[str],
    rows: Sequence[Row],
    cells: Sequence[Cell],
    listed: int | None,
    notes: Notes,
) -> tuple[int | None, RanksFrom]:
    """Ranks by the figures, where they leave one number or contradict the text, else by the text."""
    if not rows:
        return listed, "header" if listed else None
    factors = {TRAITS[name].factor for name in ops}
    is_part = bool(ops) and {TRAITS[name].size for name in ops} <= {"part", "free"}
    by_count = judge.ranks_by_count(cells) if is_part and ops != {"all_to_allv"} else None
    equal = judge.equal_bandwidths(cells, listed)
    fewest, most, derived = 1, 0, None
    if equal is not None:
        fewest = most = derived = equal
    elif len(factors) == 1 and (factor := factors.pop()) != "one":
        votes = judge.ranks_by_factor(cells, factor)
        if votes.agreeing and votes.agreeing >= 0.6 * votes.cells:
            fewest, most, derived = votes.fewest, votes.most, votes.nranks
        elif votes.agreeing:
            mixed = "rows fit different numbers of ranks: several runs are mixed, or rows changed"
            notes.add(draft.line, mixed, "ranks")
    tells = fewest <= most
    if derived is None and by_count is not None and (not tells or fewest <= by_count <= most):
        derived = by_count
    said = draft.said_ranks
    if listed is not None:
        if not tells and _has_gaps(draft):
            notes.add(draft.line, "not all devices are listed, and no figure tells the ranks", "ranks")
            return None, None
        if not tells or fewest <= listed <= most:
            return listed, "header"
        shown = str(derived) if derived else f"{fewest} to {most}"
        notes.add(
            draft.line,
            f"devices up to rank {listed - 1} are listed, but busbw/algbw is that of {shown} ranks",
            "ranks",
        )
        return derived, "derived" if derived else None
    if derived is not None:
        if said is not None and said * _per_process(draft) != derived and said != derived:
            notes.add(
                draft.line,
                f"the text above speaks of {said} ranks, but busbw/algbw is that of {derived}",
                "ranks",
            )
        return derived, "derived"
    if tells and most > fewest:
        upper = f" to {most}" if most < 10_000 else " or more"
        notes.add(draft.line, f"busbw/algbw leaves {fewest}{upper} ranks, and nothing lists them", "ranks")
    elif not tells and _per_process(draft) > 1 and not draft.launched:
        alone = _per_process(draft)
        notes.add(
            draft.line, f"{alone} ranks by nThread x nGpus: one process, as far as the text shows", "ranks"
        )
        return alone, "header"
    return None, None


def _has_gaps(draft: Draft) -> bool:
    """Whether devices were lost from the list; those who leave some out ("...") leave the last one there."""
    ranks = {line.rank for line in draft.devices}
    return len(ranks) <= max(ranks) and len(draft.groups) == 1 and not draft.elided


def _per_process(draft: Draft) -> int:
    """GPUs that one process drives: threads times GPUs of each, 1 where nothing tells."""
    try:
        return max(1, int(draft.settings["nThread"]) * int(draft.settings["nGpus"]))
    except (KeyError, ValueError):
        return 1


def _footer(draft: Draft, section: Section, taken: Sequence[Row], notes: Notes) -> None:
    """The printed average against the rows, and its count of wrong measurements against theirs."""
    average = figure(draft.average.rstrip(",;")) if draft.average is not None else None
    if draft.average is not None and average is None:
        notes.add(
            draft.average_line,
            f"the average bus bandwidth is {draft.average[:24]!r}, which is no number",
            "average",
        )
    busbw = [half.busbw for row in taken for half in row.halves]
    known = [each for each in busbw if each is not None]
    if average is not None and average.value <= 1e15:
        section.average_GBs = average.value
        if known and len(known) == len(busbw):
            mean = sum(each.value for each in known) / len(known)
            rounding = sum(each.half for each in known) / len(known) + average.half
            section.average_fits = abs(mean - average.value) <= rounding * (1 + 1e-6)
            if not section.average_fits:
                notes.add(
                    draft.average_line,
                    f"the printed average of {average.value:g} GB/s is not the rows' {mean:g}: "
                    "rows are missing or changed, or runs are mixed",
                    "average",
                )
    wrong = sum(1 for row in taken for half in row.halves if half.wrong)
    if draft.out_of_bounds is not None and bool(wrong) != bool(draft.out_of_bounds) and taken:
        checked = any(half.wrong is not None for row in taken for half in row.halves)
        if checked:
            notes.add(
                draft.line,
                f"the footer counts {draft.out_of_bounds} measurements with wrong values, the rows {wrong}",
                "wrong",
            )


def _missing(draft: Draft, columns: Columns | None) -> list[str]:
    missing = []
    if draft.rows and (columns is None or not columns.printed):
        missing.append("header")
    if not draft.rows or draft.elided:
        missing.append("rows")
    if not draft.settings:
        missing.append("parameters")
    if not draft.devices:
        missing.append("devices")
    if draft.average is None and draft.out_of_bounds is None:
        missing.append("footer")
    elif draft.average is None:
        missing.append("average")
    elif draft.out_of_bounds is None:
        missing.append("out of bounds")
    return missing
