"""Case, Arm and Plan: what a run measures, as plain data that goes to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.settings import ENVIRONMENT_MARK, HIERARCHICAL, SYMM, is_variable
from ncclbench.tables.topologies import Groups

PLAN_SCHEMA = 1

# Under so many epochs nobody looks whether the precision is reached.
FIRST_LOOK = 8

# The margin of equivalence where none is given; the larger of the two counts.
MARGIN_RATIO = 0.03
MARGIN_US = 1.0

# Where an arm's buffers live.
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Case:
    """One condition to measure.

    Attributes:
        op: name in COLLECTIVES.
        dtype: name in DTYPES.
        redop: name in REDOPS, None for operations that reduce nothing.
        root: group rank, None for operations without a root.
        nbytes: the larger of send and receive bytes per rank, whole elements, never rounded otherwise.
        count: elements as given to the library (nccl-tests' count column).
        topology: name of the cut, which begins with a name in TOPOLOGIES.
        mode: name in MODES.
        async_op: issued with async_op=True and waited for.
        in_place: send and receive buffer are one.
        nranks: ranks in each group.
    """

    op: str
    dtype: str
    redop: str | None
    root: int | None
    nbytes: int
    count: int
    topology: str
    mode: str
    async_op: bool
    in_place: bool
    nranks: int

    @property
    def key(self) -> str:
        """The case's name in a run: unique within it, stable over runs, no spaces."""
        parts = [self.op, self.dtype, self.redop or "none", str(self.nbytes), self.topology, self.mode]
        parts.append("async" if self.async_op else "sync")
        parts.append("in-place" if self.in_place else "out-of-place")
        if self.root is not None:
            parts.append(f"root{self.root}")
        parts.append(f"n{self.nranks}")
        return "/".join(parts)

    @property
    def busbw_factor(self) -> float:
        """busbw over algbw, as nccl-tests defines it for this operation."""
        return COLLECTIVES[self.op].busbw_factor(self.nranks)

    def to_json(self) -> dict[str, Any]:
        """The case's keys as every ``rows`` entry carries them."""
        fields = asdict(self)
        fields["async"] = fields.pop("async_op")
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Case:
        """Inverse of ``to_json``; further keys are ignored."""
        names = [name for name in cls.__slots__ if name != "async_op"]
        return cls(async_op=bool(fields["async"]), **{name: fields[name] for name in names})


@dataclass(frozen=True, slots=True)
class Arm:
    """What is compared on the same case: a backend, or a backend with settings.

    Attributes:
        id: short and unique in the run, without space or colon.
        backend: name of the process group.
        settings: what makes it another arm than its backend alone: names in SETTINGS, variables of libraries,
            and ``@NAME`` of an environment, with their values ("" where there is none).
    """

    id: str
    backend: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_hierarchical(self) -> bool:
        """Whether its all_reduce goes in two tiers."""
        return HIERARCHICAL in self.settings

    @property
    def is_symmetric(self) -> bool:
        """Whether its buffers are symmetric windows."""
        return SYMM in self.settings

    @property
    def variables(self) -> dict[str, str]:
        """Variables that its worker processes have beside those of every arm."""
        return {name: value for name, value in self.settings.items() if is_variable(name)}

    @property
    def environment(self) -> str | None:
        """Name of the environment that its workers are started in; None for this one."""
        marked = (name for name in self.settings if name.startswith(ENVIRONMENT_MARK))
        return next((name.removeprefix(ENVIRONMENT_MARK) for name in marked), None)

    @property
    def can_share(self) -> tuple[str | None, frozenset[tuple[str, str]]]:
        """Equal for arms that can be measured by the same worker processes."""
        return self.environment, frozenset(self.variables.items())


@dataclass(frozen=True, slots=True)
class Injection:
    """A slowdown put into an arm on purpose, to see whether it is found.

    Attributes:
        arm: id of the arm.
        ranks: where; None for every rank.
        us: time added to each operation, microseconds; None where ``fraction`` says it.
        fraction: the same as a fraction of the arm's own statistic without it.
    """

    arm: str
    ranks: tuple[int, ...] | None
    us: float | None
    fraction: float | None


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case with what the plan knows of it before anything runs.

    Attributes:
        case: the condition.
        status: "planned", or "skipped" with the reason.
        reason: why it is skipped, one line; None where planned.
        bytes_per_rank: memory it needs on a rank's device while it runs.
    """

    case: Case
    status: Literal["planned", "skipped"]
    reason: str | None
    bytes_per_rank: int


@dataclass(frozen=True)
class Plan:
    """Everything a run will do, fixed before it starts.

    Attributes:
        cases: in the order they are visited, skipped ones included.
        arms: in the order given; the first is the base unless ``base_arm`` says otherwise.
        base_arm: id of the arm that others are compared with.
        nranks: world size.
        iters: timed operations per case and arm in all epochs together; with ``precision`` in the epochs up
            to the first look.
        warmup_iters: untimed operations before each visit, at most; None for 5 that stop early when slow.
        check: checked passes before and after each visit's block; 0 switches the data check off.
        epochs: fresh sets of process groups; with ``precision`` the most there may be.
        epoch_kind: whether an epoch makes new groups or new processes.
        statistic: what verdicts compare, fixed before the run; None: p25 on CPU, median on CUDA.
        margin_ratio: equivalence margin as a fraction.
        margin_us: equivalence margin in microseconds; the larger of the two counts.
        time_budget_s: seconds per case, all arms together, after which no epoch is added; None for no limit.
        timeout_s: seconds without progress after which a rank is called hung.
        share_gpu: ranks may share a GPU; their rows never count as bandwidth.
        seed: of data, order of arms and uneven splits.
        rotation_bytes: what a rank's buffers together should exceed, so that no operation finds its data
            in the cache; 0 for just two slots.
        precision: half-width of the 95 % interval, as a fraction, at which a case has enough epochs; None
            measures all epochs.
        adapts: the iterations of later epochs are chosen from what the first ones cost and how they vary.
        injection: a slowdown to be found, for developers.
        groups: by topology, the global ranks of each of its groups; "world" needs none. Of hierarchical arms
            the tiers.
        meshes: by topology, names and sizes of the mesh's dimensions, where it is a dimension of one.
    """

    cases: tuple[PlannedCase, ...]
    arms: tuple[Arm, ...]
    base_arm: str
    nranks: int
    iters: int
    warmup_iters: int | None
    check: int
    epochs: int
    epoch_kind: Literal["group", "process"]
    statistic: str | None
    margin_ratio: float
    margin_us: float
    time_budget_s: float | None
    timeout_s: float
    share_gpu: bool
    seed: int
    rotation_bytes: int = 0
    precision: float | None = None
    adapts: bool = False
    injection: Injection | None = None
    groups: dict[str, Groups] = field(default_factory=dict)
    meshes: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    @property
    def teams(self) -> tuple[tuple[Arm, ...], ...]:
        """The arms by who can measure them: those of a team stand side by side in the same processes."""
        found: dict[Any, list[Arm]] = {}
        for arm in self.arms:
            found.setdefault(arm.can_share, []).append(arm)
        return tuple(map(tuple, found.values()))

    @cached_property
    def planned(self) -> list[Case]:
        """The cases that will be run; asked for with every case, of which there may be thousands."""
        return [entry.case for entry in self.cases if entry.status == "planned"]

    @property
    def bytes_per_rank(self) -> int:
        """Device memory a rank needs: the largest case's."""
        return max((entry.bytes_per_rank for entry in self.cases if entry.status == "planned"), default=0)

    def iters_in_epoch(self, epoch: int) -> int:
        """Timed operations per case and arm in one epoch, where nothing else is known of the case."""
        planned = self.epochs if self.precision is None else min(self.epochs, FIRST_LOOK)
        share, rest = divmod(self.iters, planned)
        return max(1, share + (epoch % planned < rest))

    def to_json(self) -> dict[str, Any]:
        """Plain data for run.json and for the ranks."""
        fields = asdict(self)
        fields["schema"] = PLAN_SCHEMA
        fields["cases"] = [
            {
                **entry.case.to_json(),
                "status": entry.status,
                "reason": entry.reason,
                "bytes_per_rank": entry.bytes_per_rank,
            }
            for entry in self.cases
        ]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Plan:
        """Inverse of ``to_json``.

        Raises:
            KeyError, TypeError: a field is missing or of another shape; readers turn it into a clear line.
        """
        cases = tuple(
            PlannedCase(Case.from_json(row), row["status"], row["reason"], row["bytes_per_rank"])
            for row in fields["cases"]
        )
        arms = tuple(Arm(row["id"], row["backend"], dict(row["settings"])) for row in fields["arms"])
        plain = {name: fields[name] for name in _PLAIN_FIELDS}
        later = {name: fields[name] for name in _LATER_FIELDS if name in fields}
        injected = fields.get("injection")
        groups = fields.get("groups", {})
        meshes = fields.get("meshes", {})
        return cls(
            cases=cases,
            arms=arms,
            injection=None if injected is None else _injection(injected),
            groups={name: tuple(tuple(group) for group in cut) for name, cut in groups.items()},
            meshes={name: tuple((dim, size) for dim, size in dims) for name, dims in meshes.items()},
            **plain,
            **later,
        )


# What every figure of a run stands under whose ranks shared a GPU.
SHARED_GPU = "ranks share a GPU: no bandwidth figures"


def unplanned(arms: tuple[Arm, ...], nranks: int, share_gpu: bool = False) -> Plan:
    """The plan of a run that another tool or program measured: who measured, and nothing that was asked for.

    Args:
        arms: the tools.
        nranks: the most ranks that its output tells of.
        share_gpu: ranks may share a GPU.
    """
    return Plan(
        cases=(),
        arms=arms,
        base_arm=arms[0].id,
        nranks=nranks,
        iters=0,
        warmup_iters=None,
        check=0,
        epochs=0,
        epoch_kind="process",
        statistic=None,
        margin_ratio=MARGIN_RATIO,
        margin_us=MARGIN_US,
        time_budget_s=None,
        timeout_s=0.0,
        share_gpu=share_gpu,
        seed=0,
    )


# What a plan of an older ncclbench need not have.
_LATER_FIELDS = ("rotation_bytes", "precision", "adapts")
_PLAIN_FIELDS = tuple(
    each.name
    for each in fields(Plan)
    if each.name not in ("cases", "arms", "injection", "groups", "meshes", *_LATER_FIELDS)
)


def _injection(fields: dict[str, Any]) -> Injection:
    ranks = fields["ranks"]
    return Injection(fields["arm"], None if ranks is None else tuple(ranks), fields["us"], fields["fraction"])
