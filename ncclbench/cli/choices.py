"""Options that several commands share, one by one; those under one heading are in ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncclbench.cli import values
from ncclbench.cli.declaring import Choice, option
from ncclbench.plan.sizes import SWEEP_SIZES, UsualSizes, parse_sizes
from ncclbench.tables.dtypes import DTYPES, find_dtype
from ncclbench.tables.statistics import STATISTICS

# What the options of ``size_choices`` are called in a command's parameters.
SIZE_PARAMETERS = ("sizes", "min_bytes", "max_bytes", "step_factor", "step_bytes")


def size_choices(usual: UsualSizes) -> tuple[Choice, ...]:
    """The options that ``sizes_from`` takes."""
    return (
        option("-b", "--min-bytes", metavar="SIZE", otherwise=usual.smallest, help="Smallest size."),
        option("-e", "--max-bytes", metavar="SIZE", otherwise=usual.largest, help="Largest size."),
        option("-f", "--step-factor", metavar="X", otherwise=usual.factor, help="From a size to the next."),
        option("-i", "--step-bytes", metavar="SIZE", help="From a size to the next, added; instead of -f."),
        option("--sizes", metavar="SIZES", help="Just these, like 8,64K,1M; instead of -b, -e, -f and -i."),
    )


dtypes_choice = option(
    "-d",
    "--dtypes",
    metavar="NAMES",
    default="float32",
    parse=values.names(DTYPES, lambda name: find_dtype(name).name),
    help="Element types, or all.",
)


def backends_choice(help: str, metavar: str = "X,Y") -> Choice:
    """Which process groups, where nothing is asked for the machine's natural one."""
    return option("--backends", metavar=metavar, otherwise="nccl2 on CUDA, else gloo", help=help)


margin_choice = option(
    "--margin",
    metavar="MARGIN",
    default="3%,1us",
    parse=values.margin,
    help="Differences up to it do not matter; the larger of the two counts.",
)
statistic_choice = option(
    "--statistic",
    metavar="|".join(STATISTICS),
    otherwise="p25 on CPU, median on CUDA",
    parse=values.one_of(STATISTICS),
    help="What is compared, fixed before the run.",
)


def iters_choice(help: str, default: str | None = None, otherwise: str | None = None) -> Choice:
    """How much is timed, in all epochs together."""
    return option(
        "-n", "--iters", metavar="N", default=default, otherwise=otherwise, parse=values.whole(1), help=help
    )


def warmup_choice(help: str, default: str | None = None, otherwise: str | None = None) -> Choice:
    """What goes before it untimed."""
    return option(
        "-w",
        "--warmup-iters",
        metavar="N",
        default=default,
        otherwise=otherwise,
        parse=values.whole(0),
        help=help,
    )


def epochs_choice(
    help: str, default: str | None = None, otherwise: str | None = None, least: int = 1
) -> Choice:
    """What intervals are over."""
    return option(
        "--epochs",
        metavar="N",
        default=default,
        otherwise=otherwise,
        parse=values.whole(least, 10_000),
        help=help,
    )


def deadline_choice(help: str, default: str | None = None, otherwise: str | None = None) -> Choice:
    """Of cells that may deadlock."""
    return option(
        "--deadline",
        metavar="TIME",
        default=default,
        otherwise=otherwise,
        parse=values.deadline,
        help=help,
    )


USUAL_WARMUP = warmup_choice("Untimed operations before them, per epoch.", otherwise="5, fewer where slow")
check_choice = option(
    "-c",
    "--check",
    metavar="N",
    default="1",
    parse=values.whole(0),
    help="Passes with checked data before and after each block; 0 checks nothing.",
)
seed_choice = option(
    "--seed",
    metavar="N",
    default="0",
    parse=values.whole(0, 2**31 - 1),
    help="Draws data, order of arms and uneven splits.",
)
folder_choices = (
    option(
        "--out",
        metavar="DIR",
        otherwise="results/<time>-<label>",
        parse=values.path,
        help="The run folder itself.",
    ),
    option("--label", metavar="TEXT", parse=values.text, help="What the run is about, for reports."),
)


def sizes_from(params: Mapping[str, Any], usual: UsualSizes = SWEEP_SIZES) -> tuple[int, ...]:
    """Bytes, ascending and distinct, that the values of ``size_choices`` make.

    Raises:
        RequestError: they make no range.
    """
    return parse_sizes(**{name: params[name] for name in SIZE_PARAMETERS}, usual=usual)
