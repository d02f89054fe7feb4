"""A preset of several steps before it runs: from its file, or from the folder in which it was begun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncclbench import __version__
from ncclbench.cli.declaring import typed_options
from ncclbench.cli.files import new_run_folder
from ncclbench.cli.jobs import rank_count, typed_command
from ncclbench.cli.preset import (
    NOT_IN_FILES,
    STEP_COMMANDS,
    command_called,
    long_options,
    option_words,
    parsed,
)
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.names import unknown
from ncclbench.plan.preset import Preset, World
from ncclbench.store.files import PRESET_FILE
from ncclbench.store.preset import PRESET_SCHEMA, StoredPreset, StoredStep, read_preset
from ncclbench.supervise.launcher import Seat
from ncclbench.terminal.streams import one_line

if TYPE_CHECKING:
    from ncclbench.store.folder import RunFolder

# On the command line beside a preset of several steps: what is of the whole.
_OF_WHOLE = ("--preset", "--out", "--label", "--nproc-per-node", "--json", "--exit-zero", "--unclear")
# And what goes to every step that has it; a drill's --timeout means something else.
_PASSED_ON = ("--share-gpu", "--timeout", "--epochs", "--seed", "--flight-recorder", "--label", "--unclear")
_NOT_PASSED = {("drill", "--timeout")}


def holds_preset(folder: str | None) -> bool:
    """Whether a folder to resume is that of a preset of several steps."""
    return folder is not None and os.path.isfile(os.path.join(folder, PRESET_FILE))


@dataclass(slots=True)
class Steps:
    """What is to be run, in an open folder.

    Attributes:
        folder: locked.
        stored: what preset.json holds.
        params: of the command: ``as_json``, ``exit_zero`` and ``unclear``.
        seat: from a launcher; None where each step starts its ranks itself.
    """

    folder: RunFolder
    stored: StoredPreset
    params: Mapping[str, Any]
    seat: Seat | None


def new_steps(ctx: click.Context, preset: Preset, world: World, seat: Seat | None) -> Steps:
    """The steps of a preset, in a new folder.

    Raises:
        RequestError: options stand beside it that are of one sweep, or the folder holds something.
    """
    params = ctx.params
    refuse_of_one_sweep(ctx, preset)
    words = _typed_words(ctx)
    steps = []
    for step in preset.steps:
        command = command_called(step.command)
        known = long_options(command)
        mine = {
            name: word
            for name, word in words.items()
            if name in known and (step.command, name) not in _NOT_PASSED
        }
        options = {key: value for key, value in step.options_for(world).items() if f"--{key}" not in mine}
        own_words = [*option_words(command, options), *mine.values()]
        try:
            parsed(command, own_words)
        except RequestError as error:
            raise RequestError(f"{preset.source}: step {step.name!r}: {error}") from None
        steps.append(
            StoredStep(
                name=step.name,
                command=["ncclbench", step.command, *own_words],
                folder=step.name,
                deadline_s=step.deadline_s,
                reason=step.why_not(world),
            )
        )
    stored = StoredPreset(
        schema=PRESET_SCHEMA,
        ncclbench=__version__,
        preset=preset.name,
        decision=preset.decision,
        command=typed_command(),
        nranks=world.nranks,
        local_ranks=world.local_ranks,
        steps=steps,
    )
    if params["out"] is not None and holds_preset(params["out"]):
        refused = RequestError(
            f"{params['out']} already holds a preset: choose another folder with --out, or go on with it: "
            f"ncclbench sweep --resume {params['out']}"
        )
        refused.run = Path(params["out"])
        raise refused
    folder = new_run_folder(params["out"], params["label"] or preset.name)
    return Steps(folder, stored, params, seat)


def refuse_of_one_sweep(ctx: click.Context, preset: Preset, more: tuple[str, ...] = ()) -> None:
    """Refuse options that say what one sweep measures; ``more`` are allowed beside those of the whole.

    Raises:
        RequestError: some were typed.
    """
    beside = [name for name in typed_options(ctx) if name not in (*_OF_WHOLE, *_PASSED_ON, *more)]
    if beside:
        count = len(preset.steps)
        has = "is no plain sweep" if count == 1 else f"has {count} steps"
        raise RequestError(
            f"{', '.join(beside)} is for one sweep, and {preset.source} {has}: leave it out, "
            "or change it in a copy of the preset's file"
        )


def _typed_words(ctx: click.Context) -> dict[str, str]:
    """What was typed of the options that are passed on, as words again."""
    words = {}
    for name in set(typed_options(ctx)) & {*_PASSED_ON}:
        entry = long_options(ctx.command)[name]
        words[name] = name if entry.is_flag else f"{name}={ctx.params[str(entry.name)]}"
    return dict(sorted(words.items()))


def former_steps(ctx: click.Context, seat: Seat | None) -> Steps:
    """The steps of a folder, to go on with those that are not over.

    Raises:
        RequestError: no preset that can be read, other ranks, options that its steps have of their own.
    """
    from ncclbench.store.folder import RunFolder

    params = ctx.params
    path = Path(params["resume"])
    stored = read_preset(path)
    allowed = ("--resume", "--json", "--exit-zero", "--unclear", "--nproc-per-node")
    beside = [name for name in typed_options(ctx) if name not in allowed]
    if beside:
        raise RequestError(f"--resume takes everything from the preset: leave {', '.join(beside)} away")
    here = rank_count(seat, params["nproc_per_node"] or stored.nranks)
    if here != stored.nranks:
        raise RequestError(
            f"the preset has {stored.nranks} ranks, {here} were launched: resume it as it began"
        )
    if seat is None and stored.local_ranks != stored.nranks:
        raise RequestError(f"{path} was begun on several hosts: resume it under the same launcher")
    if stored.decision is not None:
        # Imported here, as for a preset's file. It is refused now, not after hours of measuring.
        from ncclbench.compare.decisions import DECISIONS

        if stored.decision not in DECISIONS:
            known = unknown("decision", stored.decision[:60], DECISIONS)
            raise RequestError(f"{path / PRESET_FILE}: decision: {known}")
    for step in stored.steps:
        _refuse_foreign(step, path)
    return Steps(RunFolder(path), stored, params, seat)


def _refuse_foreign(step: StoredStep, path: Path) -> None:
    """The file may be anybody's: what is run is one of our commands, with options that a preset may have."""
    where = f"{path / PRESET_FILE}: step {step.name!r}"
    if step.command[:1] != ["ncclbench"] or step.command[1:2] == [] or step.command[1] not in STEP_COMMANDS:
        raise RequestError(f"{where} is no command of a preset")
    for word in step.command[2:]:
        name = word.partition("=")[0].removeprefix("--")
        if not word.startswith("--") or name in NOT_IN_FILES:
            raise RequestError(f"{where} has {word[:60]!r}, which is no option of a preset")
    try:
        parsed(command_called(step.command[1]), step.command[2:])
    except (NcclbenchError, click.ClickException) as error:
        raise RequestError(f"{where}: {one_line(str(error))}") from None
