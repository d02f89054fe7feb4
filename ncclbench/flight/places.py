"""Which rank issued one operation more or less than the others, told by the places in the code.

Where all operations of a loop look alike, one too many on a rank shows only at the end, as one that the
others never issue. With stacks it shows where it happened: from there on the rank's stacks are those of the
others, one number later.
"""

from __future__ import annotations

from ncclbench.flight.cases import Case
from ncclbench.flight.join import Lane
from ncclbench.flight.model import Frame
from ncclbench.flight.words import place

# So many numbers must fit after the shift, or all that there are.
_MOST_COMPARED = 50


def tell_shift(case: Case) -> None:
    """Add to a case of one rank that is ahead or behind of all others by one, where that began."""
    if case.kind != "stuck" or case.crossed or case.held_by:
        return
    ahead = len(case.arrived) == 1 and len(case.missing) > 1
    behind = len(case.missing) == 1 and len(case.arrived) > 1
    if not (ahead or behind):
        return
    (odd,) = case.arrived if ahead else case.missing
    other = min(case.missing if ahead else case.arrived)
    mine, theirs = case.group.lanes.get(odd), case.group.lanes.get(other)
    if case.operation.is_p2p or mine is None or theirs is None:
        return
    longer, shorter = (mine, theirs) if ahead else (theirs, mine)
    number = _shift(longer, shorter) if longer.last == shorter.last + 1 else None
    if number is None:
        return
    # The innermost place may be a function that both called: the first that differs tells more.
    usual = _stack(shorter, number)
    extra = _stack(longer, number)
    case.shift = number, place(frame for frame in extra if frame not in usual) or place(extra)
    if ahead:
        case.mismatched = frozenset({odd})


def _shift(longer: Lane, shorter: Lane) -> int | None:
    """The number that only the longer one has; None where places do not tell it."""
    for number in range(max(longer.first, shorter.first), shorter.last + 1):
        here, there = _stack(longer, number), _stack(shorter, number)
        if not here or not there:
            return None
        if here != there:
            rest = range(number, min(shorter.last, number + _MOST_COMPARED) + 1)
            fits = all(_stack(longer, later + 1) == _stack(shorter, later) for later in rest)
            return number if fits else None
    return None


def _stack(lane: Lane, number: int) -> tuple[Frame, ...]:
    operation = lane.at(number)
    return () if operation is None else operation.frames
