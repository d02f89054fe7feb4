"""Whether a plan from a file can be run as it stands: it must be one that ``build_plan`` could have made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from ncclbench.errors import RequestError
from ncclbench.plan import memory
from ncclbench.plan.machine import Machine, rounded_bytes
from ncclbench.plan.model import Arm, Case, Device, Plan, PlannedCase
from ncclbench.tables.backends import find_backend
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.settings import parse_setting, tiers
from ncclbench.tables.topologies import WORLD, Groups, Placement, parse_topology
from ncclbench.units import MAX_BYTES, count_text

_MOST_RANKS = 1 << 20
_MOST_COUNT = 1_000_000
_MOST_EPOCHS = 10_000
_MOST_SECONDS = 1e9
_LARGEST_SEED = 2**31 - 1
# As names of arms are written, and a letter or digit first: they become parts of file names.
_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._#=-]{0,63}")


def check_runnable(plan: Plan) -> None:
    """Refuse what no plan of ours holds: sizes that are none, too little memory for them, a root nobody has.

    Args:
        plan: its fields of the right types, and its names in the tables.

    Raises:
        RequestError: what is wrong, and where.
    """
    _check_numbers(plan)
    for arm in plan.arms:
        if not _ARM.fullmatch(arm.id):
            raise RequestError(f"an arm is called {arm.id[:40]!r}")
        check_arm(arm)
    keys = set()
    for entry in plan.cases:
        if entry.case.key in keys:
            raise RequestError(f"it has {entry.case.key} twice")
        keys.add(entry.case.key)
        if entry.status == "planned":
            _check_case(plan, entry)
        elif not entry.reason or "\n" in entry.reason:
            raise RequestError(f"{entry.case.key} is skipped for no reason of a line")
    if not plan.planned:
        raise RequestError("none of its cases is planned")


def check_hosts(plan: Plan, place: Placement, device: Device, machine: Machine, local_ranks: int) -> None:
    """Refuse to run a plan where its groups are not those of the hosts, or its largest case does not fit.

    Args:
        place: which rank is on which host.
        device: where buffers live.
        machine: a host; ``local_ranks`` are on the fullest.

    Raises:
        RequestError: what does not fit, and how many ranks the hosts have.
    """
    for mode in dict.fromkeys(case.mode for case in plan.planned):
        if device not in MODES[mode].devices:
            raise RequestError(f"it measures {mode}, which needs CUDA: plan it anew for this machine")
    for name, wanted in _groups_of(plan, place):
        if wanted != plan.groups.get(name):
            hosts = place.by_host()
            sizes = [len(ranks) for ranks in hosts]
            least, full = min(sizes), max(sizes)
            each = count_text(full, "rank") if least == full else f"{least} to {full} ranks"
            raise RequestError(
                f"its groups of {name} are not those of these hosts ({len(hosts)} with {each} each): start "
                "as many ranks on each as it was planned for, or plan it anew"
            )
    most = machine.most_bytes(device, local_ranks)
    if most is not None and plan.bytes_per_rank > most:
        raise RequestError(
            f"its largest case needs {rounded_bytes(plan.bytes_per_rank)} per rank, which "
            f"{machine.shortage(device, local_ranks)}: plan it anew for this machine"
        )


def check_arm(arm: Arm) -> None:
    """Refuse settings that no command line gives: what a file holds may have been written by anybody.

    Raises:
        RequestError: such a one, or an unknown backend.
    """
    find_backend(arm.backend)
    for name, value in arm.settings.items():
        word = f"{name}={value}" if value else name
        try:
            is_one = parse_setting(word) == (name, value)
        except RequestError as error:
            raise RequestError(f"arm {arm.id}: {str(error)[:200]}") from None
        if not is_one:
            raise RequestError(f"arm {arm.id} has an unknown setting {word[:40]!r}")


def _check_numbers(plan: Plan) -> None:
    checks: Sequence[tuple[str, float | None, float, float]] = (
        ("nranks", plan.nranks, 1, _MOST_RANKS),
        ("iters", plan.iters, 1, _MOST_COUNT),
        ("warmup_iters", plan.warmup_iters, 0, _MOST_COUNT),
        ("check", plan.check, 0, _MOST_COUNT),
        ("epochs", plan.epochs, 1, _MOST_EPOCHS),
        ("time_budget_s", plan.time_budget_s, 1e-9, _MOST_SECONDS),
        ("timeout_s", plan.timeout_s, 1e-9, _MOST_SECONDS),
        ("seed", plan.seed, 0, _LARGEST_SEED),
        ("rotation_bytes", plan.rotation_bytes, 0, MAX_BYTES),
    )
    for name, value, least, most in checks:
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise RequestError(f"its {name} is {value}: {least:g} to {most:g} can be")
    if not plan.arms:
        raise RequestError("it has no arms")
    injection = plan.injection
    if injection is not None:
        if injection.arm not in [arm.id for arm in plan.arms]:
            raise RequestError(f"it slows an arm {injection.arm[:40]!r} that it has not")
        amounts = [each for each in (injection.us, injection.fraction) if each is not None]
        if len(amounts) != 1 or not 0 <= amounts[0] <= _MOST_SECONDS:
            raise RequestError("it slows an arm by no amount")
        if any(not 0 <= rank < plan.nranks for rank in injection.ranks or ()):
            raise RequestError(f"it slows ranks that are none of {plan.nranks}")


def _check_case(plan: Plan, entry: PlannedCase) -> None:
    case = entry.case
    backends = [find_backend(arm.backend) for arm in plan.arms]
    op, dtype = COLLECTIVES[case.op], DTYPES[case.dtype]
    nranks = plan.nranks if case.topology == WORLD.name else case.nranks
    sized = op.sizes(case.nbytes // dtype.itemsize, case.nranks, plan.seed)
    wrong: dict[str, Callable[[], bool]] = {
        "is of another number of ranks": lambda: case.nranks != nranks or case.nranks < op.least_ranks,
        "has no such size": lambda: (
            isinstance(sized, str)
            or (sized.nelements * dtype.itemsize, sized.count) != (case.nbytes, case.count)
            or case.nbytes >= MAX_BYTES
        ),
        "has a root that nobody is": lambda: (
            (case.root is not None) != op.rooted or (case.root is not None and not 0 <= case.root < nranks)
        ),
        "has an operator it cannot have": lambda: (
            (case.redop is not None) != op.reduces
            or (case.redop is not None and REDOPS[case.redop].refusal(dtype) is not None)
        ),
        "has a form that torch has not": lambda: (
            case.in_place not in op.in_place_forms or (case.async_op and not op.asynchronous)
        ),
        "needs other memory than it says": lambda: (
            # Plans of before copies were counted say less.
            entry.bytes_per_rank
            not in (
                memory.case_bytes(case, plan.rotation_bytes, backends),
                memory.case_bytes(case, plan.rotation_bytes),
            )
        ),
    }
    for words, is_wrong in wrong.items():
        if is_wrong():
            raise RequestError(f"{_short(case)} {words}")


def _groups_of(plan: Plan, place: Placement) -> list[tuple[str, Groups | str]]:
    """What the groups of a plan should be on these hosts; those from a file or from dumps can be any."""
    found: list[tuple[str, Groups | str]] = []
    for name in dict.fromkeys(case.topology for case in plan.planned):
        if name == WORLD.name or name.startswith(("file:", "dump:")):
            continue
        (cut,) = parse_topology(name)
        if cut.mesh != plan.meshes.get(name, ()):
            raise RequestError(f"its mesh of {name} is another one")
        found.append((cut.name, cut.groups(place)))
    if any(arm.is_hierarchical for arm in plan.arms):
        found += tiers(place).items()
    return found


def _short(case: Case) -> str:
    return case.key[:120]
