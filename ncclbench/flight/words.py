"""What is said of a finding, in one sentence for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ncclbench.flight.agreement import count_of, dtypes_of, elements, family
from ncclbench.flight.cases import Case
from ncclbench.flight.join import Group, is_done
from ncclbench.flight.model import Frame, Operation

_MOST_PIECES = 12


def ranks_words(ranks: Collection[int]) -> str:
    """0, 1, 4-9: runs of three and more are shortened, and of very many runs only the first are said."""
    pieces: list[str] = []
    run: list[int] = []
    for rank in [*sorted(ranks), None]:
        if run and rank != run[-1] + 1:
            pieces += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        if rank is not None:
            run.append(rank)
    if len(pieces) > _MOST_PIECES:
        pieces = [*pieces[:_MOST_PIECES], "and others"]
    return ", ".join(pieces)


def named(ranks: Collection[int], host_of: Mapping[int, str]) -> str:
    """rank 3 (node-01); ranks 3, 4 (node-01); with many hosts these are left to the list of hosts."""
    hosts = list(dict.fromkeys(host_of[rank] for rank in sorted(ranks) if rank in host_of))
    places = f" ({', '.join(hosts)})" if 0 < len(hosts) <= 4 else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_words(ranks)}{places}"


def group_words(group: Group) -> str:
    """group default_pg; group 3 (tp); group 3."""
    words = group.words
    if not words or words == "undefined" or words == group.name:
        return f"group {group.name}"
    return f"group {words}" if words == "default_pg" else f"group {group.name} ({words})"


def operation_words(case: Case) -> str:
    """all_reduce 17 of group default_pg."""
    return f"{case.operation.collective} {case.sequence} of {group_words(case.group)}"


def place(frames: Iterable[Frame]) -> str | None:
    """The innermost place outside torch; the innermost at all where there is none."""
    frames = tuple(frames)
    outside = (one for one in frames if "/torch/" not in one.file and not one.file.startswith("torch/"))
    first = next(outside, frames[0] if frames else None)
    return None if first is None else str(first)


def sentence(case: Case, host_of: Mapping[int, str], missing_dumps: Collection[int]) -> str:
    """What is wrong, who is to blame and who waits."""
    if case.kind == "mismatch":
        said = _mismatch(case, host_of)
    elif case.crossed:
        said = _crossed(case)
    elif case.missing:
        said = _missing(case, host_of)
    else:
        said = _inside(case, host_of, missing_dumps)
    if case.missing or case.kind == "mismatch":
        silent = case.unknown & frozenset(missing_dumps)
        if silent:
            said += f"; {named(silent, host_of)} left no dump"
        if case.unknown - silent:
            said += f"; the ring of {named(case.unknown - silent, host_of)} no longer holds it"
    return said


def _verb(ranks: Collection[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def _missing(case: Case, host_of: Mapping[int, str]) -> str:
    it = _verb(case.missing, "it", "them")
    others = case.waiting or case.arrived
    wait = (
        f"{ranks_words(others)} {_verb(others, 'waits', 'wait')} for {it}"
        if case.waiting
        else f"{ranks_words(others)} did and no longer {_verb(others, 'waits', 'wait')}"
    )
    if len(case.missing) > len(case.arrived) and not case.held_by and case.group.is_known:
        said = (
            f"{named(case.arrived, host_of)} issued {operation_words(case)} and "
            f"{ranks_words(case.missing)} never did: one operation more than they have, or they stopped early"
        )
    else:
        said = f"{named(case.missing, host_of)} never issued {operation_words(case)}; {wait}"
    held = [f"{rank} itself waits in {operation_words(holder)}" for rank, holder in case.held_by.items()]
    if len(held) > 3:
        first = next(iter(case.held_by.values()))
        held = [f"{ranks_words(case.held_by)} themselves wait, the first in {operation_words(first)}"]
    last = _last_words(case)
    if case.shift is not None:
        number, where = case.shift
        less = "the others do not have" if case.mismatched else "it left out"
        held.append(f"{case.operation.collective} {number}, at {where}, is the one that {less}")
    doubt = [case.doubt] if case.doubt is not None else []
    return "; ".join([said + last, *held, *doubt])


def _last_words(case: Case) -> str:
    """Of one missing rank its last operation in the group."""
    if len(case.missing) != 1 or case.held_by:
        return ""
    lane = case.group.lanes.get(next(iter(case.missing)))
    if lane is None:
        return ""
    if not lane.operations:
        return " (it issued nothing in this group)"
    last = lane.operations[-1]
    state = "" if is_done(last) else ", which it has not completed"
    return f" (its last there was {last.collective} {last.sequence}{state})"


def _crossed(case: Case) -> str:
    """Which ranks came first to which, of operations that each side waits in for the other."""
    firsts = [
        f"{ranks_words(one.waiting or one.arrived)} issued {operation_words(one)} first"
        for one in (case, *case.crossed)
    ]
    return (
        f"groups crossed: {', '.join(firsts)}, and each waits for the other; "
        "all ranks must issue operations of several groups in one order"
    )


def _inside(case: Case, host_of: Mapping[int, str], missing_dumps: Collection[int]) -> str:
    arrived = f"{_verb(case.arrived, 'rank', 'ranks')} {ranks_words(case.arrived)}"
    verb = _verb(case.arrived, "waits", "wait") + " in it"
    issued = f"{arrived} issued {operation_words(case)} and {verb if case.waiting else 'nothing after it'}"
    if case.unknown:
        silent = case.unknown & frozenset(missing_dumps)
        reason = "left no dump" if silent == case.unknown else "cannot be seen there"
        are = _verb(case.unknown, "is the suspect", "are the suspects")
        return f"{issued}; {named(case.unknown, host_of)} {reason} and {are}"
    if case.is_lonely:
        return f"{issued}; who else is a member is not recorded"
    waiting = f"{ranks_words(case.waiting)} {_verb(case.waiting, 'has', 'have')} not completed it"
    states = {rank: one.state for rank, one in case.issued.items() if not is_done(one)}
    idle = [rank for rank, state in states.items() if state == "scheduled"]
    if idle and "started" in states.values():
        waiting += f", nor {_verb(idle, 'has', 'have')} {ranks_words(idle)} started it on the device"
    everybody = f"all that are known issued {operation_words(case)} ({arrived})"
    if not case.waiting:
        return f"{everybody} and gave it up: nothing recorded differs; roots and operators are not recorded"
    if case.is_certain:
        return (
            f"{everybody} and {waiting}: stuck inside, and nothing recorded differs; "
            "look at the network, and at the root and the operator, which are not recorded"
        )
    return f"{everybody} and {waiting}: in flight when the dumps were taken, or stuck inside; " + (
        case.doubt or "when they were taken is not recorded"
    )


def _mismatch(case: Case, host_of: Mapping[int, str]) -> str:
    usual = frozenset(case.issued) - case.mismatched
    under = f"(number {case.sequence} of {group_words(case.group)})"
    if case.differs == "root":
        return _roots(case, host_of, under)
    if not usual:
        told = "; ".join(
            f"{ranks_words(ranks)} {_thing(case, case.issued[ranks[0]])}" for ranks in _alike(case)
        )
        return f"different operations under one number: {told} {under}; which is wrong cannot be told"
    odd = _alike(case, case.mismatched)
    told = ", ".join(f"{named(ranks, host_of)} {_thing(case, case.issued[ranks[0]])}" for ranks in odd)
    return f"{told} where {ranks_words(usual)} {_thing(case, case.operation)} {under}{_shift(case)}"


def _roots(case: Case, host_of: Mapping[int, str], under: str) -> str:
    name = case.operation.collective
    if len(case.mismatched) == len(case.issued):
        return f"no rank is the root of {name} {under}: members differ, and which is wrong cannot be told"
    if len(case.mismatched) == 1:
        return f"{named(case.mismatched, host_of)} has another root for {name} than the others {under}"
    return f"{named(case.mismatched, host_of)} each are the root of {name} {under}"


def _alike(case: Case, ranks: Iterable[int] | None = None) -> list[list[int]]:
    """Ranks by what they issued, each set with the same words."""
    found: dict[str, list[int]] = {}
    for rank in sorted(case.issued if ranks is None else ranks):
        if rank in case.issued:
            found.setdefault(_thing(case, case.issued[rank]), []).append(rank)
    return list(found.values())


def _thing(case: Case, operation: Operation) -> str:
    """issued broadcast; issued all_reduce of 5 elements; issued all_reduce of Double."""
    name = operation.collective
    if case.differs == "size":
        count = count_of(operation)
        if count is None:
            count = elements(operation.input_sizes or operation.output_sizes)
        return f"issued {name} of {count} {'element' if count == 1 else 'elements'}"
    if case.differs == "dtype":
        return f"issued {name} of {', '.join(dtypes_of(operation) or ('unknown dtype',))}"
    if case.differs == "splits":
        sent, received = elements(operation.input_sizes), elements(operation.output_sizes)
        return f"issued {name} of {sent} to {received} elements"
    return f"issued {name}"


def _shift(case: Case) -> str:
    """Whether the odd one is ahead or behind by one operation from here on."""
    if len(case.mismatched) != 1:
        return ""
    rank = next(iter(case.mismatched))
    usual = next((r for r in sorted(case.issued) if r not in case.mismatched), None)
    if usual is None:
        return ""
    mine, theirs = case.group.lanes[rank], case.group.lanes[usual]
    number = case.sequence
    here, there = mine.at(number), theirs.at(number)
    my_next, their_next = mine.at(number + 1), theirs.at(number + 1)
    if here is None or there is None:
        return ""
    ahead, behind = my_next is not None and _same(my_next, there), their_next and _same(their_next, here)
    if ahead and behind:
        return ": this and the next in the other order"
    if ahead:
        return ": an operation that the others do not have, and from there on its numbers are one ahead"
    if behind:
        return f": it left out {there.collective}, and from there on its numbers are one behind"
    return ""


def _same(one: Operation, other: Operation) -> bool:
    return (
        family(one.collective) == family(other.collective)
        and count_of(one) == count_of(other)
        and dtypes_of(one) == dtypes_of(other)
    )
