"""``--arm-env NAME=PATH``: another Python, or another folder of libraries, for the workers of some arms.

Where it is stands on the command line alone: plans and runs are files, and no file says which code is run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncclbench.environ import variable
from ncclbench.errors import RequestError
from ncclbench.plan.model import Arm

# Tells a worker which folder its libraries should come from.
LIBRARIES = "NCCLBENCH_LIBRARIES"
_NCCL = "libnccl.so*"


@dataclass(frozen=True, slots=True)
class ArmEnvironment:
    """How the workers of an arm are started.

    Attributes:
        path: as it was given, absolute.
        python: the interpreter.
        variables: that it is started with, beside those that are there.
    """

    path: str
    python: str
    variables: Mapping[str, str] = field(default_factory=dict)


Environments = Mapping[str, ArmEnvironment]


def parse_environment(text: str, name: str = "--arm-env") -> tuple[str, ArmEnvironment]:
    """The name and what it stands for.

    Args:
        text: ``NAME=PATH``; the path is of a Python, or of a folder with libraries.

    Raises:
        RequestError: no name, or a path at which there is neither.
    """
    label, equals, given = text.partition("=")
    if not equals or not label or not given:
        raise RequestError(f"{name} {text!r}: write NAME=PATH, and @NAME behind a backend in --arms")
    # Not resolved: a Python that is a link knows by its own name which environment it belongs to.
    path = Path(os.path.abspath(os.path.expanduser(given)))
    if os.path.isdir(path):
        return label, _libraries(path, f"{name} {text!r}")
    if not os.path.isfile(path):
        raise RequestError(f"{name} {text!r}: there is no {path} on {os.uname().nodename}")
    if not os.access(path, os.X_OK):
        raise RequestError(
            f"{name} {text!r}: {path} cannot be executed: name a Python, or a folder with libraries"
        )
    return label, ArmEnvironment(str(path), str(path))


def check_environments(arms: Sequence[Arm], environments: Environments) -> None:
    """Whether every environment that arms ask for is there, and every one that is there is asked for.

    Raises:
        RequestError: which is not.
    """
    asked = {arm.environment: arm.id for arm in arms if arm.environment is not None}
    for label, arm in asked.items():
        if label not in environments:
            raise RequestError(f"arm {arm} stands with @{label}: say where it is with --arm-env {label}=PATH")
    for label in environments:
        if label not in asked:
            raise RequestError(
                f"--arm-env {label} is of no arm: put @{label} behind a backend, --arms 'X; X @{label}'"
            )


def _libraries(folder: Path, what: str) -> ArmEnvironment:
    found = sorted(folder.glob("*.so*"))
    if not found:
        raise RequestError(f"{what}: {folder} holds no library (*.so)")
    variables = {LIBRARIES: str(folder), "LD_LIBRARY_PATH": _before(str(folder), "LD_LIBRARY_PATH")}
    # torch finds the NCCL that it was installed with by a path of its own, before any other but this.
    nccl = sorted(folder.glob(_NCCL))
    if nccl:
        variables["LD_PRELOAD"] = _before(str(nccl[0]), "LD_PRELOAD")
    return ArmEnvironment(str(folder), sys.executable, variables)


def _before(first: str, name: str) -> str:
    return ":".join(filter(None, (first, variable(name))))
