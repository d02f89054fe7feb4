"""What the orchestrator sees of a fault: a death, a word, silence, or waiting times."""

from __future__ import annotations

import time

from ncclbench.faults.model import Policy, TrialRequest
from ncclbench.faults.orchestrator import Broken, Orchestrator
from ncclbench.faults.stamps import common_waits_us
from ncclbench.faults.talk import Raised, Stopped

# Deaths and words wake it; silence and waiting times are looked at so often.
_LOOK_S = 0.005
# Of waiting times, beyond which nobody will be found: on a busy machine the evidence takes seconds to gather.
_LONGEST_LOOK_S = 30.0


def await_sign(request: TrialRequest, ranks: Orchestrator) -> int:
    """The rank that has failed, told by what is seen and not by what was planned.

    Raises:
        Broken: nothing was seen in time, or a rank has failed with an error of torch's.
    """
    plan = request.plan
    seats = {rank: ranks.seat(rank) for rank in range(plan.nranks)}
    policy = _policy(request)
    within_s = plan.silence_s + _LONGEST_LOOK_S
    deadline = time.monotonic() + within_s
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        for rank in seats:
            if rank in ranks.gone:
                return rank
            raised = ranks.take(rank, Raised)
            if raised is not None:
                if raised.is_fault:
                    return rank
                raise Broken(f"rank {rank} ended by itself: {raised.text}")
            if ranks.has_told(rank, Stopped):
                stopped.add(rank)
        # Whoever has left its steps has no reason to move.
        silent = {rank: seat.silent_s for rank, seat in seats.items() if rank not in stopped}
        longest = max(silent, key=silent.__getitem__, default=None)
        if longest is not None and silent[longest] > plan.silence_s:
            return longest
        if policy is not None:
            slow = policy.look(common_waits_us(seats))
            if slow is not None:
                return slow
        ranks.hear(_LOOK_S)
    raise Broken(f"the orchestrator saw nothing of it within {within_s:.0f} s")


def _policy(request: TrialRequest) -> Policy | None:
    if request.plan.fault != "slow":
        return None
    from ncclbench.faults.straggler import make_policy

    return make_policy(request.plan)
