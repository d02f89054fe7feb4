"""What is compared: ``--backends`` and ``--arms`` as arms with ids, and the device they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ncclbench.errors import RequestError
from ncclbench.names import unknown
from ncclbench.plan.model import Arm, Device
from ncclbench.tables.backends import find_backend
from ncclbench.tables.settings import SETTINGS


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
        find_backend(backend)
        name = "-".join([backend, *settings])
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
    backend, *settings = text.split()
    for name in settings:
        if name not in SETTINGS:
            near = f"known: {', '.join(SETTINGS)}"
            raise RequestError(f"--arms {text!r}: {name!r} is no setting of an arm, {near}")
    return backend, dict.fromkeys(settings, "")
