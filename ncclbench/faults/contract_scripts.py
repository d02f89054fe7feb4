"""What is done in each contract case, and what is made of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ncclbench.faults.contract_stage import Stage, Told, agree

# So long after an order a rank is taken to be inside the call, where it waits for the others.
_INSIDE_S = 0.15
_ON_PURPOSE = "killed on purpose"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a case showed: ContractOutcome without its words.

    Attributes:
        outcomes, seconds: by rank.
        consistent: whether all that take part were told the same in time.
        recovered: whether a fresh uuid worked afterwards; None where there is nobody to try it.
    """

    outcomes: Mapping[int, str]
    seconds: Mapping[int, float]
    consistent: bool
    recovered: bool | None


def _seen(told: Mapping[int, Told], recovered: bool, dead: Sequence[int] = (), since_s: float = 0.0) -> Seen:
    """``since_s``: when the fault was, where an order was given before it."""
    outcomes = {rank: one.text for rank, one in told.items()} | dict.fromkeys(dead, _ON_PURPOSE)
    seconds = {rank: min(one.seconds, max(0.0, one.at_s - since_s)) for rank, one in told.items()}
    return Seen(outcomes, seconds, agree(told), recovered)


def reused_uuid(stage: Stage) -> Seen:
    """Everybody comes with a uuid that was used before."""
    everybody = range(stage.nranks)
    handles = stage.begin()
    uuid = stage.fresh_uuid()
    stage.must(everybody, "reconfigure", uuid=uuid, handles=handles)
    handles = stage.handles(everybody)
    told = stage.ask(everybody, "reconfigure", uuid=uuid, handles=handles)
    return _seen(told, stage.recovers(everybody))


def absent_member(stage: Stage) -> Seen:
    """The last rank is dead and listed."""
    handles = stage.begin()
    *survivors, victim = range(stage.nranks)
    stage.kill(victim)
    told = stage.ask(survivors, "reconfigure", uuid=stage.fresh_uuid(), handles=handles)
    return _seen(told, stage.recovers(survivors), [victim])


def stale_handle(stage: Stage) -> Seen:
    """Rank 1's handle is the one from before the last reconfigure."""
    everybody = range(stage.nranks)
    old = stage.begin()
    stage.must(everybody, "reconfigure", uuid=stage.fresh_uuid(), handles=old)
    handles = stage.handles(everybody)
    handles[1] = old[1]
    told = stage.ask(everybody, "reconfigure", uuid=stage.fresh_uuid(), handles=handles)
    # Whether the group they have goes on is part of what is promised.
    faults = stage.sum_faults(everybody) if agree(told) else {}
    words = {rank: "the old group goes on" for rank in everybody if agree(told)}
    words |= {rank: f"the old group is gone: {text}" for rank, text in faults.items()}
    outcomes = {rank: "; ".join([one.text, *_some(words.get(rank))]) for rank, one in told.items()}
    seconds = {rank: one.seconds for rank, one in told.items()}
    goes_on = len(faults) in (0, stage.nranks)
    return Seen(outcomes, seconds, agree(told) and goes_on, stage.recovers(everybody))


def set_of_handles(stage: Stage) -> Seen:
    """The same members in a list, then in a set."""
    everybody = range(stage.nranks)
    handles = stage.begin()
    listed = stage.ask(everybody, "reconfigure", uuid=stage.fresh_uuid(), handles=handles)
    handles = stage.handles(everybody)
    told = stage.ask(everybody, "reconfigure", uuid=stage.fresh_uuid(), handles=set(handles))
    faults = stage.sum_faults(everybody) if agree(told) else {}
    outcomes = {
        rank: one.text if one.kind != "ok" else f"ok: rank {listed[rank].value} by list, {one.value} by set"
        for rank, one in told.items()
    }
    seconds = {rank: one.seconds for rank, one in told.items()}
    is_permutation = sorted(one.value for one in told.values() if one.kind == "ok") == list(everybody)
    by_position = all(listed[rank].value == rank for rank in everybody)
    consistent = is_permutation and by_position and not faults
    return Seen(outcomes | faults, seconds, consistent, stage.recovers(everybody))


def late_victim(stage: Stage) -> Seen:
    """The last rank is stopped, detached, and wakes up to go on with an operation of the old group."""
    handles = stage.begin()
    *survivors, victim = range(stage.nranks)
    stage.stop(victim)
    uuid = stage.fresh_uuid()
    told = stage.ask(survivors, "reconfigure", uuid=uuid, handles=[handles[rank] for rank in survivors])
    stage.tell(victim, "reduce", number=1 << victim)
    stage.wake(victim)
    faults = stage.sum_faults(survivors) if all(one.kind == "ok" for one in told.values()) else {}
    late = stage.await_all([victim])[victim]
    outcomes = {rank: faults.get(rank, one.text) for rank, one in told.items()}
    outcomes[victim] = f"ok, with a sum of {late.value:g}" if late.kind == "ok" else late.text
    seconds = {rank: one.seconds for rank, one in {**told, victim: late}.items()}
    unharmed = all(one.kind == "ok" for one in told.values()) and not faults
    consistent = unharmed and late.kind == "error"
    return Seen(outcomes, seconds, consistent, stage.recovers(range(stage.nranks)))


def two_faults(stage: Stage) -> Seen:
    """The last two ranks are killed while the others wait for them in an operation."""
    stage.begin()
    *survivors, first, second = range(stage.nranks)
    for rank in survivors:
        stage.tell(rank, "reduce", number=1)
    stage.let_run(_INSIDE_S)
    killed_s = time.monotonic()
    stage.kill(first, second)
    told = stage.await_all(survivors)
    return _seen(told, stage.recovers(survivors), [first, second], killed_s)


def fault_during_recovery(stage: Stage) -> Seen:
    """The last rank is killed, and the one before it inside the reconfigure that follows.

    Rank 0 gets the order last, after the second death: so nobody can have come through before it.
    """
    handles = stage.begin()
    *survivors, second, first = range(stage.nranks)
    stage.kill(first)
    order = {"uuid": stage.fresh_uuid(), "handles": handles[:-1]}
    for rank in (*survivors[1:], second):
        stage.tell(rank, "reconfigure", **order)
    stage.let_run(_INSIDE_S)
    killed_s = time.monotonic()
    stage.kill(second)
    stage.tell(survivors[0], "reconfigure", **order)
    told = stage.await_all(survivors)
    return _seen(told, stage.recovers(survivors), [first, second], killed_s)


def _some(text: str | None) -> list[str]:
    return [] if text is None else [text]


SCRIPTS: dict[str, Callable[[Stage], Seen]] = {
    "reused-uuid": reused_uuid,
    "absent-member": absent_member,
    "stale-handle": stale_handle,
    "set-of-handles": set_of_handles,
    "late-victim": late_victim,
    "two-faults": two_faults,
    "fault-during-recovery": fault_during_recovery,
}
