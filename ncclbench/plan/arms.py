"""What is compared: ``--backends`` and ``--arms`` as arms with ids, and the device they share."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from ncclbench.errors import RequestError
from ncclbench.names import unknown
from ncclbench.plan.model import Arm, Device
from ncclbench.tables.backends import BACKENDS, find_backend
from ncclbench.tables.settings import (
    ENVIRONMENT_MARK,
    HIERARCHICAL,
    SETTINGS,
    SYMM,
    is_variable,
    parse_setting,
    readers_of,
    short_name,
)

# Ids become parts of file names, and runs and plans are read with ids of 64 characters at most: the rest is
# for a number.
_LONGEST_NAME = 56


def parse_arms(backends: str | None, arms: str | None, device: Device) -> tuple[Arm, ...]:
    """The arms asked for, or the machine's natural one: nccl2 where ``device`` is "cuda", else gloo.

    Equal arms are told apart by number: gloo, gloo#2.

    Raises:
        RequestError: an unknown backend or setting, an empty entry, or both texts at once.
    """
    if backends is not None and arms is not None:
        raise RequestError("--backends X,Y is short for --arms 'X; Y': give one of them")
    if arms is not None:
        asked = [_with_settings(text) for text in _entries("--arms", arms, ";")]
    elif backends is not None:
        asked = [(name, {}) for name in _entries("--backends", backends, ",")]
    else:
        asked = [("nccl2" if device == "cuda" else "gloo", {})]
    seen: Counter[str] = Counter()
    found = []
    for backend, settings in asked:
        _check_settings(backend, settings)
        name = "-".join([backend, *(short_name(*setting) for setting in settings.items())])[:_LONGEST_NAME]
        seen[name] += 1
        found.append(Arm(name if seen[name] == 1 else f"{name}#{seen[name]}", backend, settings))
    return tuple(found)


def find_base(arms: Sequence[Arm], base: str | None) -> str:
    """The id of the arm others are compared with: the first unless ``base`` names another.

    Raises:
        RequestError: no arm has that id.
    """
    ids = [arm.id for arm in arms]
    if base is None:
        return ids[0]
    if base not in ids:
        raise unknown("arm", base, ids)
    return base


def arms_device(arms: Sequence[Arm], machine: Device, where: str = "here") -> Device:
    """Where the arms' buffers live, given whether the machine has a GPU.

    Without a GPU it is the CPU, and arms that need one are shown as unavailable.

    Args:
        where: that machine is, in words.

    Raises:
        RequestError: no arm can run here, or arms on CPU and GPU at once: arms share their buffers.
    """
    by_device: dict[str, str] = {}
    for arm in arms:
        wanted = find_backend(arm.backend).device
        by_device.setdefault(machine if wanted == "any" else wanted, arm.id)
    if machine == "cpu":
        if "cpu" not in by_device:
            raise RequestError(f"{by_device['cuda']} needs a GPU and none is {where}: take --backends gloo")
        return "cpu"
    if len(by_device) == 2:
        raise RequestError(
            f"{by_device['cpu']} works on CPU memory and {by_device['cuda']} on GPU memory, "
            "and the arms of a run share their buffers: measure them in two runs"
        )
    return "cuda" if "cuda" in by_device else "cpu"


def _entries(flag: str, text: str, separator: str) -> list[str]:
    entries = [entry.strip() for entry in text.split(separator)]
    if "" in entries:
        raise RequestError(f"{flag} {text!r} has an empty entry: separate names by single {separator!r}")
    return entries


def _with_settings(text: str) -> tuple[str, dict[str, str]]:
    """A backend and what stands behind it, by name."""
    try:
        backend, *words = shlex.split(text)
    except ValueError as error:
        raise RequestError(f"--arms {text!r}: {str(error).lower()}") from None
    settings: dict[str, str] = {}
    for word in words:
        name, value = parse_setting(word)
        if name in settings:
            raise RequestError(f"--arms {text!r} sets {name} twice")
        settings[name] = value
    return backend, settings


def _check_settings(name: str, settings: Mapping[str, str]) -> None:
    """Refuse what the backend would not heed.

    Raises:
        RequestError: a setting of another library, or two that contradict each other.
    """
    backend = find_backend(name)
    family = backend.torch_name.partition("-")[0].removesuffix("2")
    for setting in settings:
        if setting in SETTINGS and SETTINGS[setting].nccl_only and family != "nccl":
            raise RequestError(f"{setting} is a setting of NCCL's process groups, {name} has none such")
        if is_variable(setting) and name in BACKENDS and family not in readers_of(setting):
            raise RequestError(
                f"{setting} changes nothing for {name}: {', '.join(readers_of(setting))} reads it"
            )
    least, most = settings.get("min_ctas"), settings.get("max_ctas")
    if least is not None and most is not None and int(least) > int(most):
        raise RequestError(f"min_ctas={least} is more than max_ctas={most}")
    if len([setting for setting in settings if setting.startswith(ENVIRONMENT_MARK)]) > 1:
        raise RequestError(f"{name} stands with two environments: an arm has one")
    if HIERARCHICAL in settings and SYMM in settings:
        raise RequestError("hierarchical has two communicators, symm is for one: take one of them")
