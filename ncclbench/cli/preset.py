"""``--preset``: which one, whether its options exist, and what it says where the command line does not."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import click

from ncclbench.cli import values
from ncclbench.cli.declaring import option, typed_options, under
from ncclbench.cli.jobs import rank_count
from ncclbench.environment.gpu import count_gpus
from ncclbench.errors import NcclbenchError, RequestError
from ncclbench.names import unknown
from ncclbench.plan.build import Method, repetitions
from ncclbench.plan.model import Device
from ncclbench.plan.preset import Options, Preset, Scalar, Step, World, find_preset
from ncclbench.supervise.launcher import Seat

# Commands that can be a step: those that measure and end by themselves.
STEP_COMMANDS = ("env", "sweep", "matrix", "suspects", "overlap", "p2p", "transport", "groups", "drill")

# Options that a preset's file cannot hold, and what to do instead.
NOT_IN_FILES = {
    "preset": "a preset holds no other",
    "out": "give --out on the command line",
    "json": "give --json on the command line",
    "exit-zero": "give --exit-zero on the command line",
    "nproc-per-node": "give --nproc-per-node on the command line",
    "resume": "give --resume on the command line",
    "arm-env": "it names programs of one machine: give --arm-env on the command line",
    "cases-from": "it names files of one machine: give --cases-from without a preset",
    "plan": "a plan says everything itself: ncclbench sweep --plan FILE",
    "plan-only": "it measures nothing",
    "nnodes": "it is for --plan-only",
    "drain-hosts": "a step answers with a document",
    "help": "it measures nothing",
}
# Options one of which takes the other's place.
_INSTEAD = (
    ("sizes", ("min-bytes", "max-bytes", "step-factor", "step-bytes")),
    ("step-factor", ("step-bytes",)),
)
# An arm to compare with is one of those that are asked for.
_WITH_ARMS = ("arms", "backends", "base")
# As the drill's own: where there are no GPUs, and the fewest.
_DRILLED = 4
FEWEST_DRILLED = 3

preset_option = under(
    "What is measured",
    option(
        "--preset",
        metavar="NAME",
        parse=values.path,
        help="Start from one of ncclbench list presets, or from a FILE.toml; what else is given wins.",
    ),
)


def refuse_cases_with_preset(params: Mapping[str, Any]) -> None:
    """Refuse two words on what is measured.

    Raises:
        RequestError: both ``--preset`` and ``--cases-from`` were given.
    """
    if params["preset"] is not None and params["cases_from"]:
        raise RequestError("--preset and --cases-from both say what is measured: leave one away")


def world_of(seat: Seat | None, nproc_per_node: int | None) -> World:
    """The ranks that are here."""
    nranks = rank_count(seat, nproc_per_node)
    return World(
        nranks=nranks,
        local_ranks=nranks if seat is None else seat.local_size,
        device="cuda" if count_gpus() else "cpu",
        drilled=drilled_ranks(nproc_per_node),
        launched=seat is not None,
    )


def drilled_ranks(nproc_per_node: int | None) -> int:
    """How many a drill starts: those asked for, if these are enough, else a rank per GPU, else 4."""
    if nproc_per_node is not None and nproc_per_node >= FEWEST_DRILLED:
        return nproc_per_node
    return count_gpus() or _DRILLED


def load_preset(text: str) -> Preset:
    """The preset, every option of every step checked for both devices.

    Raises:
        RequestError: one line that names the file, the step and the key.
    """
    preset = find_preset(text)
    if preset.decision is not None:
        # Imported here: NumPy and what compares runs are needed by few presets.
        from ncclbench.compare.decisions import DECISIONS

        if preset.decision not in DECISIONS:
            known = unknown("decision", preset.decision[:60], DECISIONS)
            raise RequestError(f"{preset.source}: decision: {known}")
    devices: tuple[Device, ...] = ("cpu", "cuda")
    for step in preset.steps:
        where = f"{preset.source}: step {step.name!r}"
        if step.command not in STEP_COMMANDS:
            raise RequestError(f"{where}: command: {unknown('command', step.command[:60], STEP_COMMANDS)}")
        for device in devices:
            # Of four ranks, which divide into a mesh: whether a name is one does not depend on it.
            _checked(step, where, World(4, 4, device, 4))
    return preset


def _checked(step: Step, where: str, world: World) -> None:
    command = command_called(step.command)
    for key in (name for table in (step.options, step.cpu, step.cuda) for name in table):
        if key in NOT_IN_FILES:
            raise RequestError(f"{where}: {key} cannot be in a preset: {NOT_IN_FILES[key]}")
        if f"--{key}" not in long_options(command):
            known = [name.removeprefix("--") for name in long_options(command)]
            raise RequestError(f"{where}: {unknown(f'option of {step.command}', key[:60], known)}")
    try:
        parsed(command, option_words(command, step.options_for(world)))
    except NcclbenchError as error:
        raise RequestError(f"{where}: {error}") from None
    except click.ClickException as error:
        raise RequestError(f"{where}: {' '.join(error.format_message().split())}") from None


def command_called(name: str) -> click.Command:
    """The command of that name, as the command line has it."""
    command = importlib.import_module(f"ncclbench.cli.{name}").command
    assert isinstance(command, click.Command)
    return command


def long_options(command: click.Command) -> dict[str, click.Option]:
    """The command's options by their long names, dashes included."""
    return {
        name: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
        if name.startswith("--")
    }


def option_words(command: click.Command, options: Options) -> list[str]:
    """The options as words of a command line; each value stands in the word of its option.

    Raises:
        RequestError: a value has not the kind that its option takes.
    """
    words: list[str] = []
    for key, value in options.items():
        entry = long_options(command)[f"--{key}"]
        if entry.is_flag:
            if not isinstance(value, bool):
                raise RequestError(f"{key} is {value!r}: write true or false")
            words += [f"--{key}"] if value else []
            continue
        entries: list[Scalar] = value if isinstance(value, list) else [value]
        if not entries or any(isinstance(each, bool) for each in entries):
            raise RequestError(f"{key} is {value!r}: write a text, a number, or a list of them")
        texts = [str(each) for each in entries]
        if entry.multiple:
            words += [f"--{key}={text}" for text in texts]
        else:
            words.append(f"--{key}={('; ' if key == 'arms' else ',').join(texts)}")
    return words


def parsed(command: click.Command, words: Iterable[str]) -> click.Context:
    """The command's parameters as these words make them; nothing is run.

    Raises:
        RequestError, click.ClickException: they are wrong.
    """
    context = command.make_context(command.name, list(words))
    if command.name == "sweep":
        # What stands in two options that contradict each other is known before any step has run.
        told = {name: context.params[name] for name in ("iters", "epochs", "precision")}
        repetitions(Method(**told), 1)
    return context


def merged(ctx: click.Context, step: Step, world: World) -> dict[str, Any]:
    """The parameters of a command, those of a preset's sweep standing in where nothing was typed.

    Args:
        ctx: of ``sweep``, or of ``plan``, which has most of its options.

    Raises:
        RequestError: the step needs what is not here.
    """
    if (why := step.why_not(world)) is not None:
        raise RequestError(f"step {step.name} of the preset {why}: take another preset")
    typed = {name.removeprefix("--") for name in typed_options(ctx)}
    options = {key: value for key, value in step.options_for(world).items() if key not in typed}
    for one, others in _INSTEAD:
        if one in typed:
            options = {key: value for key, value in options.items() if key not in others}
        elif typed & {*others}:
            options.pop(one, None)
    if typed & {"arms", "backends"}:
        options = {key: value for key, value in options.items() if key not in _WITH_ARMS}
    sweep = command_called(step.command)
    preset = parsed(sweep, option_words(sweep, options)).params
    of_typed = {long_options(ctx.command)[name].name for name in typed_options(ctx)}
    return {
        name: value if name in of_typed or name not in preset else preset[name]
        for name, value in ctx.params.items()
    }
