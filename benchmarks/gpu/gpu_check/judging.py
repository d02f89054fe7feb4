"""What came of a command or a direct check: works, wrong or unavailable, and why in one line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_check.child import Ended

WORKS, WRONG, UNAVAILABLE = "works", "wrong", "unavailable"

# In messages of exit code 2 and reasons of rows: not a fault, but what this machine or torch has not.
_NOT_HERE = re.compile(
    r"needs? (a|an|torch|NCCL|numba|CUDA|GPUs?)\b|unknown option|is not (available|supported|here)"
    r"|cannot be had|not supported|does not support|unavailable|has no|requires|nothing can be measured",
    re.IGNORECASE,
)
# Under these keys of documents stand things with a status or outcome of their own.
_LISTS = ("rows", "arms", "trials", "summary", "ordering", "semantics", "crossed", "at_once", "latency")
_BAD = {"failed", "wrong", "raised", "crashed"}
_ABSENT = {"skipped", "unavailable", "not-here"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of the three words, and why."""

    word: str
    reason: str = ""


def judge_command(ended: Ended, *, answers: tuple[int, ...] = (0,), found_bad: bool = True) -> Verdict:
    """Of an ncclbench command with --json.

    Args:
        answers: exit codes that are an answer.
        found_bad: that something raised or failed in the document is wrong, and no finding.
    """
    early = judge_end(ended)
    if early is not None:
        return early
    try:
        document: dict[str, Any] = json.loads(ended.out)
    except ValueError:
        return Verdict(WRONG, f"exit code {ended.code} and no document: {last_line(ended)}")
    message = str(document.get("message") or "")
    if ended.code not in answers:
        absent = ended.code in (2, 3) and _NOT_HERE.search(message) is not None
        return Verdict(UNAVAILABLE if absent else WRONG, f"exit code {ended.code}: {message}")
    if document.get("wrong"):
        return Verdict(WRONG, f"wrong data: {message}")
    return _judge_rows(document, message, found_bad)


def _judge_rows(document: Mapping[str, Any], message: str, found_bad: bool) -> Verdict:
    entries = [each for key in _LISTS for each in document.get(key) or [] if isinstance(each, dict)]
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for each in entries:
        word = str(each.get("status") or each.get("outcome") or "ok")
        if each.get("wrong") or each.get("correct") is False:
            word = "wrong"
        elif each.keys().isdisjoint(("status", "outcome")) and each.get("reason"):
            word = "unavailable"  # an arm
        counts[word] += 1
        reasons.setdefault(word, str(each.get("reason") or each.get("said") or each.get("message") or ""))
    bad = sorted(_BAD & counts.keys())
    absent = sum(counts[word] for word in _ABSENT)
    why = next((reasons[word] for word in ("unavailable", "skipped", "not-here") if word in reasons), "")
    if bad and (found_bad or counts["wrong"]):
        return Verdict(WRONG, f"{counts[bad[0]]} of {counts.total()} {bad[0]}: {reasons[bad[0]] or message}")
    if entries and absent == counts.total():
        return Verdict(UNAVAILABLE, why or message)
    if absent:
        return Verdict(WORKS, f"{counts.total() - absent} of {counts.total()} here; {why}")
    return Verdict(WORKS, message)


def judge_direct(ended: Ended) -> Verdict:
    """Of a check that prints its own verdict as its last line."""
    early = judge_end(ended)
    if early is not None:
        return early
    try:
        told = json.loads((ended.out.strip().splitlines() or [""])[-1])
        verdict = Verdict(str(told["verdict"]), str(told["reason"]))
    except (ValueError, KeyError, TypeError):
        return Verdict(WRONG, f"exit code {ended.code}: {last_line(ended)}")
    if verdict.word == WORKS and ended.code != 0:
        return Verdict(WRONG, f"exit code {ended.code} after it worked: {last_line(ended)}")
    return verdict


def judge_end(ended: Ended) -> Verdict | None:
    """What is wrong however it answered."""
    if ended.code is None:
        return Verdict(WRONG, f"killed after {ended.seconds:.0f} s without an end: {last_line(ended)}")
    if ended.code < 0:
        return Verdict(WRONG, f"ended by signal {-ended.code}: {last_line(ended)}")
    if ended.left:
        return Verdict(WRONG, f"left {ended.left} process{'es' if ended.left > 1 else ''} behind")
    return None


def last_line(ended: Ended) -> str:
    """The last thing that was printed, what went wrong before what was found."""
    for text in (ended.err, ended.out):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return lines[-1][:200]
    return "nothing was printed"
