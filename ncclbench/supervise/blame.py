"""Who ended a run: naming the rank that died, raised or hung, from what is known of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.environment.host import format_ranges
from ncclbench.plan.model import Plan
from ncclbench.units import format_bytes, noun_text
from ncclbench.worker.board import NOWHERE

# What a rank says whose peer has gone: it is a consequence, not a cause.
_PEER_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "timed out",
    "timeout",
    "remote process has exited",
    "ncclremoteerror",
    "pair closure",
    "store",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank's worker came to a bad end.

    Attributes:
        rank: whose it is; of a hang that nobody stands out in, the rank that tells.
        text: one line: who, what, where.
        sure: it died of a signal or was found hanging, so nobody else's fault made it end.
        names: whether the rank is to blame; False of a hang that nobody stands out in.
    """

    rank: int
    text: str
    sure: bool
    names: bool = True


@dataclass(frozen=True, slots=True)
class RankState:
    """What is known of a rank in a run that has stopped moving.

    Attributes:
        rank, host: who.
        steps: operations it has begun.
        answers: whether it still reacts to a signal.
        where: in which case, arm and epoch.
    """

    rank: int
    host: str
    steps: int
    answers: bool
    where: str


# How many there are.
WEIGHTS = 3


def weight(failure: Failure) -> int:
    """0: nobody else's fault; 1: an error that is not about a peer; 2: one that is, maybe a consequence."""
    if failure.sure:
        return 0
    return 2 if any(word in failure.text.lower() for word in _PEER_WORDS) else 1


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The failure that came before the others: a death by signal, else an error that is not about a peer."""
    return min(failures, key=lambda failure: (weight(failure), failure.rank))


def left_without_a_word(gone: Sequence[int], host: str | None, cause: Failure) -> Failure:
    """Of ranks whose supervisors are gone too; ``cause`` is what others say of the peer that they lost."""
    who = f"rank {gone[0]}{_on(host)}{_others(len(gone))}"
    return Failure(gone[0], f"{who} is gone with its supervisor without a word; {cause.text}", True)


def hung(
    states: Sequence[RankState],
    nranks: int,
    timeout_s: float,
    host_of: Callable[[int], str | None] = lambda rank: None,
) -> Failure:
    """Names the rank a stopped run waits for, or says that none stands out.

    Args:
        states: of the ranks whose supervisor could be asked, at least one.
        nranks: world size.
        host_of: the host of a rank that does not tell; None where it is not known.
    """
    heard = {state.rank for state in states}
    silent = [rank for rank in range(nranks) if rank not in heard]
    waited = f"for {timeout_s:.0f} s"
    if silent:
        who = f"rank {silent[0]}{_on(host_of(silent[0]))}{_others(len(silent))}"
        gone = "never came, or is gone with its supervisor"
        text = f"{who} {gone}; the others have waited {waited}, {states[0].where}"
        return Failure(silent[0], text, True)
    stopped = [state for state in states if not state.answers]
    last = max(state.steps for state in states)
    behind = [state for state in states if state.steps < last]
    arrived = [state.rank for state in states if state.steps == last and state.answers]
    there = f" (arrived: {_ranks(arrived)})" if arrived else ""
    if stopped:
        what = f"does not react (stopped, or stuck in the kernel), nothing moved {waited}{there}"
        return _hanging(stopped, what)
    if behind:
        return _hanging(
            behind, f"has not come to the operation that the others have waited in {waited}{there}"
        )
    text = f"all {nranks} ranks have waited {waited} in one operation, none stands out, {states[0].where}"
    return Failure(states[0].rank, text, True, names=False)


def _hanging(states: Sequence[RankState], what: str) -> Failure:
    first = states[0]
    text = f"rank {first.rank} on {first.host}{_others(len(states))} {what}, {first.where}"
    return Failure(first.rank, text, True)


def _ranks(ranks: Sequence[int]) -> str:
    return f"{noun_text(len(ranks), 'rank')} {format_ranges(ranks)}"


def _on(host: str | None) -> str:
    return "" if host is None else f" on {host}"


def _others(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def where(plan: Plan | None, at: tuple[int, int, int]) -> str:
    """Words for a worker's place: (case, arm, epoch) as its progress tells them."""
    case_number, arm_number, epoch = at
    if plan is None or epoch == NOWHERE:
        return "while starting"
    arm = f" on {plan.arms[arm_number].id}" if arm_number != NOWHERE else ""
    of = f" of {plan.epochs}" if plan.precision is None else ""
    if case_number == NOWHERE:
        return f"between cases{arm}, epoch {epoch + 1}{of}"
    case = plan.planned[case_number]
    redop = f" {case.redop}" if case.redop else ""
    size = f" {format_bytes(case.nbytes)}" if case.nbytes else ""
    return f"in {case.op} {case.dtype}{redop}{size} {case.mode}{arm}, epoch {epoch + 1}{of}"


def stage(request: Mapping[str, Any], at: tuple[int, int, int]) -> str:
    """Words for a worker's place in a program, whose request has ``words`` for its stages in order."""
    number, _, turn = at
    if number == NOWHERE:
        return "while starting"
    return f"in {request['words'][number]}" + ("" if turn == NOWHERE else f", pass {turn + 1}")
