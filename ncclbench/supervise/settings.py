"""Before anything is timed: which of the arms' settings are in force, in a launch for each team."""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping
from typing import Any

from ncclbench.errors import RequestError
from ncclbench.plan.model import Arm, Plan
from ncclbench.stats.settings import asked_words, found_words
from ncclbench.supervise.conversation import Conversation
from ncclbench.supervise.launch import Job
from ncclbench.tables.settings import ENVIRONMENT_MARK
from ncclbench.worker.protocol import Program

# By arm ``settings`` (store.meta.SettingRead), ``algorithms`` that NCCL chose, and ``reason`` where it was
# not there.
Found = dict[str, dict[str, Any]]


def read_settings(job: Job, plan: Plan, flight: str | None) -> Found:
    """What every arm with settings says of them; arms without are not started.

    Raises:
        Interrupted, MeasurementError: a signal came, or a rank died or hung.
    """
    found: Found = {}
    for team in plan.teams:
        arms = [arm for arm in team if arm.settings and not arm.is_hierarchical]
        if arms:
            found |= _of_team(job, plan, arms, flight)
    return found


def why_left_out(found: Found) -> dict[str, str]:
    """Arms that cannot be what they are called, with the reason."""
    reasons = {}
    for arm, said in found.items():
        for reading in said["settings"]:
            if reading["in_force"] is False:
                reasons[arm] = f"{asked_words(reading)} {found_words(reading)}"
    return reasons


def check_same(found: Found, meta: Mapping[str, Any], measured: Container[str]) -> None:
    """Refuse to go on with an arm in another environment than that in which it was begun.

    Args:
        meta: ``arms`` of the run that is resumed.
        measured: ids of its arms that have units.

    Raises:
        RequestError: another Python, torch or NCCL, or other libraries stand behind an ``@NAME``.
    """
    for arm, said in found.items():
        before = {each["name"]: each["found"] for each in meta.get(arm, {}).get("settings") or ()}
        for reading in said["settings"] if arm in measured else ():
            name, now = reading["name"], reading["found"]
            if name.startswith(ENVIRONMENT_MARK) and before.get(name) not in (None, now):
                raise RequestError(
                    f"{arm} was measured with {before[name]}, and {name} is {now} now: name with --arm-env "
                    "the one it began with, or measure it in a run of its own"
                )


def _of_team(job: Job, plan: Plan, arms: list[Arm], flight: str | None) -> Found:
    request = {
        "arms": [[arm.id, arm.backend, arm.settings] for arm in arms],
        "share_gpu": plan.share_gpu,
        "stages": ["reading"],
        "words": ["reading back settings"],
    }
    found: Found = {}

    def orders(environment: dict[str, Any]) -> Generator[dict[str, Any], Any, Found]:
        for arm in arms:
            of_ranks = yield {"arm": arm.id}
            found[arm.id] = _joined(of_ranks)
        return found

    program = Program("settings", request)
    talk: Conversation[Found] = Conversation(job, program, plan.timeout_s, lambda environment: None, flight)
    return talk.hold(orders)


def _joined(of_ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What all ranks say as one: that of the first, or of the first that says a setting is not in force."""
    first = of_ranks[0]
    settings = []
    for index, reading in enumerate(first["settings"]):
        others = [each["settings"][index] for each in of_ranks]
        settings.append(next((other for other in others if other["in_force"] is False), reading))
    chosen = next((each["algorithms"] for each in of_ranks if each["algorithms"]), None)
    return {"reason": first["reason"], "settings": settings, "algorithms": chosen}
