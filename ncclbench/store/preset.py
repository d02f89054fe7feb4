"""preset.json: which steps a preset has, what each is as a command, and how each ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ncclbench.errors import RequestError, brief
from ncclbench.plan.preset import MOST_STEPS, STEP_NAME
from ncclbench.store.bounds import Time
from ncclbench.store.files import PRESET_FILE
from ncclbench.store.folder import replace_file
from ncclbench.units import format_memory

PRESET_SCHEMA = 1

_MOST_BYTES = 16 << 20
_MOST_NAME = 100

StepName = Annotated[str, msgspec.Meta(pattern=STEP_NAME)]

# "done": exit code 0. "bad": 1, the answer is bad. "wrong request": 2. "failed": 3, or the step was ended
# from outside. "interrupted": a signal to the preset ended it. "not run": its turn has not come, or it
# cannot be measured here, as ``reason`` says.
StepStatus = Literal["done", "bad", "wrong request", "failed", "interrupted", "not run"]
# Those that --resume runs no more. "not run" is over only where there is a reason.
OVER: tuple[StepStatus, ...] = ("done", "bad")


class StoredStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a preset.

    Attributes:
        name: as in the preset's file.
        command: the command line, "ncclbench" first; without --out and --json, which every step has.
        deadline_s: seconds after which it is ended.
        folder: of the step's run, relative to the folder of preset.json; it may not be there.
        status: how it ended.
        exit_code: of the command; None where it has not ended by itself.
        seconds: wall-clock time of the last time that it ran; 0 where it has not.
        message: the command's own last line ("message" of its JSON document); "" where there is none.
        reason: why it is not run or what ended it from outside; None where nothing did.
    """

    name: StepName
    command: list[str]
    folder: StepName
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 3600.0
    status: StepStatus = "not run"
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    seconds: Time = 0.0
    message: str = ""
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is not to be run again."""
        return self.status in OVER or (self.status == "not run" and self.reason is not None)


class StoredPreset(msgspec.Struct, frozen=True, kw_only=True):
    """The document; keys as in docs/presets.md.

    Attributes:
        schema: of this document; ``ncclbench`` the version that wrote it.
        preset: its name; ``decision`` the question that it ends in, if any.
        command: as typed, without secrets.
        nranks: of every step; ``local_ranks`` those on the fullest host.
        steps: in their order.
    """

    schema: int
    ncclbench: str
    preset: str
    decision: Annotated[str, msgspec.Meta(max_length=_MOST_NAME)] | None
    command: list[str]
    nranks: Annotated[int, msgspec.Meta(ge=1, lt=1 << 24)]
    local_ranks: Annotated[int, msgspec.Meta(ge=1, lt=1 << 24)]
    steps: Annotated[list[StoredStep], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]


def write_preset(folder: Path, stored: StoredPreset) -> None:
    """Replace preset.json: a reader finds the old one or the new one, whole.

    Raises:
        MeasurementError: the system refuses.
    """
    text = json.dumps(msgspec.to_builtins(stored), indent=1, allow_nan=False) + "\n"
    replace_file(folder / PRESET_FILE, text.encode())


def read_preset(folder: Path) -> StoredPreset:
    """What preset.json of a folder says.

    Raises:
        RequestError: there is none, or it cannot be one; the line names the file.
    """
    path = folder / PRESET_FILE
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"{folder} holds no preset that can be read: {PRESET_FILE}: {error.strerror}"
        ) from None
    if len(content) > _MOST_BYTES:
        raise RequestError(f"{path} has more than {format_memory(_MOST_BYTES)}: no preset writes as much")
    try:
        stored = msgspec.json.decode(content, type=StoredPreset)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RequestError(f"{path} is no preset that can be read: {brief(error)}") from None
    if stored.schema != PRESET_SCHEMA:
        raise RequestError(f"{path} has schema {stored.schema}, this ncclbench reads {PRESET_SCHEMA}")
    names = [step.name for step in stored.steps]
    if len({*names}) < len(names) or any(step.folder != step.name for step in stored.steps):
        raise RequestError(f"{path} is no preset that can be read: its steps share names or folders")
    return stored
