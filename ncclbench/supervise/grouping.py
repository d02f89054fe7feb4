"""The orders of a run of ``groups``, and how what the workers find becomes lines of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ncclbench.plan.model import Arm, Plan
from ncclbench.plan.schedule import creation_order, split_iterations
from ncclbench.store.groups import GroupCosts, GroupTimes, Reading
from ncclbench.store.lines import Line
from ncclbench.store.p2p import ArmFound, LeftOut
from ncclbench.supervise.conversation import Conversation
from ncclbench.supervise.launch import Job
from ncclbench.tables.groups import MOMENTS
from ncclbench.tables.topologies import Groups
from ncclbench.units import format_bytes
from ncclbench.worker.protocol import Program

Orders = Generator[dict[str, Any], Any, None]
Keep = Callable[[Sequence[Line]], None]

# The stages of the workers' program, with the words for where a rank is.
STAGES = {
    "costs": "making, using and ending the groups",
    "opening": "opening the process groups",
    "together": "the groups at once",
}

# Groups that are timed alone: of hundreds those show what being alone is.
MOST_ALONE = 16
_ALL = -1


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    """What a run measures.

    Attributes:
        parts: names in tables.groups.PARTS; ``arms``: ids and backends; ``nranks``: world size.
        counts: groups that each rank is in, rising; ``ways``: names in MAKINGS.
        kind: name of the cut that the groups are, its groups (none for the world), and the ranks in each.
        at_once: cases of the part "together", one per cut and size; None where that is not asked for.
        orders: names in ISSUE_ORDERS; ``sizes``: bytes, rising, of "together" and "crossed".
        iters: timed repetitions of each group alone and at once, in all epochs together.
        warmup, check: untimed repetitions, and those with checked data on both sides, of each epoch.
        epochs: fresh processes for "costs", fresh groups for "together".
        deadline_s: of one cell; ``timeout_s``: after so long without progress a rank is called hung.
        seed: of data and of the order of visits; ``share_gpu``: ranks may share a GPU.
    """

    parts: tuple[str, ...]
    arms: tuple[Arm, ...]
    nranks: int
    counts: tuple[int, ...]
    ways: tuple[str, ...]
    kind: tuple[str, Groups, int]
    at_once: Plan | None
    topology: str
    orders: tuple[str, ...]
    sizes: tuple[int, ...]
    iters: int
    warmup: int
    check: int
    epochs: int
    deadline_s: float
    timeout_s: float
    seed: int
    share_gpu: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data, as run.json has it under ``asked``: lists as they are typed."""
        plain = (
            "topology",
            "iters",
            "warmup",
            "check",
            "epochs",
            "deadline_s",
            "timeout_s",
            "seed",
            "share_gpu",
        )
        lists = ("parts", "counts", "ways", "orders")
        return {
            **{name: ",".join(map(str, getattr(self, name))) for name in lists},
            "kind": self.kind[0],
            "sizes": ",".join(map(format_bytes, self.sizes)),
            **{name: getattr(self, name) for name in plain},
        }

    @property
    def cuts(self) -> dict[str, Groups]:
        """The cuts of the part "together", by name, in the order of calling."""
        plan = self.at_once
        if plan is None:
            return {}
        world = (tuple(range(plan.nranks)),)
        names = dict.fromkeys(case.topology for case in plan.planned)
        return {name: plan.groups.get(name, world) for name in names}

    @property
    def at_once_sizes(self) -> list[int]:
        """Bytes of the part "together", rising: those that were asked for, in whole elements."""
        return sorted({case.nbytes for case in self.at_once.planned}) if self.at_once else []

    @property
    def left_out(self) -> list[LeftOut]:
        """Cuts that are none of these ranks, and sizes that a cut does not take, each reason once."""
        if self.at_once is None:
            return []
        found = []
        for entry in self.at_once.cases:
            # Of a cut that has no size at all no order of calling is tried either.
            parts = ("together",) if entry.case.topology in self.cuts else ("together", "crossed")
            asked = ",".join(part for part in parts if part in self.parts)
            if entry.reason is not None and asked:
                name, reason = entry.case.topology, entry.reason
                said = reason if reason.startswith(name.partition(":")[0]) else f"{name}: {reason}"
                found.append(LeftOut(part=asked, arm=None, reason=said[:2000]))
        return list({(line.part, line.reason): line for line in found}.values())

    @property
    def program(self) -> Program:
        """What the workers run."""
        arms = [[arm.id, arm.backend] for arm in self.arms]
        request = {
            "arms": arms,
            "arm": arms[0],
            "stages": list(STAGES),
            "words": list(STAGES.values()),
            "plan": None if self.at_once is None else self.at_once.to_json(),
            "share_gpu": self.share_gpu,
        }
        return Program("groups", request)


class GroupsOrders:
    """What the workers of one run are asked to do."""

    def __init__(self, plan: GroupsPlan, keep: Keep, tell: Callable[[str], None]) -> None:
        """``keep`` gets lines as they come; ``tell`` where the measurement is."""
        self._plan = plan
        self._keep = keep
        self._tell = tell
        self._here = list(range(len(plan.arms)))
        self._known: set[int] = set()
        self._refused: set[tuple[int, str]] = set()

    @property
    def known(self) -> list[str]:
        """Ids of the arms of which the run says what they are."""
        return [self._plan.arms[index].id for index in sorted(self._known)]

    @property
    def available(self) -> list[Arm]:
        """Arms that can be had, as far as known."""
        return [self._plan.arms[index] for index in self._here]

    def _found(self, index: int, implementation: str | None, device: str | None, reason: str | None) -> None:
        """Keep what an arm is, once; one that cannot be had is asked for nothing more."""
        if reason is not None and index in self._here:
            self._here.remove(index)
        if index not in self._known:
            self._known.add(index)
            arm = self._plan.arms[index].id
            self._keep([ArmFound(arm=arm, implementation=implementation, device=device, reason=reason)])

    def together(self) -> Orders:
        """The part "together", in one launch: fresh groups for each epoch."""
        plan = self._plan
        self._keep(plan.left_out)
        if plan.at_once is None or "together" not in plan.parts:
            return
        for epoch in range(plan.epochs):
            order = [self._here[at] for at in creation_order(len(self._here), plan.seed, epoch)]
            found = yield {"stage": "opening", "epoch": epoch, "arms": order}
            for index in sorted(found):
                self._found(index, *found[index])
            cases = [(index, nbytes) for index in self._here for nbytes in plan.at_once_sizes]
            for at in creation_order(len(cases), plan.seed, epoch):
                yield from self._at_once(plan.at_once, epoch, *cases[at])

    def _at_once(self, cases: Plan, epoch: int, index: int, nbytes: int) -> Orders:
        plan = self._plan
        numbers = [number for number, case in enumerate(cases.planned) if case.nbytes == nbytes]
        if not numbers:
            return
        cuts = [plan.cuts[cases.planned[number].topology] for number in numbers]
        groups = [(cut, number) for cut, own in enumerate(cuts) for number in range(len(own))]
        alone = groups[:: max(1, -(-len(groups) // MOST_ALONE))]
        self._tell(f"groups at once on {plan.arms[index].id}, {format_bytes(nbytes)}, epoch {epoch + 1}")
        times, wrong = yield {
            "stage": "together",
            "epoch": epoch,
            "arm": index,
            "cases": numbers,
            "kinds": [(0, _ALL), *alone],
            "iterations": split_iterations(plan.iters, plan.epochs)[epoch],
            "warmup": plan.warmup,
            "check": plan.check,
        }
        lines = []
        for cut, number in groups:
            members = list(cuts[cut][number])
            case = cases.planned[numbers[cut]]
            # The slowest of its ranks: what the group's next step waits for.
            by_kind = times[members, :, cut].max(axis=0)
            own = by_kind[1 + alone.index((cut, number))] if (cut, number) in alone else None
            lines.append(
                GroupTimes(
                    op=case.op,
                    nbytes=case.nbytes,
                    arm=plan.arms[index].id,
                    epoch=epoch,
                    topology=case.topology,
                    number=number,
                    ranks=members,
                    at_once=len(groups),
                    together_us=_rounded(by_kind[0]),
                    alone_us=None if own is None else _rounded(own),
                    wrong=round(float(wrong[members, cut].sum())),
                )
            )
        self._keep(lines)

    def costs(self, job: Job, flight: str | None) -> None:
        """The part "costs": every number of groups, way and arm in turn, each in processes of its own.

        Args:
            flight: as in ``Assignment``.

        Raises:
            Interrupted, MeasurementError: a signal came, or a rank died or hung.
        """
        plan = self._plan
        cells = [
            (index, way, count)
            for index in range(len(plan.arms))
            for way in plan.ways
            for count in plan.counts
        ]
        for epoch in range(plan.epochs):
            for at in creation_order(len(cells), plan.seed, epoch):
                index, way, count = cells[at]
                if index not in self._here or (index, way) in self._refused:
                    continue
                self._tell(f"{count} groups by {way} on {plan.arms[index].id}, epoch {epoch + 1}")
                order = {
                    "stage": "costs",
                    "epoch": epoch,
                    "arm": index,
                    "way": way,
                    "kind": plan.kind[0],
                    "cut": plan.kind[1],
                    "groups": count,
                }
                conversation: Conversation[Any] = Conversation(
                    job, plan.program, plan.timeout_s, lambda environment: None, flight
                )
                self._cost(order, conversation.hold(partial(_one, order)))

    def _cost(self, order: dict[str, Any], found: dict[str, Any]) -> None:
        plan, index = self._plan, order["arm"]
        reason = found["reason"]
        if reason is not None:
            if found["missing"] and index not in self._known:
                self._found(index, None, None, reason)
            else:
                self._refused.add((index, order["way"]))
                said = f"{order['way']}: {reason}"
                self._keep([LeftOut(part="costs", arm=plan.arms[index].id, reason=said[:2000])])
            return
        self._found(index, found["implementation"], found["device"], None)
        times = found["times"]
        new, first, later, destroy, suspend, resume = (_rounded(row) for row in times[:6])
        readings = [_reading(of_ranks) for of_ranks in found["readings"]]
        line = GroupCosts(
            arm=plan.arms[index].id,
            implementation=found["implementation"],
            way=order["way"],
            kind=plan.kind[0],
            groups=order["groups"],
            group_size=plan.kind[2],
            epoch=order["epoch"],
            peers=found["peers"],
            new_us=new,
            first_us=first,
            later_us=later,
            p2p_us=_rounded(times[6:].sum(axis=0)),
            destroy_us=destroy,
            suspend_us=suspend if found["suspends"] else None,
            resume_us=resume if found["suspends"] else None,
            readings=dict(zip(MOMENTS, readings, strict=True)),
            communicators=found["communicators"],
            counted=found["counted"],
        )
        self._keep([line])


def _one(order: dict[str, Any], environment: dict[str, Any]) -> Generator[dict[str, Any], Any, Any]:
    """A conversation of a single order."""
    return (yield order)


def _reading(of_ranks: Sequence[dict[str, int | None]]) -> Reading:
    """By field what was by rank; None where a rank has none of it."""
    columns = {name: [reading[name] for reading in of_ranks] for name in of_ranks[0]}
    return Reading(**{name: None if None in column else column for name, column in columns.items()})  # type: ignore[arg-type]


def _rounded(times_us: Any) -> list[float]:
    """To 1 ns, finer than any clock read here."""
    rounded: list[float] = np.round(times_us, 3).tolist()
    return rounded
