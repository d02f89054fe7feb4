"""A migration's costs: what groups take of time, memory and communicators, and how groups at once disturb."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.compare.answers import DecisionLine, Word, some
from ncclbench.compare.found import Found, StepFound
from ncclbench.stats.group_costs import leaks
from ncclbench.stats.group_words import most_groups, what_text
from ncclbench.units import count_text, format_bytes, format_memory, format_time

Row = Mapping[str, Any]

# Paid once in a job's life, so that a factor alone says little: against from so much more on, and so many
# seconds.
COLD_RATIO, COLD_S = 1.25, 1.0

# Memory that a job would miss: so much more, and so many bytes on a rank.
MEMORY_RATIO, MEMORY_BYTES = 1.1, 100 << 20

# Of times with intervals apart, by so much more.
SLOWER = 1.1

# Needs no telling.
_USUAL_WAY = "new_group"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms: the one that is to be left, and the one to switch to.

    Attributes:
        base, new: ids.
        stands_in: neither is of NCCL; they show what the answer would look at.
    """

    base: str
    new: str
    stands_in: bool


def cold_line(
    subject: str,
    what: str,
    base_us: float,
    new_us: float,
    interval: tuple[float | None, float | None],
    step: str,
) -> DecisionLine:
    """A cost that is paid once: it counts only where it is both much more and more than a second."""
    low, high = interval
    told = f"{what} takes {format_time(new_us)}, before {format_time(base_us)}"
    if low is not None and high is not None:
        told += f" (95 % interval of the ratio {low:.2f} to {high:.2f})"
    if new_us - base_us <= COLD_S * 1e6 or new_us <= COLD_RATIO * base_us:
        return DecisionLine(subject, "for", told, step, "cold")
    word: Word = "against" if low is not None and low > COLD_RATIO else "open"
    return DecisionLine(subject, word, told, step, "cold")


def missing(
    pairs: Sequence[Pair], seen: Collection[Pair], subject: str, evidence: str, what: str, command: str
) -> Iterator[DecisionLine]:
    """What nobody looked at on both sides of some pairs, with the command that does."""
    unseen = [pair for pair in pairs if pair not in seen]
    if unseen:
        arms = list(dict.fromkeys(arm for pair in unseen for arm in (pair.base, pair.new)))
        told = f"{what} on {' and '.join(arms)} was not compared"
        whole = f"ncclbench {command} --backends {shlex.quote(','.join(arms))}"
        yield DecisionLine(subject, "open", told, None, evidence, whole)


def groups_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """What process groups cost, and what becomes of several at once."""
    seen = set()
    for step in found.of_kind("groups"):
        if step.groups is None:
            continue
        for pair in pairs:
            costs = list(_costs(step, pair))
            seen |= {pair} if costs else set()
            yield from costs
            yield from _at_once(step, pair)
            yield from order_lines(step, pair, step.groups.crossed, "groups crossed")
    yield from missing(pairs, seen, "groups", "groups", "what groups cost", "groups")


def _costs(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    rows = most_groups(step.groups.rows if step.groups else [])
    by_way = {(row["arm"], row["way"]): row for row in rows}
    for (arm, way), new in by_way.items():
        base = by_way.get((pair.base, way))
        if arm != pair.new or base is None or base["groups"] != new["groups"]:
            continue
        by = "" if way == _USUAL_WAY else f" by {way}"
        of = f"{count_text(new['groups'], 'group')}{by} against {pair.base}"
        what = "until each has had a first collective and first messages"
        totals_us = (base["total_us"], new["total_us"])
        yield cold_line(f"time of {of}", what, *totals_us, _ratio_interval(base, new), step.name)
        yield from _memory(step, of, base, new)
        if base["communicators"] is not None and new["communicators"] is not None:
            word: Word = "against" if new["communicators"] > base["communicators"] else "for"
            told = f"{what_text(dict(new))} a rank, before {what_text(dict(base))}"
            yield DecisionLine(f"communicators of {of}", word, told, step.name, "groups")
        stays = leaks(dict(new))
        if stays and not leaks(dict(base)):
            told = f"{some(stays)} stay when they have ended; before, nothing did"
            yield DecisionLine(f"what stays of {of}", "against", told, step.name, "groups")


def _ratio_interval(base: Row, new: Row) -> tuple[float | None, float | None]:
    """Of new over base; rows have it against the arm that was asked for first, which may be either."""
    if new["base"] == base["arm"]:
        return new["ratio_ci_low"], new["ratio_ci_high"]
    low, high = base["ratio_ci_low"], base["ratio_ci_high"]
    return (1 / high, 1 / low) if base["base"] == new["arm"] and low and high else (None, None)


def _memory(step: StepFound, of: str, base: Row, new: Row) -> Iterator[DecisionLine]:
    for key, name in (("device_bytes", "device memory"), ("rss_bytes", "host memory")):
        before, now = base[key], new[key]
        if before is None or now is None:
            continue
        much = now > MEMORY_RATIO * before and now - before > MEMORY_BYTES
        told = f"{format_memory(now)} a rank, before {format_memory(before)}"
        yield DecisionLine(f"{name} of {of}", "against" if much else "for", told, step.name, "memory")


def _at_once(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    """Whether a collective in several groups at once is slowed more than it was."""
    rows = step.groups.at_once if step.groups else []
    by_case = {(row["arm"], row["nbytes"], row["topology"], row["group"]): row for row in rows}
    compared, worse = 0, []
    for (arm, *case), new in by_case.items():
        base = by_case.get((pair.base, *case))
        if arm != pair.new or base is None or new["slowdown"] is None or base["slowdown"] is None:
            continue
        compared += 1
        if is_worse(base, new, "slowdown"):
            worse.append((new, base))
    if not compared:
        return
    subject = f"groups at once against {pair.base}"
    if worse:
        new, base = max(worse, key=lambda each: float(each[0]["slowdown"]))
        told = (
            f"{new['op']} of {format_bytes(new['nbytes'])} takes {new['slowdown']:.2f}x its time alone, "
            f"before {base['slowdown']:.2f}x; worse in {len(worse)} of {count_text(compared, 'row')}"
        )
        yield DecisionLine(subject, "against", told, step.name, "groups")
    else:
        told = f"no group is slowed more than before, in {count_text(compared, 'row')}"
        yield DecisionLine(subject, "for", told, step.name, "groups")


def is_worse(base: Row, new: Row, key: str) -> bool:
    """Whether a time or ratio is larger by more than a tenth, with the two 95 % intervals apart."""
    low, high = new["ci_low"], base["ci_high"]
    apart = low is not None and high is not None and low > high
    return bool(apart and new[key] > SLOWER * base[key])


def order_lines(step: StepFound, pair: Pair, rows: Sequence[Row], what: str) -> Iterator[DecisionLine]:
    """Orders of calling: what ends with one and not with the other, and from which size."""
    by_order = {(row["arm"], row["order"]): row for row in rows}
    shared = [order for arm, order in by_order if arm == pair.new and (pair.base, order) in by_order]
    if not shared:
        return
    worse, better = [], []
    for order in shared:
        base, new = by_order[pair.base, order], by_order[pair.new, order]
        if _reach(new) < _reach(base):
            worse.append(f"{order} {_outcome(new)} on {pair.new} and {_outcome(base)} on {pair.base}")
        elif _reach(new) > _reach(base):
            better.append(order)
    subject = f"{what} against {pair.base}"
    for told in worse:
        yield DecisionLine(subject, "against", told, step.name, "orders")
    if not worse:
        told = f"{count_text(len(shared), 'order')} of calling as before"
        if better:
            told = f"{some(better)} ends where it did not before; nothing that ended before does not"
        yield DecisionLine(subject, "for", told, step.name, "orders")


def _reach(row: Row) -> float:
    """Up to which size it completes; infinite where it does at each that was tried."""
    return float("inf") if row["outcome"] == "completed" else float(row["from_nbytes"])


def _outcome(row: Row) -> str:
    words = {"completed": "completes", "deadlocked": "deadlocks", "raised": "raises"}[row["outcome"]]
    return words if row["outcome"] == "completed" else f"{words} from {format_bytes(row['from_nbytes'])} on"
