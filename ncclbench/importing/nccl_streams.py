"""The writers of a log told apart: two tests that write into one file are read as two."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from ncclbench.importing.lines import raw_lines, unprefixed
from ncclbench.importing.model import Problem
from ncclbench.importing.nccl_draft import Budget, Draft
from ncclbench.importing.nccl_scan import LONGEST, Scanner, may_matter

# A writer has a table if this much of what it wrote looks so: one header, or three rows.
_ENOUGH = 3
_MOST_WRITERS = 1_000
# Of lines that no writer of a table wrote: commands, variables, failures.
_MOST_SHARED = 100

# The name of a host before what is not a table's own line.
_NAME = re.compile(r"\s*([A-Za-z][\w./@-]{0,99})(?::|\s{0,20}\|)")
_RANK = re.compile(r",?\d+$")


def scan(file: Path) -> tuple[list[Draft], list[Problem]]:
    """The invocations in a file, in order, and what is to be said of the file as a whole.

    All ranks of a job write into its log, and one of them prints the table: that is one test. Where lines of
    tables have different prefixes (hosts under pdsh, jobs of mpirun, processes that know nothing of each
    other), each prefix is read by itself.

    Raises:
        RequestError: the file cannot be read.
    """
    scanner = Scanner(Budget())
    weights: Counter[str] = Counter()
    for number, raw in raw_lines(file):
        if may_matter(raw, scanner):
            text, writer = unprefixed(raw[:LONGEST])
            weight = scanner.line(number, raw, text)
            if weight and (writer in weights or len(weights) < _MOST_WRITERS):
                weights[writer] += weight
    scanner.flush()
    writers = [writer for writer, weight in weights.items() if weight >= _ENOUGH]
    if sum(1 for writer in writers if writer) < 2:
        return scanner.drafts, []
    names = ", ".join(writer or "no prefix" for writer in writers[:4]) + (" ..." if len(writers) > 4 else "")
    reason = f"{len(writers)} tests write into one file, told apart by their prefixes: {names}"
    drafts = _apart(file, writers)
    once = _once(drafts)
    problems = [Problem(None, reason)]
    if len(once) < len(drafts):
        copies = len(drafts) - len(once)
        reason = f"equal to another to the last digit, left out: {copies}; ranks of one test printed it"
        problems.append(Problem(None, reason))
    return once, problems


def _once(drafts: list[Draft]) -> list[Draft]:
    """The drafts without those whose rows another one has had."""
    seen: set[str] = set()
    kept = []
    for draft in drafts:
        rows = "\n".join(" ".join(tokens) for _, tokens in draft.rows)
        if not rows or rows not in seen:
            kept.append(draft)
        seen.add(rows)
    return kept


def _apart(file: Path, writers: list[str]) -> list[Draft]:
    """The invocations of each writer of a table."""
    budget = Budget()
    scanners = {writer: Scanner(budget) for writer in writers}
    jobs: dict[str, list[str]] = {}
    for writer in writers:
        jobs.setdefault(_RANK.sub("", writer), []).append(writer)
    nshared = 0
    for number, raw in raw_lines(file):
        text, writer = unprefixed(raw[:LONGEST])
        if not writer and (name := _NAME.match(text)) is not None and name[1] in scanners:
            text, writer = text[name.end() :], name[1]
        if writer not in scanners:
            ranks = jobs.get(_RANK.sub("", writer), ())
            writer = ranks[0] if len(ranks) == 1 else writer
        scanner = scanners.get(writer)
        if scanner is not None:
            if may_matter(raw, scanner):
                scanner.line(number, raw, text)
        elif nshared < _MOST_SHARED and may_matter(raw, next(iter(scanners.values()))):
            nshared += 1
            for each in scanners.values():
                each.around(number, text, raw)
    for scanner in scanners.values():
        scanner.flush()
    drafts = [draft for scanner in scanners.values() for draft in scanner.drafts]
    return sorted(drafts, key=lambda draft: draft.line)
