"""Presets: measurements that somebody has chosen beforehand, each a TOML file of one command or several.

Those of the package lie in ``presets/``, one file each, which is all that adding one takes. What a step's
options may be is known to the commands themselves, and checked there.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ncclbench.errors import RequestError, brief
from ncclbench.names import unknown
from ncclbench.plan.model import Device
from ncclbench.units import format_memory, parse_seconds

MOST_STEPS = 64
# What a step's name, which is the name of its folder too, may be: nothing that leads out of the folder.
STEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}\Z"

_FOLDER = Path(__file__).with_name("presets")
_MOST_FILE_BYTES = 1 << 20
_MOST_TEXT = 2000
# Groups of a mesh as wide as the links within a host usually are.
_WIDEST_TP = 8

Scalar = bool | int | float | str
Value = Scalar | list[Scalar]
Options = dict[str, Value]


@dataclass(frozen=True, slots=True)
class World:
    """The ranks that a preset is for.

    Attributes:
        nranks: in the job; ``local_ranks`` on the fullest host.
        device: where tensors are.
        drilled: ranks that a drill would start here.
        launched: torchrun, srun or mpirun has placed the ranks.
    """

    nranks: int
    local_ranks: int
    device: Device
    drilled: int
    launched: bool = False

    @property
    def mesh(self) -> tuple[int, int] | None:
        """Sizes (dp, tp) of a mesh whose inner groups lie on one host; None where there is none."""
        tp = _WIDEST_TP
        while tp > 1:
            if self.local_ranks % tp == 0 and self.nranks % tp == 0 and self.nranks > tp:
                return self.nranks // tp, tp
            tp //= 2
        return None


def _two_ranks(world: World) -> str | None:
    return None if world.nranks > 1 else "takes two ranks, there is one"


# What a step may need, and why it is not there.
NEEDS: dict[str, Callable[[World], str | None]] = {
    "cuda": lambda world: None if world.device == "cuda" else "takes GPUs, there are none",
    "two ranks": _two_ranks,
    "a mesh": lambda world: (
        None
        if world.mesh is not None
        else f"takes ranks that divide into a mesh, like 4 or 8, there are {world.nranks}"
    ),
    "two hosts": lambda world: (
        None if world.nranks > world.local_ranks else "takes two hosts, all ranks are on one"
    ),
    "three to drill": lambda world: (
        None if world.drilled >= 3 else f"a drill takes three ranks, here it would start {world.drilled}"
    ),
    "no launcher": lambda world: (
        "a drill starts its ranks itself: run it on one host without torchrun, srun or mpirun"
        if world.launched
        else None
    ),
}


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One command of a preset.

    Attributes:
        name: of the step and of its folder.
        command: of ncclbench, without options.
        description: what it is for, one sentence.
        needs: names in NEEDS; where one is not met the step is not run, and says why.
        deadline: after so long it is ended.
        options: long names without dashes to values; lists are joined as the command line has them.
        cpu, cuda: the same, over ``options``, on that device alone.
    """

    name: str
    command: str
    description: str = ""
    needs: list[str] = []
    deadline: str = "1h"
    options: Options = {}
    cpu: Options = {}
    cuda: Options = {}

    @property
    def deadline_s(self) -> float:
        """Seconds."""
        return parse_seconds(self.deadline, "deadline")

    def why_not(self, world: World) -> str | None:
        """Why it cannot be run there; None where it can."""
        return next((why for need in self.needs if (why := NEEDS[need](world))), None)

    def options_for(self, world: World) -> Options:
        """The options on the world's device, with ``{dp}`` and ``{tp}`` as large as its mesh has them."""
        dp, tp = world.mesh or (1, world.nranks)
        mine = {**self.options, **(self.cuda if world.device == "cuda" else self.cpu)}
        return {name: _filled(value, {"{dp}": str(dp), "{tp}": str(tp)}) for name, value in mine.items()}


def _filled(value: Value, sizes: Mapping[str, str]) -> Value:
    if isinstance(value, list):
        return [_filled_text(entry, sizes) for entry in value]
    return _filled_text(value, sizes)


def _filled_text(value: Scalar, sizes: Mapping[str, str]) -> Scalar:
    if isinstance(value, str):
        for mark, size in sizes.items():
            value = value.replace(mark, size)
    return value


@dataclass(frozen=True, slots=True)
class Preset:
    """What one file holds.

    Attributes:
        name, title, description: for people.
        source: where it stands, for errors: the path as typed, or the preset's name.
        decision: the question that its steps together answer; whether there is such a one is not looked at.
        steps: in the order in which they are run.
    """

    name: str
    title: str
    description: str
    source: str
    decision: str | None
    steps: tuple[Step, ...]

    @property
    def is_plain_sweep(self) -> bool:
        """Whether it is one sweep and no more: a default for its options."""
        return len(self.steps) == 1 and self.steps[0].command == "sweep" and self.decision is None


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a file; the steps are read one by one, so that errors can name them."""

    name: Annotated[str, msgspec.Meta(pattern=STEP_NAME)]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=_MOST_TEXT)]
    description: Annotated[str, msgspec.Meta(max_length=_MOST_TEXT)] = ""
    decision: Annotated[str, msgspec.Meta(max_length=_MOST_TEXT)] | None = None
    steps: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]


def preset_names() -> tuple[str, ...]:
    """Those of the package: quick first, then by name."""
    found = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    return tuple(sorted(found, key=lambda name: name != "quick"))


def find_preset(text: str) -> Preset:
    """The preset of that name, or in that file: what ends in .toml or holds a slash is a file.

    Raises:
        RequestError: there is none, or it cannot be one; the line names the file, the step and the key.
    """
    if text.endswith(".toml") or os.sep in text:
        return read_preset_file(Path(text), text)
    if text not in preset_names():
        near = unknown("preset", text, preset_names())
        raise RequestError(f"{near}; or name a file like mine.toml")
    return read_preset_file(_FOLDER / f"{text}.toml", f"preset {text}")


def read_preset_file(path: Path, source: str) -> Preset:
    """One file.

    Raises:
        RequestError: as ``find_preset``.
    """
    try:
        fields = tomllib.loads(_content(path, source))
        head = msgspec.convert(fields, _Head)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{source} is no TOML: {brief(error)}") from None
    except RecursionError:
        raise RequestError(f"{source} is nested too deeply to be a preset") from None
    except msgspec.ValidationError as error:
        raise RequestError(f"{source}: {_words_of(error)}") from None
    for key in ("title", "description"):
        if not getattr(head, key).replace("\n", " ").isprintable():
            raise RequestError(f"{source}: {key} holds characters that no terminal shows: leave them out")
    steps: list[Step] = []
    for number, entry in enumerate(head.steps, start=1):
        step = _step(entry, f"{source}: step {_named(entry, number)}")
        if step.name in [other.name for other in steps]:
            raise RequestError(f"{source}: step {step.name!r}: name stands twice: give each step its own")
        steps.append(step)
    return Preset(
        head.name, head.title, " ".join(head.description.split()), source, head.decision, tuple(steps)
    )


def _step(entry: Mapping[str, Any], where: str) -> Step:
    try:
        needs = entry.get("needs", [])
        step = msgspec.convert({**entry, "needs": [needs] if isinstance(needs, str) else needs}, Step)
    except msgspec.ValidationError as error:
        raise RequestError(f"{where}: {_words_of(error)}") from None
    except RecursionError:
        raise RequestError(f"{where} is nested too deeply") from None
    if re.fullmatch(STEP_NAME, step.name) is None:
        raise RequestError(
            f"{where}: name is that of a folder: take up to 60 letters, digits, - and _, no slash, no dot"
        )
    for need in step.needs:
        if need not in NEEDS:
            raise RequestError(f"{where}: needs: {unknown('need', _short(need), NEEDS)}")
    try:
        _ = step.deadline_s
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from None
    for key in ("options", "cpu", "cuda"):
        for name, value in getattr(step, key).items():
            if not all(str(each).isprintable() for each in (value if isinstance(value, list) else [value])):
                raise RequestError(f"{where}: {key}.{_short(name)} holds characters that no option takes")
    if not step.description.isprintable():
        raise RequestError(f"{where}: description is no line of text")
    return step


def _named(entry: Mapping[str, Any], number: int) -> str:
    name = entry.get("name")
    return repr(_short(name)) if isinstance(name, str) and name else str(number)


def _content(path: Path, source: str) -> str:
    try:
        if not os.path.isfile(path):  # unlike Path's, it never raises
            what = "is no file" if os.path.exists(path) else "is not there"
            raise RequestError(f"{source} {what}: name a TOML file, or one of {', '.join(preset_names())}")
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
        if len(content) > _MOST_FILE_BYTES:
            raise RequestError(f"{source} has more than {format_memory(_MOST_FILE_BYTES)}: that is no preset")
        return content.decode("utf-8")
    except (OSError, ValueError) as error:
        what = str(error.strerror) if isinstance(error, OSError) else "it is no text"
        raise RequestError(f"cannot read {source}: {what}") from None


def _words_of(error: msgspec.ValidationError) -> str:
    """What msgspec says, its path first and without the dollar."""
    text, _, path = brief(error).partition(" - at ")
    place = path.strip("`").removeprefix("$").removeprefix(".")
    return f"{place}: {text}" if place else text


def _short(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)[:60]
