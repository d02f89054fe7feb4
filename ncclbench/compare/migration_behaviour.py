"""A migration's behaviour: messages between ranks, the orders in which they end, and recovery from faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ncclbench.compare.answers import DecisionLine, Word, some
from ncclbench.compare.found import Found, StepFound
from ncclbench.compare.migration_costs import Pair, cold_line, is_worse, missing, order_lines
from ncclbench.stats.p2p import size_words, way_words
from ncclbench.stats.recovery import Recovery
from ncclbench.units import count_text, format_time

Row = Mapping[str, Any]

# A job that stands so much longer, and so many seconds longer.
_RECOVERY_RATIO, _RECOVERY_S = 1.25, 1.0


def p2p_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """Messages: first ones, their times, several peers at once, and orders of calling."""
    seen = set()
    for step in found.of_kind("p2p"):
        if step.p2p is None:
            continue
        for pair in pairs:
            orders = list(order_lines(step, pair, step.p2p.ordering, "orders of send and recv"))
            seen |= {pair} if orders else set()
            yield from orders
            yield from _first(step, pair)
            yield from _ways(step, pair)
            yield from _peers(step, pair)
            yield from _self_test(step, pair)
    what = "in which orders messages end"
    yield from missing(pairs, seen, "orders of send and recv", "orders", what, "p2p --parts first,ordering")


def _first(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    """The group and the first message to every peer together: lazy and eager backends pay at other times."""
    rows = step.p2p.first_calls if step.p2p else []
    sums = {}
    for arm in (pair.base, pair.new):
        own = [row for row in rows if row["arm"] == arm]
        if not own:
            return
        # Making the group is in every row, and is paid once.
        sums[arm] = max(row["init_us"] for row in own) + sum(row["first_us"] for row in own)
    peers = len([row for row in rows if row["arm"] == pair.new])
    what = f"making the group and a first message to {count_text(peers, 'peer')}"
    subject = f"first messages against {pair.base}"
    yield cold_line(subject, what, sums[pair.base], sums[pair.new], (None, None), step.name)


def _ways(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    """Times of messages, by way and size."""
    rows = step.p2p.rows if step.p2p else []
    wrong = {row["arm"] for row in rows if row["wrong"]}
    if wrong & {pair.base, pair.new}:
        word: Word = "against" if pair.base not in wrong else "open" if pair.new in wrong else "for"
        told = f"WRONG DATA in messages on {' and '.join(sorted(wrong & {pair.base, pair.new}))}"
        yield DecisionLine(f"messages against {pair.base}", word, told, step.name, "data")
        return
    keys = ("way", "nbytes", "both")
    by_case = {(row["arm"], *(row[key] for key in keys)): _timed(row) for row in rows}
    compared = [
        (new, base)
        for (arm, *case), new in by_case.items()
        if arm == pair.new and (base := by_case.get((pair.base, *case))) is not None
    ]
    if not compared:
        return
    slower = [(new, base) for new, base in compared if is_worse(base, new, "latency_us")]
    subject = f"messages against {pair.base}"
    if slower:
        new, base = max(slower, key=lambda each: float(each[0]["latency_us"] / each[1]["latency_us"]))
        told = (
            f"slower in {len(slower)} of {count_text(len(compared), 'case')}, most {way_words(dict(new))} of "
            f"{size_words(new['nbytes'])}: {format_time(new['latency_us'])}, before "
            f"{format_time(base['latency_us'])}"
        )
        yield DecisionLine(subject, "against", told, step.name, "messages")
        return
    told = f"none of {count_text(len(compared), 'case')} shown to be slower by more than a tenth"
    if any(row["ci_low"] is None for each in compared for row in each):
        told = f"too few epochs for intervals in {count_text(len(compared), 'case')}"
        yield DecisionLine(subject, "open", told, step.name, "messages", step.again(epochs="5"))
    else:
        yield DecisionLine(subject, "for", told, step.name, "messages")


def _timed(row: Row) -> Row:
    return {**row, "ci_low": row["ci_low_us"], "ci_high": row["ci_high_us"]}


def _peers(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    """Messages to several peers at once: one communicator for all sends them one after the other."""
    rows = step.p2p.peers if step.p2p else []
    by_case = {(row["arm"], row["nbytes"], row["peers"], row["beside"]): row for row in rows}
    compared, worse = 0, []
    for (arm, *case), new in by_case.items():
        base = by_case.get((pair.base, *case))
        if arm != pair.new or base is None or new["ratio"] is None or base["ratio"] is None:
            continue
        compared += 1
        if is_worse(base, new, "ratio"):
            worse.append((new, base))
    if not compared:
        return
    subject = f"several peers at once against {pair.base}"
    if worse:
        new, base = max(worse, key=lambda each: float(each[0]["ratio"]))
        beside = f" beside {new['beside']}" if new["beside"] else ""
        told = (
            f"{size_words(new['nbytes'])} to {count_text(new['peers'], 'peer')}{beside} take "
            f"{new['ratio']:.2f} of one after the other, before {base['ratio']:.2f}; nccl-lazy has a "
            "communicator for each pair"
        )
        yield DecisionLine(subject, "against", told, step.name, "messages")
    else:
        told = f"as much at the same time as before, in {count_text(compared, 'case')}"
        yield DecisionLine(subject, "for", told, step.name, "messages")


def _self_test(step: StepFound, pair: Pair) -> Iterator[DecisionLine]:
    """What is as documented on the one and otherwise on the other."""
    rows = step.p2p.semantics if step.p2p else []
    outcomes = {(row["arm"], row["check"]): row for row in rows}
    asked = [check for arm, check in outcomes if arm == pair.new and (pair.base, check) in outcomes]
    changed = [
        outcomes[pair.new, check]
        for check in asked
        if outcomes[pair.new, check]["outcome"] == "otherwise"
        and outcomes[pair.base, check]["outcome"] == "as-documented"
    ]
    subject = f"self-test against {pair.base}"
    for row in changed:
        told = f"{row['check']} is otherwise than documented, and was not before: {row['said']}"
        yield DecisionLine(subject, "against", told, step.name, "self-test")
    if asked and not changed:
        told = f"nothing is otherwise that was as documented, of {count_text(len(asked), 'question')}"
        yield DecisionLine(subject, "for", told, step.name, "self-test")


def recovery_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """Which strategies can be had, whether they recover, and how long the job stands."""
    backends = {arm.id: arm.backend for step in found.measured if step.run for arm in step.run.plan.arms}
    drills: dict[str, list[StepFound]] = {}
    for step in found.of_kind("drill"):
        for arm in step.run.plan.arms if step.run else ():
            drills.setdefault(arm.backend, []).append(step)
    new = backends.get(pairs[0].new, pairs[0].new)
    bases = list(dict.fromkeys(backends.get(pair.base, pair.base) for pair in pairs))
    base = next((each for each in bases if each in drills), None)
    for backend, drilled in ((new, new in drills), (bases[0], base is not None)):
        if not drilled:
            command = f"ncclbench drill --backends {backend} --strategy all"
            yield DecisionLine(
                "recovery", "open", f"no rank was made to fail on {backend}", None, "recovery", command
            )
    if base is None or new not in drills:
        return
    faults = dict.fromkeys(one.fault for step in drills[new] for one in step.recoveries)
    for fault in faults:
        yield _fault_line(fault, new, drills[new], base, drills[base])


def _fault_line(
    fault: str, new: str, new_steps: Sequence[StepFound], base: str, base_steps: Sequence[StepFound]
) -> DecisionLine:
    subject, step = f"recovery from {fault}", new_steps[-1].name
    now = [one for each in new_steps for one in each.recoveries if one.fault == fault]
    before = [one for each in base_steps for one in each.recoveries if one.fault == fault]
    good = {one.strategy for one in before if _is_good(one)}
    bad = [one for one in now if not _is_good(one)]
    if bad:
        told = some([f"{one.strategy} {_failing(one)}" for one in bad])
        also = {one.strategy for one in bad} <= {one.strategy for one in before} - good
        if also:
            return DecisionLine(subject, "open", f"{told}, and so it was on {base}", step, "recovery")
        return DecisionLine(subject, "against", f"{told} on {new}", step, "recovery")
    gone = [(name, why) for each in new_steps for name, why in each.unavailable.items() if name in good]
    if gone:
        told = "; ".join(f"{name}, which recovers on {base}, is not to be had: {why}" for name, why in gone)
        return DecisionLine(subject, "against", told, step, "recovery")
    fastest, former = _fastest(now), _fastest(before)
    if fastest is None:
        if former is None:
            told = "no strategy recovers on either side"
            return DecisionLine(subject, "open", told, step, "recovery", new_steps[-1].again(strategy="all"))
        told = f"nothing recovers on {new}; {former[1]} does on {base}"
        return DecisionLine(subject, "against", told, step, "recovery")
    told = f"{fastest[1]} works again after {format_time(1e3 * fastest[0])} on {new}"
    if former is None:
        return DecisionLine(subject, "for", f"{told}; nothing recovers on {base}", step, "recovery")
    told = f"{told}, {former[1]} after {format_time(1e3 * former[0])} on {base}"
    longer = fastest[0] > _RECOVERY_RATIO * former[0] and fastest[0] - former[0] > 1e3 * _RECOVERY_S
    return DecisionLine(subject, "against" if longer else "for", told, step, "recovery")


def _is_good(one: Recovery) -> bool:
    return one.recovered == one.trials and one.correct == one.trials and not one.leftover_processes


def _failing(one: Recovery) -> str:
    if one.correct < one.recovered:
        return f"gave WRONG DATA in {one.recovered - one.correct} of {count_text(one.trials, 'trial')}"
    if one.recovered < one.trials:
        return f"did not recover in {one.trials - one.recovered} of {count_text(one.trials, 'trial')}"
    return f"left {one.leftover_processes} processes behind"


def _fastest(of: Sequence[Recovery]) -> tuple[float, str] | None:
    """Milliseconds until all ranks work again, or else those left, with the strategy; None for none."""
    for phase in ("first_good_n", "first_good_n_minus_1"):
        times = [
            (reached.median, one.strategy)
            for one in of
            if _is_good(one) and (reached := one.phases_ms[phase]) is not None
        ]
        if times:
            return min(times)
    return None
