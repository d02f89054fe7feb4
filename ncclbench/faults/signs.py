"""What the orchestrator sees of a fault: a death, a word, silence, or waiting times."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ncclbench.environment.host import format_ranges
from ncclbench.faults.model import Policy, Spared, TrialRequest
from ncclbench.faults.orchestrator import Broken, Orchestrator
from ncclbench.faults.stamps import common_waits_us
from ncclbench.faults.talk import Raised, Stopped
from ncclbench.tables.faults import FAULTS
from ncclbench.units import noun_text

# Deaths and words wake it; silence and waiting times are looked at so often.
_LOOK_S = 0.005
# Of waiting times, beyond which nobody will be found: on a busy machine the evidence takes seconds to gather.
_LONGEST_LOOK_S = 30.0


@dataclass(frozen=True, slots=True)
class Sign:
    """Who has failed, told by what is seen and not by what was planned.

    Attributes:
        rank: which.
        words: what was seen of it, as in "rank 2 was killed by SIGKILL".
        may_be_load: a rank that is well can look so where the machine is busy.
    """

    rank: int
    words: str
    may_be_load: bool


def await_sign(request: TrialRequest, ranks: Orchestrator) -> Sign | Spared:
    """The sign of a failed rank; why there is none where a policy leaves all as they are.

    Raises:
        Broken: nothing was seen in time, or a rank has failed with an error of torch's.
    """
    plan = request.plan
    seats = {rank: ranks.seat(rank) for rank in range(plan.nranks)}
    policy = _policy(request)
    # Who was late before the fault, while ranks settled, was not so by it.
    began = max(seat.steps for seat in seats.values())
    within_s = plan.silence_s + _LONGEST_LOOK_S
    deadline = time.monotonic() + within_s
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        for rank in seats:
            if rank in ranks.gone:
                return Sign(rank, f"rank {rank} {ranks.gone[rank]}", False)
            raised = ranks.take(rank, Raised)
            if raised is not None:
                if raised.is_fault:
                    return Sign(rank, f"rank {rank} said that it fails", False)
                raise Broken(f"rank {rank} ended by itself: {raised.text}")
            if ranks.has_told(rank, Stopped):
                stopped.add(rank)
        # Whoever has left its steps has no reason to move.
        silent = {rank: seat.silent_s for rank, seat in seats.items() if rank not in stopped}
        longest = max(silent, key=silent.__getitem__, default=None)
        if longest is not None and silent[longest] > plan.silence_s:
            return Sign(longest, f"rank {longest} stood still for {plan.silence_s:.1f} s", True)
        if policy is not None:
            waits_us = common_waits_us(seats, began)
            slow = policy.look(waits_us)
            if slow is not None:
                return Sign(slow, f"rank {slow} came last nearly always", True)
            spared = policy.why_not(waits_us, min(seat.steps for seat in seats.values()) - began)
            if spared is not None:
                return spared
        ranks.hear(_LOOK_S)
    raise Broken(f"the orchestrator saw nothing of it within {within_s:.0f} s{busy_words()}")


def busy_words() -> str:
    """What to make of a busy machine, to stand behind a sentence; nothing where it is not busy."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load <= cores:
        return ""
    count = "core" if cores == 1 else "cores"
    return (
        f": a load of {load:.1f} on {cores} {count} is too busy to tell, try fewer ranks or an idle machine"
    )


def mistaken(sign: Sign, victim: int) -> str:
    """That another rank than the victim was seen to fail, in words."""
    if not sign.may_be_load:
        return f"{sign.words}, though the fault fell on rank {victim}"
    return f"{sign.words} and was taken for the failed one, which was rank {victim}{busy_words()}"


def told_alike(said: dict[int, str]) -> str:
    """What ranks were told, those that were told the same together: "ranks 0,2 told at once: ..."."""
    by_words: dict[str, list[int]] = {}
    for rank, words in said.items():
        by_words.setdefault(words, []).append(rank)
    return "; ".join(
        f"{noun_text(len(alike), 'rank')} {format_ranges(alike)} {words}" for words, alike in by_words.items()
    )


def _policy(request: TrialRequest) -> Policy | None:
    if FAULTS[request.plan.fault].ends:
        return None
    from ncclbench.faults.straggler import make_policy

    return make_policy(request.plan)
