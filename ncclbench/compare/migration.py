"""Whether to switch from the old NCCL process group to nccl2: arms, data, speed and cold costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ncclbench.compare.answers import Decision, DecisionLine, Word, in_order, reasons, some
from ncclbench.compare.forecast import forecast
from ncclbench.compare.found import Found, Row, StepFound, settling
from ncclbench.compare.migration_behaviour import p2p_lines, recovery_lines
from ncclbench.compare.migration_costs import Pair, cold_line, groups_lines, missing
from ncclbench.compare.overview import counted, counts
from ncclbench.stats.cold import cold_epochs, slowest_us
from ncclbench.stats.over_epochs import ratio
from ncclbench.stats.power import epochs_needed, spread_of
from ncclbench.store.calibrations import Calibration
from ncclbench.tables.topologies import WORLD
from ncclbench.units import count_text, format_bytes

NAME, TITLE = "migration", "Migration"

NEW, BASES = "nccl2", ("nccl-legacy", "nccl-legacy-eager")
# The backend name of the group itself, by the backend that was asked for.
_REALLY = {NEW: "nccl2", **dict.fromkeys(BASES, "nccl")}
# More than anybody waits for: what varies so much is to be mended first.
_MOST_EPOCHS = 256

STANDS_IN = "this decides nothing about NCCL"
_ON_GPUS = "ncclbench sweep --preset migration, on a machine with GPUs"


def decide(found: Found) -> Decision:
    """Switch, or wait because: one thing against is enough to wait, and so is one that is open."""
    pairs = _pairs(found)
    lines = [*_step_lines(found), *_arm_lines(found, pairs)]
    if pairs:
        lines += [*_data_lines(found, pairs), *_speed_lines(found, pairs), *_cold_lines(found, pairs)]
        lines += [*groups_lines(found, pairs), *p2p_lines(found, pairs), *recovery_lines(found, pairs)]
    against = [f"{line.subject}: {line.sentence}" for line in lines if line.verdict == "against"]
    still_open = [line for line in lines if line.verdict == "open"]
    if pairs and pairs[0].stands_in:
        said = reasons([f"{line.subject}: {line.sentence}" for line in still_open if line.evidence == "arms"])
        beside = f"; between these two: {reasons(against)}" if against else ""
        answer, ok = f"wait, because unclear: {said}{beside}; to settle it: {_ON_GPUS}", None
    elif against:
        answer, ok = f"wait, because {reasons(against)}", False
    elif still_open:
        unclear = reasons([f"{line.subject}: {line.sentence}" for line in still_open])
        settle = next((line.settle for line in still_open if line.settle), None)
        answer = f"wait, because unclear: {unclear}{f'; to settle it: {settle}' if settle else ''}"
        ok = None
    else:
        answer, ok = "switch", True
    return Decision(NAME, TITLE, answer, ok, in_order(lines), found.hosts, found.has_wrong_data)


def _pairs(found: Found) -> list[Pair]:
    """(base, new) of every comparison, in the order of the arms; arms that stand in where none is of NCCL."""
    arms = {arm.id: arm for step in found.measured if step.run for arm in step.run.plan.arms}
    new = [arm.id for arm in arms.values() if arm.backend == NEW]
    bases = [arm.id for arm in arms.values() if arm.backend in BASES]
    if new and bases:
        return [Pair(base, each, False) for each in new for base in bases]
    if new or bases:
        return []
    for step in found.measured:
        plan = step.run.plan if step.run else None
        if plan is not None and len(plan.arms) > 1:
            return [Pair(plan.base_arm, arm.id, True) for arm in plan.arms if arm.id != plan.base_arm]
    return []


def _step_lines(found: Found) -> Iterator[DecisionLine]:
    """Steps that say less than they should."""
    for step in found.steps:
        if step.lacking is not None:
            yield DecisionLine(step.name, "open", step.lacking, step.name, "steps", settling(found, step))
        elif step.step.status == "bad" and step.run is None:
            yield DecisionLine(
                step.name, "open", f"ended with a bad answer: {step.step.message}", step.name, "steps"
            )


def _arm_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """What the arms really were: by the group's class and name, not by the string that was asked for."""
    if not pairs:
        here = {arm.id for step in found.measured if step.run for arm in step.run.plan.arms}
        said = f"measured {some(sorted(here))}" if here else "nothing was measured"
        yield DecisionLine(
            "arms",
            "open",
            f"{said}: it takes {NEW} and {' or '.join(BASES)} in one job",
            None,
            "arms",
            f"ncclbench sweep --backends {','.join((*BASES, NEW))}",
        )
        return
    if pairs[0].stands_in:
        yield DecisionLine(
            "arms",
            "open",
            f"{pairs[0].base} and {pairs[0].new} stand in for the two NCCL process groups: {STANDS_IN}",
            None,
            "arms",
            _ON_GPUS,
        )
        return
    told: set[str] = set()
    for step in found.measured:
        for arm, implementation, reason in _really(step):
            wanted = _REALLY.get(step.arms.get(arm, ""))
            if wanted is None or arm in told:
                continue
            if implementation is None:
                told.add(arm)
                yield DecisionLine(
                    arm, "open", f"it is not to be had here: {reason}", step.name, "arms", step.again()
                )
            elif not implementation.endswith(f"({wanted})"):
                told.add(arm)
                yield DecisionLine(
                    arm,
                    "open",
                    f"it really was {implementation}, so nothing is compared: is this torch 2.15?",
                    step.name,
                    "arms",
                    step.again(),
                )


def _really(step: StepFound) -> Iterator[tuple[str, str | None, str | None]]:
    """Each arm of a step with its implementation, or why it has none."""
    found = step.groups or step.p2p
    if found is not None:
        yield from ((arm["arm"], arm["implementation"], arm["reason"]) for arm in found.arms)
    elif step.run is not None:
        for arm, described in (step.run.meta.get("arms") or {}).items():
            told = described.get("status", "ok") != "ok" or "implementation" in described
            if told:
                yield arm, described.get("implementation"), described.get("reason")


def _data_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """Wrong data and failed cases, of each arm against the others; what is right in one line."""
    right = 0
    arms = list(dict.fromkeys(arm for pair in pairs for arm in (pair.new, pair.base)))
    new = {pair.new for pair in pairs}
    for step in found.of_kind("sweep"):
        by_arm = {arm: [row for row in step.rows if row["arm"] == arm] for arm in arms}
        for status, name in (("wrong", "WRONG DATA"), ("failed", "failed")):
            bad = {arm: [row for row in rows if row["status"] == status] for arm, rows in by_arm.items()}
            whose = [arm for arm in arms if bad[arm]]
            if not whose:
                continue
            cases = some([_case(row) for arm in whose for row in bad[arm]], most=3)
            why = some([str(row["reason"]) for arm in whose for row in bad[arm] if row["reason"]], most=2)
            said = f"{name} on {' and '.join(whose)} in {cases}" + (f": {why}" if why else "")
            word: Word = "against" if set(whose) <= new else "open" if set(whose) & new else "for"
            if word == "open":
                said += "; both sides: mend the machine first"
            yield DecisionLine(
                "data", word, said, step.name, "data", step.again() if word == "open" else None
            )
        measured = [row for arm in new for row in by_arm.get(arm, ()) if row["status"] == "ok"]
        unchecked = sum(row["wrong"] is None for row in measured)
        if unchecked:
            said = f"not checked in {count_text(unchecked, 'case')}"
            yield DecisionLine("data", "open", said, step.name, "data", step.again(check="1"))
        right += len(measured) - unchecked
    if right:
        said = f"right in {count_text(right, 'case')} on {' and '.join(sorted(new))}"
        yield DecisionLine("data", "for", said, None, "data")


def _speed_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """Per pair and family of cases (an operation in a topology), what compare's verdicts come to."""
    seen = set()
    for step in found.of_kind("sweep"):
        for pair in pairs:
            if not {pair.base, pair.new} <= step.arms.keys():
                continue
            rows = step.compared(pair.base, pair.new)
            families: dict[tuple[str, str], list[Row]] = {}
            for row in rows:
                families.setdefault((row["op"], row["topology"]), []).append(row)
            for (op, topology), own in families.items():
                seen.add(pair)
                name = op if topology == WORLD.name else f"{op} in {topology}"
                yield _family_line(step, pair, name, own, len(rows))
    yield from missing(pairs, seen, "speed", "speed", "the time of collectives", "sweep")


def _family_line(step: StepFound, pair: Pair, name: str, rows: Sequence[Row], family: int) -> DecisionLine:
    subject = f"{name} against {pair.base}"
    slower = [row for row in rows if row["verdict"] == "slower" and row["beyond_margin"]]
    said = counted(counts(rows))
    if slower:
        worst = max(slower, key=lambda row: float(row["ratio"]))
        some_of = f"{len(slower)} of {count_text(len(rows), 'case')}"
        said = f"slower beyond the margin in {some_of}, worst {_ratio(worst)}; {said}"
        return DecisionLine(subject, "against", said, step.name, "speed")
    tails = [row for row in rows if row["tail"] == "tail worse"]
    doubtful = [row for row in rows if row["verdict"] in ("unclear", "slower")]
    if 2 * len(doubtful) > len(rows):
        return _unclear_line(step, subject, said, doubtful, family)
    if tails:
        said = f"{said}; the slow tenth is worse in {len(tails)}, worst {_case(tails[0])}"
        return DecisionLine(subject, "open", said, step.name, "speed", step.again())
    extreme = max(rows, key=lambda row: float(row["ratio"] or 0.0))
    return DecisionLine(subject, "for", f"{said}; the slowest {_ratio(extreme)}", step.name, "speed")


def _unclear_line(step: StepFound, subject: str, said: str, rows: Sequence[Row], family: int) -> DecisionLine:
    """Mostly unclear: with how many epochs it would not be, where that is known."""
    settle = step.again()
    needed = _epochs_needed(step, rows, family)
    doubts = [str(row["doubt"]) for row in rows if row["doubt"]]
    if needed is not None and needed > _MOST_EPOCHS:
        said = f"{said}; it would take more than {_MOST_EPOCHS} epochs: a quieter machine first"
    elif needed is not None:
        said = f"{said}; with about {needed:,} epochs a difference as large as the margin would be found"
        iters = needed * (1 if step.run is None else max(1, step.run.plan.iters // step.run.plan.epochs))
        settle = step.again(epochs=str(needed), iters=str(iters))
    elif doubts:
        said = f"{said}; {some(doubts, most=1)}"
    return DecisionLine(subject, "open", said, step.name, "speed", settle)


def _epochs_needed(step: StepFound, rows: Sequence[Row], family: int) -> int | None:
    """Epochs that the noisiest row needs, from how much its ratio varied, or else from the calibration."""
    needed = []
    for row in rows:
        spread = spread_of(row["ci_low"], row["ci_high"], row["epochs"])
        margin = row["margin"]
        if spread and margin and math.isfinite(margin):
            needed.append(epochs_needed(spread, margin, family))
    if not needed and step.run is not None:
        needed = [row["epochs_needed"] for row in forecast(step.run.plan, _calibration(step)).rows]
    known = [epochs for epochs in needed if epochs is not None]
    return max(known, default=None)


def _calibration(step: StepFound) -> Mapping[str, Any] | None:
    """The calibration that the run carries, where it is one."""
    document = None if step.run is None else step.run.meta.get("calibration")
    try:
        msgspec.convert(document, Calibration)
    except ValueError:
        return None
    return document


def _cold_lines(found: Found, pairs: Sequence[Pair]) -> Iterator[DecisionLine]:
    """Making the groups and their first collective together: one side pays earlier than the other.

    Of each pair the step in which that is most, and every one that counts against.
    """
    lines: dict[Pair, list[tuple[float, DecisionLine]]] = {}
    for step in found.of_kind("sweep"):
        if step.run is None:
            continue
        costs = {key: slowest_us(own) for key, own in cold_epochs(step.run).items()}
        for pair in pairs:
            base, new = (costs.get((arm, WORLD.name), {}) for arm in (pair.base, pair.new))
            both = sorted(base.keys() & new.keys())
            if not both:
                continue
            told = ratio([base[epoch] for epoch in both], [new[epoch] for epoch in both])
            line = cold_line(
                f"first use against {pair.base}",
                "making the group and its first collective",
                base_us := max(base[epoch] for epoch in both),
                new_us := max(new[epoch] for epoch in both),
                (told["ci_low"], told["ci_high"]),
                step.name,
            )
            lines.setdefault(pair, []).append((new_us - base_us, line))
    for own in lines.values():
        worse = [line for _, line in own if line.verdict != "for"]
        yield from worse or [max(own, key=lambda each: each[0])[1]]


def _ratio(row: Row) -> str:
    if row["ratio"] is None:
        return f"{_case(row)} has no ratio"
    interval = "" if row["ci_low"] is None else f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    return f"{row['ratio']:.2f}x time{interval} in {_case(row)}"


def _case(row: Row) -> str:
    return f"{row['op']} {row['dtype']} {format_bytes(row['nbytes'])} {row['mode']}"
