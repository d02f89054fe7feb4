"""Whether machines are to be accepted: every step's own answer, put to the hosts that it speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ncclbench.attribution.words import name_of
from ncclbench.compare.answers import ORDER, Decision, DecisionLine, Word, in_order, reasons, some
from ncclbench.compare.found import Found, Row, StepFound, settling
from ncclbench.stats.groups import wrong_where
from ncclbench.stats.rows import NOT_MEASURED
from ncclbench.units import count_text, format_bytes, rank_ranges

NAME, TITLE = "acceptance", "Acceptance"

# What is looked at, with its name in the table.
_SUBJECTS = {
    "data": "data",
    "cases": "cases",
    "speed": "speed",
    "slow": "slow parts",
    "health": "health",
    "steps": "steps",
    "faults": "faults",
}
_WORDS = {"fail": "not accepted", "unclear": "unclear", "pass": "accepted"}


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one look at one step says.

    Attributes:
        evidence: key of _SUBJECTS.
        hosts: of whom; None of all that took part.
        others: what it leaves open of hosts that took part and are not in ``hosts``; "" for nothing.
        settle: what would settle or mend it.
        shared: it is of all ``hosts`` together, and cannot be told of any one of them.
    """

    verdict: Word
    sentence: str
    step: str
    evidence: str
    hosts: tuple[str, ...] | None = None
    others: str = ""
    settle: str | None = None
    shared: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for findings that say the same of the same."""
        return self.evidence, self.verdict, self.sentence, self.hosts


def decide(found: Found) -> Decision:
    """Accept, do not accept, or unclear: nothing passes by not having been looked at."""
    # Settings of a machine are found by each of its steps.
    findings = list({one.key: one for step in found.steps for one in _of_step(found, step)}.values())
    looked = {finding.evidence for finding in findings}
    if "data" not in looked:
        findings.append(_Finding("unclear", "no collective was measured", "", "data"))
    if "slow" not in looked:
        findings.append(
            _Finding(
                "unclear", "nobody looked for slow ranks and links", "", "slow", settle="ncclbench suspects"
            )
        )
    lines = [_host_line(host, findings) for host in found.hosts]
    lines += [
        DecisionLine(
            _SUBJECTS[finding.evidence],
            finding.verdict,
            finding.sentence,
            finding.step or None,
            finding.evidence,
            finding.settle,
        )
        for finding in findings
    ]
    # Who is named is told before what all of them miss together.
    failing = sorted((one for one in findings if one.verdict == "fail"), key=lambda one: one.hosts is None)
    bad = [finding.sentence for finding in failing]
    unclear = [finding.sentence for finding in findings if finding.verdict == "unclear"]
    if bad:
        out = [line.subject for line in lines if line.evidence == "hosts" and line.verdict == "fail"]
        which = f" {some(out)}" if out and len(out) < len(found.hosts) else ""
        answer, ok = f"do not accept{which}, because {reasons(bad)}", False
    elif unclear:
        answer, ok = f"unclear, because {reasons(unclear)}", None
    else:
        answer, ok = "accept", True
    of_hosts = [line for line in lines if line.evidence == "hosts"]
    others = [line for line in lines if line.evidence != "hosts"]
    return Decision(
        NAME,
        TITLE,
        answer,
        ok,
        (*in_order(of_hosts), *in_order(others)),
        found.hosts,
        found.has_wrong_data,
    )


def _host_line(host: str, findings: Sequence[_Finding]) -> DecisionLine:
    """Everything that speaks of one host; the worst decides."""
    blamed = {
        each for one in findings if one.verdict == "fail" and not one.shared for each in one.hosts or ()
    }
    said: list[tuple[Word, str, str]] = []
    for finding in findings:
        if finding.hosts is not None and host not in finding.hosts:
            if finding.others:
                said.append(("unclear", finding.others, finding.step))
        elif finding.hosts is not None and finding.shared:
            said.append(("unclear", f"one end of it: {finding.sentence}", finding.step))
        elif finding.hosts is None and finding.verdict == "fail" and blamed and host not in blamed:
            # What all of them missed together may be the fault of the one that is named.
            said.append(("unclear", f"{finding.sentence}, with {some(sorted(blamed))} in it", finding.step))
        else:
            said.append((finding.verdict, finding.sentence, finding.step))
    verdict: Word = min((word for word, _, _ in said), key=lambda word: ORDER[word], default="unclear")
    deciding = [(text, step) for word, text, step in said if word == verdict]
    because = reasons([text for text, _ in deciding])
    steps = list(dict.fromkeys(step for _, step in deciding if step))
    joined = f"{_WORDS[verdict]}{', because' if verdict != 'pass' else ':'} {because}"
    return DecisionLine(host, verdict, joined, steps[0] if len(steps) == 1 else None, "hosts")


def _of_step(found: Found, step: StepFound) -> Iterator[_Finding]:
    """All that a step says; one that ended badly for a reason that nobody sees here does not pass."""
    seen = [finding for look in _LOOKS for finding in look(step)]
    yield from seen
    if step.lacking is not None:
        yield _Finding("unclear", step.lacking, step.name, "steps", settle=settling(found, step))
    elif step.step.status == "bad" and all(finding.verdict == "pass" for finding in seen):
        said = step.step.message or "it does not say why"
        yield _Finding("unclear", f"{step.name} ended with a bad answer: {said}", step.name, "steps")


def _data(step: StepFound) -> Iterator[_Finding]:
    """Wrong elements, on whichever rank they were seen."""
    rows = [row for row in step.rows if row["status"] in ("ok", "wrong")]
    wrong = [row for row in rows if row["status"] == "wrong"]
    if wrong:
        ranks = sorted({rank for row in wrong for rank in step.wrong_ranks(row)})
        names = some([f"{_case(row)} {wrong_where(row)}".strip() for row in wrong])
        where = f" on {rank_ranges(ranks)}" if ranks else ""
        yield _Finding(
            "fail",
            f"WRONG DATA{where} in {count_text(len(wrong), 'case')}: {names}",
            step.name,
            "data",
            step.hosts_of(ranks) or None,
            "it took part in collectives whose data were wrong",
        )
    elif rows:
        unchecked = sum(row["wrong"] is None for row in rows)
        right = f"data right in {count_text(len(rows) - unchecked, 'case')}"
        if unchecked:
            yield _Finding("unclear", f"{right}, not checked in {unchecked:,}", step.name, "data")
        else:
            yield _Finding("pass", right, step.name, "data")


def _cases(step: StepFound) -> Iterator[_Finding]:
    """Cases without a time."""
    failed = [row for row in step.rows if row["status"] == "failed" and row["reason"] != NOT_MEASURED]
    unreached = sum(row["reason"] == NOT_MEASURED for row in step.rows)
    missing = [row for row in step.rows if row["status"] == "unavailable"]
    if failed:
        said = some([str(row["reason"]) for row in failed], most=2)
        yield _Finding(
            "fail",
            f"{count_text(len(failed), 'case')} failed: {said}",
            step.name,
            "cases",
            step.named_in(said) or None,
            "cases failed in which it took part",
        )
    if unreached:
        yield _Finding("unclear", f"{count_text(unreached, 'case')} not reached", step.name, "cases")
    if missing:
        said = some([f"{row['arm']}: {row['reason']}" for row in missing], most=2)
        yield _Finding(
            "unclear", f"{count_text(len(missing), 'case')} unavailable: {said}", step.name, "cases"
        )


def _speed(step: StepFound) -> Iterator[_Finding]:
    """What the step's command required."""
    for judged in step.judged:
        words: dict[str, Word] = {"fail": "fail", "unclear": "unclear", "pass": "pass"}
        said = {"fail": "misses", "unclear": "cannot be held against", "pass": "meets"}[judged.answer]
        yield _Finding(
            words[judged.answer],
            f"{said} {judged.requirement}: {judged.message}",
            step.name,
            "speed",
        )
    measured = [row for row in step.rows if row["status"] == "ok"]
    if measured and not step.judged:
        on_cpu = any(row["clock"] == "total" for row in measured)
        yield _Finding(
            "unclear",
            "no speed was required",
            step.name,
            "speed",
            settle=_own_floor(step, measured) if on_cpu else step.again(require="80%peak"),
        )


def _own_floor(step: StepFound, measured: Sequence[Row]) -> str:
    """On the CPU no peak is known, so only a bandwidth that somebody names can be required."""
    row = max(measured, key=lambda row: int(row["nbytes"]))
    floor = f"{row['op']}@{format_bytes(row['nbytes'])}>=10GB/s"
    return f"{step.again(require=floor)}  # with the bandwidth that you expect for 10GB/s"


def _slow(step: StepFound) -> Iterator[_Finding]:
    """Who is named, as ``suspects`` and ``matrix`` name them."""
    if step.searched is None:
        return
    answer, wrong = step.searched
    if wrong:
        ranks = sorted({rank for pair in wrong for rank in pair})
        yield _Finding(
            "fail",
            f"WRONG DATA between {count_text(len(wrong), 'pair')}, of {rank_ranges(ranks)}",
            step.name,
            "data",
            (hosts := step.hosts_of(ranks)) or None,
            shared=len(hosts) > 1,
        )
    for suspect in answer.suspects:
        # Of a link between two hosts it cannot be told which end is at fault.
        yield _Finding(
            "fail",
            f"{name_of(suspect)} is {suspect.ratio:.2f}x slower: {suspect.evidence}",
            step.name,
            "slow",
            suspect.hosts,
            shared=len(suspect.hosts) > 1,
        )
    for text in answer.unclear:
        yield _Finding("unclear", f"cannot be told: {text}", step.name, "slow")
    if answer.verdict == "unclear" and not answer.unclear:
        yield _Finding("unclear", answer.message, step.name, "slow")
    elif answer.is_blind:
        yield _Finding("unclear", f"too little was measured: {answer.message}", step.name, "slow")
    elif answer.verdict == "none":
        yield _Finding("pass", answer.message, step.name, "slow")


def _health(step: StepFound) -> Iterator[_Finding]:
    """What GPUs and NICs said, what held GPUs back, and settings that spoil timing."""
    if step.run is None:
        return
    meta = step.run.meta
    for entry in meta.get("health") or ():
        for problem in entry["problems"]:
            yield _Finding("fail", problem, step.name, "health", step.named_in(problem) or None)
    held = [row for row in step.rows if row["throttled"]]
    if held:
        ranks = sorted({rank for row in held for rank in row["throttled_ranks"]})
        words = some([word for row in held for word in row["throttled"]])
        yield _Finding(
            "unclear",
            f"{rank_ranges(ranks)} held back ({words}) in {count_text(len(held), 'case')}",
            step.name,
            "health",
            step.hosts_of(ranks) or None,
        )
    for finding in meta.get("preflight") or ():
        yield _Finding(
            "unclear",
            f"{finding['severity']}: {finding['what']}",
            step.name,
            "health",
            step.hosts_of(finding["ranks"]) or None,
            settle=finding.get("mend"),
        )


def _faults(step: StepFound) -> Iterator[_Finding]:
    """Wrong data, processes left behind and recoveries that failed, of commands that measure no cases."""
    found = step.groups or step.p2p
    if found is not None and found.wrong:
        what = f"WRONG DATA in {step.kind}: {found.wrong:,} wrong"
        yield _Finding("fail", what, step.name, "faults")
    if found is not None and found.leftover_processes:
        left = count_text(found.leftover_processes, "process", "processes")
        yield _Finding("fail", f"{step.kind} left {left} behind", step.name, "faults")
    for one in step.recoveries:
        what = f"{one.fault}, {one.strategy}"
        if one.correct < one.trials:
            said = f"WRONG DATA or none after {what} in {one.trials - one.correct} of {one.trials}"
            yield _Finding("fail", said, step.name, "faults")
        if one.recovered < one.trials:
            said = f"{one.trials - one.recovered} of {one.trials} did not recover from {what}"
            yield _Finding("fail", said, step.name, "faults")
        if one.leftover_processes:
            left = count_text(one.leftover_processes, "process", "processes")
            yield _Finding("fail", f"{left} left behind after {what}", step.name, "faults")
        elif one.correct == one.recovered == one.trials:
            yield _Finding(
                "pass", f"{one.trials} of {one.trials} as they should after {what}", step.name, "faults"
            )


_LOOKS: tuple[Callable[[StepFound], Iterator[_Finding]], ...] = (
    _data,
    _cases,
    _speed,
    _slow,
    _health,
    _faults,
)


def _case(row: Row) -> str:
    return f"{row['op']} {format_bytes(row['nbytes'])} {row['mode']} on {row['arm']}"
