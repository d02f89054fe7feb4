"""What was found of weights in words: the same on a terminal and on a page, but for how times look."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncclbench.stats.transport import Ratio, WayRow, fastest
from ncclbench.store.transfers import TransferFault
from ncclbench.units import count_text, format_digits, noun_text

TimeText = Callable[[float], str]

# What has to stand beside every ratio between the two kinds.
NOT_THE_SAME = (
    "A one-sided transfer and a two-sided one are not the same operation. In a two-sided way both sides meet "
    "in a call, and when it returns the generator knows that it holds the weights. A one-sided write or read "
    "is one side's alone: nobody meets, the other takes no part, nothing orders it with what that side "
    "computes, and it learns that all has arrived only from a stamp written afterwards, when it next looks."
)
TORN = (
    "Torn: a generator that computes on weights while they are written sees some of the old version and some "
    "of the new. A job that must not needs a second buffer, or stops the generator, as two-sided ways do."
)
FROZEN = (
    "Frozen: how long the trainer must leave its weights as they are, which is longer than it is held up "
    "where generators read."
)

LEGEND = (
    "All hold: until the last generator holds every byte and knows it. GB/s: the weights, once, over that "
    "time, however many generators there are. Over bcast: ratio of these times to that of broadcast, below 1 "
    "is faster. Held: for so long the trainer, and a generator, could do nothing else."
)

_OUTCOMES = {
    "raised": "an error",
    "hung": "HUNG",
    "completed": "nothing noticed",
    "crashed": "CRASHED",
    "not-made": "not made",
}
_FAULTS = {"peer-dies": "peer killed", "timeout": "peer stopped"}


def generators_text(row: WayRow) -> str:
    """``2 generators``."""
    return count_text(row.generators or 0, "generator")


def than_text(against: Ratio) -> str:
    """A ratio of times in words: ``3.1x faster than broadcast``, ``1.02x slower than broadcast``."""
    times = max(against.ratio, 1 / against.ratio)
    if times < 1.005:
        return f"as fast as {against.base}"
    text = format_digits(times, 3 if times < 1.1 else 2)
    return f"{text}x {'faster' if against.ratio < 1 else 'slower'} than {against.base}"


def ratio_text(ratio: float) -> str:
    """``0.33x``, ``0.0021x``."""
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{format_digits(ratio, 2)}x"


def against_text(against: Ratio) -> str:
    """``3.1x faster than broadcast (0.32x the time, 0.29x to 0.36x)``; no such word where that is unclear."""
    interval = ""
    if against.low is not None and against.high is not None:
        interval = f", {ratio_text(against.low)} to {ratio_text(against.high)}"
    if against.verdict == "unclear":
        return f"{ratio_text(against.ratio)} the time of {against.base}{interval} (unclear)"
    return f"{than_text(against)} ({ratio_text(against.ratio)} the time{interval})"


def sentence(row: WayRow, time_text: TimeText) -> str:
    """A way's answer in one sentence."""
    if row.status == "wrong":
        return f"{row.name}: WRONG DATA, {row.reason}, so that its speed does not count"
    if row.total_us is None or row.trainer_us is None or row.generator_us is None or row.frozen_us is None:
        return f"{row.name}: not here: {row.reason}"
    said = f"{row.kind} {row.name} to {generators_text(row)} takes {time_text(row.total_us.median)}"
    if row.against is not None:
        said += f", {against_text(row.against)}"
    said += f"; it holds the trainer up for {time_text(row.trainer_us.median)}{_frozen(row, time_text)}"
    said += f" and a generator for {time_text(row.generator_us.median)}"
    if row.stale_us is not None:
        said += f"; one that computes sees them after {time_text(row.stale_us.median)}"
    return said


def _frozen(row: WayRow, time_text: TimeText) -> str:
    """That the trainer is free and its weights are not, where that is so."""
    if row.frozen_us is None or row.trainer_us is None or row.frozen_us.median <= 1.5 * row.trainer_us.median:
        return ""
    return f" (its weights stay as they are for {time_text(row.frozen_us.median)})"


def headline(rows: Sequence[WayRow], time_text: TimeText) -> str:
    """The answer in short: the fastest one-sided way, or the fastest of all where there is none."""
    wrong = [row for row in rows if row.status == "wrong"]
    if wrong:
        return f"WRONG DATA by {', '.join(row.name for row in wrong)}"
    best = fastest(rows, "one-sided") or fastest(rows, "two-sided")
    if best is None or best.total_us is None or best.trainer_us is None:
        return "no weights were moved"
    found = f"takes {time_text(best.total_us.median)}"
    if best.against is not None and best.against.verdict == "unclear":
        found += f", {against_text(best.against)},"
    elif best.against is not None:
        found = f"is {than_text(best.against)}"
    held = f"holds the trainer up for {time_text(best.trainer_us.median)}{_frozen(best, time_text)}"
    return f"{best.kind} {best.name} to {generators_text(best)} {found} and {held}"


def why_not_twice(rows: Sequence[WayRow], cores: float | None) -> str | None:
    """Why the kernel's copies are not twice as fast as broadcast, where they are not; None where they are.

    Args:
        cores: that the ranks of the host may use together; None where unknown.
    """
    own = [
        row for row in rows if row.way.startswith("cpu-") and row.against is not None and row.status == "ok"
    ]
    best = min(own, key=lambda row: row.against.ratio if row.against else 1.0, default=None)
    if best is None or best.against is None or best.against.ratio <= 0.5:
        return None
    share = ""
    if cores is not None:
        share = f" They have {cores:g} {noun_text(cores, 'core')} between them here."
    return (
        f"{best.name} is {than_text(best.against)}, not twice as fast: "
        f"the kernel copies all bytes once for each of {generators_text(best)}, no faster than memory is, "
        "and those that copy may wait for a core; a broadcast over sockets copies more often, spread over "
        f"all ranks.{share}"
    )


def fault_words(fault: TransferFault) -> tuple[str, str]:
    """What was done to the peer, and what the side that is left saw of it."""
    return _FAULTS.get(fault.fault, fault.fault), _OUTCOMES.get(fault.outcome, fault.outcome)
