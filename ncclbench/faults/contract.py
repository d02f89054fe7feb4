"""What torch does when membership changes and something goes wrong: each case in processes of its own.

The store lives in this process, which is no rank. Whatever torch does, no case takes longer than its orders
with their deadlines, and no process outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from ncclbench.errors import RequestError
from ncclbench.faults.cases import CASES, ORCHESTRATOR_KILLED, Case
from ncclbench.faults.contract_orphans import orchestrator_killed
from ncclbench.faults.contract_rank import ContractRank
from ncclbench.faults.contract_scripts import SCRIPTS, Seen
from ncclbench.faults.contract_stage import Stage
from ncclbench.names import lookup
from ncclbench.store.drills import ContractOutcome
from ncclbench.supervise.rendezvous import meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Slots
from ncclbench.worker.board import Board

# What ranks give to torch, of operations and reconfigures: longer would only make the cases longer.
TORCH_TIMEOUT_S = 2.0
# Beyond that; gloo may wait 10 s for a connection, whatever its timeout is.
_GRACE_S = 13.0


def run_contract(
    names: Sequence[str],
    keep: Callable[[ContractOutcome], None],
    signals: EndSignals,
    timeout_s: float,
    grace_s: float = _GRACE_S,
) -> list[ContractOutcome]:
    """Go through cases on gloo.

    Args:
        names: in CASES.
        keep: gets each outcome as soon as it is there.
        timeout_s: of the process groups; 2 s where it is longer.
        grace_s: a rank that takes longer than the timeout and this is called hung.

    Raises:
        RequestError: a name is unknown, or this torch cannot reconfigure.
        MeasurementError: ranks could not be brought as far as the case.
        Interrupted: an ending signal came. No process is left in any case.
    """
    cases = [lookup(CASES, "contract case", name) for name in names]
    if not hasattr(dist, "_reconfigure"):
        raise RequestError(
            f"torch {torch.__version__} cannot change the membership of a group: "
            "contract cases need torch >= 2.15"
        )
    timeout_s = min(timeout_s, TORCH_TIMEOUT_S)
    outcomes = []
    for case in cases:
        seen = _play(case, signals, timeout_s, timeout_s + grace_s)
        outcome = ContractOutcome(
            case=case.name,
            outcomes={str(rank): text for rank, text in sorted(seen.outcomes.items())},
            seconds={str(rank): seconds for rank, seconds in sorted(seen.seconds.items())},
            consistent=seen.consistent,
            expected=case.expected,
            recovered=seen.recovered,
            command=f"ncclbench drill --contract {case.name}",
        )
        keep(outcome)
        outcomes.append(outcome)
    return outcomes


def _play(case: Case, signals: EndSignals, timeout_s: float, deadline_s: float) -> Seen:
    """One case, from the fork of its ranks to the end of the last."""
    if case.name == ORCHESTRATOR_KILLED:
        return orchestrator_killed(case.nranks, signals, timeout_s, deadline_s)
    meeting = meet_alone()
    board = Board(case.nranks)

    def work(slot: int, pipe: Connection) -> None:
        place = board.place(slot)
        ContractRank(slot, case.nranks, lambda: meeting.worker_store(0), place, timeout_s).serve(pipe)

    with Slots() as slots:
        slots.start(range(case.nranks), board, work)
        return SCRIPTS[case.name](Stage(slots, signals, timeout_s, deadline_s))
