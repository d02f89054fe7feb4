"""The commands by name, loaded when asked for, and every error turned into an exit code."""

from __future__ import annotations

import importlib
import keyword
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from ncclbench import __version__
from ncclbench.cli.output import as_failure, show_failure
from ncclbench.environ import variables
from ncclbench.errors import (
    EXIT_BAD_REQUEST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    Interrupted,
    NcclbenchError,
    RequestError,
)
from ncclbench.names import unknown
from ncclbench.terminal.streams import silence, write

# For rank 0 to say what is wrong, though it be the last to find out.
_OTHERS_SPEAK_S = 2.0

# Each is the object ``command`` of the module of its name here (with a _ after a keyword), imported only when
# it is called: --help must not pay for torch or rich.
COMMANDS = {
    "sweep": "Measure collectives over sizes and backends: table, run folder, report. The main job.",
    "compare": "Compare runs, arms or launches: ratios with verdicts, what changed, a gate for CI.",
    "report": "Write the one-file HTML report of runs.",
    "import": "Read what nccl-tests, rccl-tests, PARAM or OSU printed into a run like any other.",
    "calibrate": "Compare a backend with itself: how far verdicts here can be trusted, and what they find.",
    "plan": "Show what a sweep would run, how long it takes and what it could find, measuring nothing.",
    "matrix": "Measure every pair of ranks or hosts: bandwidth and latency, the odd ones named.",
    "suspects": "Find who is slow: a rank, a host, a link, several at once, or nobody.",
    "overlap": "Measure how much of communication hides behind compute, with a serial control beside it.",
    "p2p": "Measure point-to-point: ways of sending, first messages, orders that deadlock, semantics.",
    "transport": "Move a model's weights from a trainer to generators, one-sided and two-sided, checked.",
    "groups": "Measure what process groups cost, and collectives in several groups at the same time.",
    "drill": "Let a rank fail on purpose: every phase of the recovery timed, sums checked.",
    "flight": "Read flight recorder dumps: who is stuck where, who did not come, who issued another.",
    "env": "Show devices, versions and settings of every rank, and what would spoil timing.",
    "list": "List collectives, backends, topologies and types: here, or why not.",
}

# Those that look at what a launcher says; the others never do.
MEASURING = (
    "sweep",
    "calibrate",
    "matrix",
    "suspects",
    "drill",
    "overlap",
    "p2p",
    "transport",
    "groups",
    "env",
)


class _Commands(click.Group):
    """A group whose commands are modules, imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module = f"{name}_" if keyword.iskeyword(name) else name
            command = importlib.import_module(f"ncclbench.cli.{module}").command
            assert isinstance(command, click.Command)
            return command
        raise unknown("command", name, COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with: ncclbench sweep --ops all_reduce,broadcast",
)
@click.version_option(__version__, prog_name="ncclbench")
@click.pass_context
def group(ctx: click.Context) -> int:
    """Benchmarks of collective communication on torch.distributed, with numbers that can be trusted.

    Every command has --help with an example, and --json for one document on standard output. Exit codes:
    0 done, 1 the answer is bad, 2 the request was wrong, 3 the measurement failed, 130 interrupted.
    """
    if ctx.invoked_subcommand is not None:
        return EXIT_OK
    click.echo(ctx.get_help())
    return EXIT_BAD_REQUEST


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(arguments: list[str]) -> int:
    """Run one command; the exit code. Errors end here: one line on standard error, no traceback."""
    try:
        code = _heeding_ends(arguments)
        for stream in (sys.stdout, sys.stderr):
            write("", stream)  # what cannot be written is an error now, not a traceback at exit
        return code
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except BrokenPipeError:
        silence(sys.stdout)
        return EXIT_OK
    except NcclbenchError as error:
        return _failed(arguments, error.exit_code, str(error), error.run)
    except click.ClickException as error:
        return _failed(arguments, EXIT_BAD_REQUEST, _usage(error))
    except (KeyboardInterrupt, click.Abort):
        return _failed(arguments, EXIT_INTERRUPTED, "interrupted")
    except Exception as error:
        failure = as_failure(error)
        return _failed(arguments, failure.exit_code, str(failure))


def _heeding_ends(arguments: list[str]) -> int:
    """Run it; SIGTERM and SIGHUP end it on the way on which errors do, so that nothing is left half written.

    Commands that measure heed them in a way of their own meanwhile.
    """
    former = {}
    try:
        in_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGTERM, signal.SIGHUP) if in_main else ():
            if signal.getsignal(number) is signal.SIG_DFL:  # not where nohup or a test has its own
                former[number] = signal.signal(number, _end)
        return _invoke(arguments)
    finally:
        for number in former:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(f"ended by {signal.Signals(number).name}", number)


def _invoke(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a path or label beyond the locale must not end a command
            stream.reconfigure(errors="backslashreplace")
    # Not group.main(): it has exit codes and error texts of its own.
    with group.make_context("ncclbench", list(arguments)) as ctx:
        return group.invoke(ctx) or EXIT_OK


def _failed(arguments: list[str], code: int, message: str, run: Path | None = None) -> int:
    rank = _rank(arguments)
    show_failure(_command(arguments), code, message, "--json" in arguments, not rank, run)
    if rank is not None and code == EXIT_BAD_REQUEST:
        # Found before the ranks have met: the launcher kills the others when it sees the first one end.
        time.sleep(_OTHERS_SPEAK_S)
    return code


def _command(arguments: list[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _rank(arguments: list[str]) -> int | None:
    """The rank that a launcher gave this process, of which 0 speaks for all; None where none did."""
    if _command(arguments) not in MEASURING:
        return None
    from ncclbench.supervise.launcher import find_seat

    try:
        seat = find_seat(variables(), None)
    except RequestError:  # no telling which rank this is
        return None
    return None if seat is None else seat.rank


# Letters of nccl-tests that have another name here, as in docs/nccl-tests.md.
_OF_NCCL_TESTS = {
    "-g": "--nproc-per-node",
    "-N": "--epochs",
    "-z": "--modes",
    "-T": "--timeout",
    "-G": "--modes",
    "-C": "--json",
    "-J": "--out",
    "-a": "--json",
    "-R": "--arms",
    "-x": "--arms",
    "-I": "--modes",
    "-K": "-w",
}


def _usage(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for parameter in error.ctx.command.params for name in parameter.opts]
        if len(error.option_name) == 2:
            # No letter is like another: what is near by its writing is another thing.
            theirs = _OF_NCCL_TESTS.get(error.option_name)
            hint = f"see {error.ctx.command_path} --help"
            if theirs in known:
                hint = f"for nccl-tests' {error.option_name} take {theirs}"
            return f"unknown option {error.option_name!r}: {hint}"
        return str(unknown("option", error.option_name, [*known, "--help"]))
    if isinstance(error, click.MissingParameter) and error.ctx is not None:
        return f"{error.format_message().rstrip('.')}: see {error.ctx.command_path} --help"
    return error.format_message()
