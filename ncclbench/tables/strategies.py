"""STRATEGIES: what may be done when a rank has failed, and which phases of a recovery each goes through.

Names of phases are those of ``store.drills.PHASES``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.tables.faults import FAULTS

NOTICES = ("first_notice", "last_notice")
DETACHED = (*NOTICES, "decision", "detach", "first_good_n_minus_1")
REPLACED = (*DETACHED, "replacement_ready", "rejoin", "first_good_n")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One answer to a fault.

    Attributes:
        name: as typed after ``--strategy``.
        description: what survivors do.
        phases: those that it has where all goes well, in their order.
        backends: it works on these by its nature; empty for any.
        needs: what torch must have: "reconfigure" (enable_reconfigure of init_process_group),
            "shrink" (shrink_group, and a process group that supports it), "elastic" (torchrun); None for
            nothing beyond process groups.
        environment: variables that its ranks are started with, besides those of every drill.
        unmeasured: what a drill does not see of it and why, in words; empty where it sees all.
        membership: the class by which its ranks come from group to group, ``module:Class``, as
            ``faults.membership.Membership`` has it; empty where they do not.
        slow_phases: of a drill with ``slow``, which ends nothing by itself; None where they are ``phases``.
    """

    name: str
    description: str
    phases: tuple[str, ...]
    backends: tuple[str, ...] = ()
    needs: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    unmeasured: str = ""
    membership: str = "ncclbench.faults.membership:Rebuilt"
    slow_phases: tuple[str, ...] | None = None

    def phases_of(self, fault: str) -> tuple[str, ...]:
        """The phases that a drill with this fault goes through."""
        known = FAULTS.get(fault)
        if known is not None and not known.ends and self.slow_phases is not None:
            return self.slow_phases
        return self.phases

    @property
    def detaches(self) -> bool:
        """Whether survivors leave the victim out and go on; else they are only looked at."""
        return "detach" in self.phases


_ENTRIES = (
    Strategy(
        "reconfigure",
        "survivors make one new communicator without the victim, later one with the replacement",
        REPLACED,
        backends=("gloo", "nccl2"),
        needs="reconfigure",
        membership="ncclbench.faults.membership:Reconfigured",
    ),
    Strategy(
        "reconfigure+fastpath",
        "the same, nccl2 shrinking and growing its communicator in place of making a new one",
        REPLACED,
        backends=("nccl2",),
        needs="reconfigure",
        membership="ncclbench.faults.membership:Reconfigured",
        environment=(("TORCH_NCCL2_RECONFIGURE_SHRINK_GROW", "1"),),
    ),
    Strategy(
        "shrink",
        "torch's shrink_group: survivors leave the victim out; nobody can join again",
        DETACHED,
        needs="shrink",
        membership="ncclbench.faults.membership:Shrunk",
    ),
    Strategy(
        "rebuild",
        "survivors end their process group and initialise a new one on a fresh prefix of the store",
        REPLACED,
    ),
    Strategy(
        "restart",
        "torchrun's elastic restart: every process is ended and started again",
        (*NOTICES, "replacement_ready", "rejoin", "first_good_n"),
        needs="elastic",
        membership="",
        unmeasured="no pace and no flight recorder are kept: its ranks are torchrun's",
        slow_phases=(),
    ),
    Strategy(
        "abort",
        "nobody does anything: who is told by torch, and who waits until the timeout",
        NOTICES,
        slow_phases=(),
    ),
)

STRATEGIES: dict[str, Strategy] = {entry.name: entry for entry in _ENTRIES}
