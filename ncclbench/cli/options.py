"""Headings of options that several commands share, and what their values say together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ncclbench.cli import values
from ncclbench.cli.choices import (
    USUAL_WARMUP,
    backends_choice,
    check_choice,
    dtypes_choice,
    epochs_choice,
    folder_choices,
    iters_choice,
    margin_choice,
    seed_choice,
    size_choices,
    sizes_from,
    statistic_choice,
)
from ncclbench.cli.declaring import Choice, Decorator, option, under
from ncclbench.environment.variables import is_secret
from ncclbench.errors import RequestError
from ncclbench.plan.arms import find_base, parse_arms
from ncclbench.plan.build import Method, Selection
from ncclbench.plan.model import Arm, Device, Injection
from ncclbench.plan.sizes import SWEEP_SIZES
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.units import parse_percent, parse_seconds

MAX_LABEL_IN_NAME = 60


selection_options = under(
    "What is measured",
    option(
        "--ops",
        metavar="NAMES",
        default="all_reduce",
        parse=values.named(COLLECTIVES, "collective"),
        help="Collectives, separated by commas, or all; see ncclbench list.",
    ),
    *size_choices(SWEEP_SIZES),
    dtypes_choice,
    option(
        "-o",
        "--redops",
        metavar="NAMES",
        default="sum",
        parse=values.named(REDOPS, "reduction operator"),
        help="Reduction operators, or all.",
    ),
    option(
        "-r",
        "--root",
        "roots",
        metavar="RANKS",
        default="0",
        parse=values.roots,
        help="Roots of collectives that have one, or all.",
    ),
    option(
        "--topologies",
        metavar="NAMES",
        default="world",
        parse=values.topologies,
        help="How the ranks are cut into groups that run at once; see ncclbench list.",
    ),
    option(
        "--modes",
        metavar="NAMES",
        default="isolated,back-to-back",
        parse=values.named(MODES, "mode"),
        help="isolated: latency; back-to-back: throughput, as nccl-tests prints it; graph: in a CUDA graph.",
    ),
    option(
        "--async",
        "async_op",
        metavar="no,yes",
        default="no",
        parse=values.yes_no,
        help="Issued with async_op=True and waited for.",
    ),
    option(
        "--in-place",
        metavar="no,yes",
        otherwise="the API's natural form",
        parse=values.yes_no,
        help="Send and receive buffer are one.",
    ),
)

arm_options = under(
    "What is compared",
    backends_choice("Backends, interleaved in one job on the same buffers."),
    option(
        "--arms",
        metavar="'X; Y'",
        help="Backends with settings, like 'nccl2; nccl2 NCCL_ALGO=Ring'; see ncclbench list settings.",
    ),
    option(
        "--arm-env",
        metavar="'NAME=PATH; ...'",
        parse=values.environments,
        help="A Python, or a folder of libraries, for arms with @NAME behind their backend.",
    ),
    option("--base", metavar="ARM", otherwise="the first", help="The arm that others are compared with."),
    margin_choice,
    statistic_choice,
)

method_options = under(
    "How it is measured",
    iters_choice(
        "Timed operations per case and arm, in all epochs together.", otherwise="20, with several arms 160"
    ),
    USUAL_WARMUP,
    check_choice,
    epochs_choice(
        "Fresh sets of process groups; intervals are over them.", otherwise="3, with several arms 8"
    ),
    option(
        "--epoch-kind",
        metavar="group|process",
        default="group",
        parse=values.one_of(("group", "process")),
        help="Whether an epoch makes new groups or new processes.",
    ),
    option(
        "--precision",
        metavar="PERCENT",
        otherwise="off",
        parse=parse_percent,
        help="Add epochs to a case until its interval is within so much, or --time-budget is spent.",
    ),
    option(
        "--time-budget",
        metavar="TIME",
        otherwise="off; 60s with --precision",
        parse=parse_seconds,
        help="Per case, all its arms together: no epoch is added after it.",
    ),
    seed_choice,
    option(
        "--inject",
        metavar="ARM:RANKS:AMOUNT",
        parse=values.injection,
        help="Slow an arm on purpose.",
        hidden=True,
    ),
)


def where_options(
    otherwise: str = "GPUs, else 2",
    *,
    least: int = 1,
    ranks: str = "Ranks on this machine, where no torchrun, srun or mpirun says it.",
    timeout: str = "60s",
    hung: str = "After so long without progress a rank is called hung.",
    more: tuple[Choice, ...] = (),
) -> Decorator[Any]:
    """Where ranks are, and when one is called hung.

    Args:
        otherwise: how many ranks there are where nobody says it; ``least``: the fewest that may be asked for.
        ranks, hung: help of the two options; ``timeout``: default of the second.
        more: what stands before them.
    """
    return under(
        "Where it runs",
        *more,
        option(
            "--nproc-per-node",
            metavar="N",
            otherwise=otherwise,
            parse=values.whole(least, 4096),
            help=ranks,
        ),
        option(
            "--share-gpu", flag=True, help="Let ranks share a GPU (NCCL 2.30 or later); no bandwidth then."
        ),
        option("--timeout", metavar="TIME", default=timeout, parse=parse_seconds, help=hung),
    )


launch_options = where_options()

run_options = under(
    "What is kept",
    *folder_choices,
    option(
        "--resume",
        metavar="RUN",
        parse=values.path,
        help="Measure what RUN lacks; needs no other option.",
    ),
)

json_option = under(
    "How it answers",
    option("--json", "as_json", flag=True, help="One JSON document on standard output."),
)

exit_zero_option = under(
    "How it answers",
    option("--exit-zero", flag=True, help="End with 0 on a bad answer, never on wrong data."),
)


def selection_from(params: Mapping[str, Any]) -> Selection:
    """The Selection that the values of ``selection_options`` make.

    Raises:
        RequestError: the sizes make no range.
    """
    return Selection(
        sizes=sizes_from(params),
        ops=params["ops"],
        dtypes=params["dtypes"],
        redops=params["redops"],
        roots=params["roots"],
        topologies=params["topologies"],
        modes=params["modes"],
        async_op=params["async_op"],
        in_place=params["in_place"],
    )


def arms_from(params: Mapping[str, Any], machine: Device) -> tuple[Arm, ...]:
    """The arms asked for with ``arm_options``.

    Raises:
        RequestError: as ``parse_arms``; or a setting looks like a secret, since arms stand in every file.
    """
    arms = parse_arms(params["backends"], params["arms"], machine)
    for arm in arms:
        for name, value in arm.variables.items():
            if is_secret(name, value):
                raise RequestError(
                    f"--arms sets {name}, which looks like a secret, and arms stand in runs and reports: "
                    "set it in the environment instead"
                )
    return arms


def method_from(params: Mapping[str, Any], arms: Sequence[Arm]) -> Method:
    """The Method that the values of the arm, method and launch options make.

    Raises:
        RequestError: ``--base`` is none of the arms.
    """
    margin_ratio, margin_us = params["margin"]
    return Method(
        base_arm=find_base(arms, params["base"]),
        iters=params["iters"],
        warmup_iters=params["warmup_iters"],
        check=params["check"],
        epochs=params["epochs"],
        epoch_kind=params["epoch_kind"],
        statistic=params["statistic"],
        margin_ratio=margin_ratio,
        margin_us=margin_us,
        time_budget_s=params["time_budget"],
        timeout_s=params["timeout"],
        share_gpu=params["share_gpu"],
        seed=params["seed"],
        precision=params["precision"],
        injection=_injection(params["inject"], arms),
    )


def _injection(injection: Injection | None, arms: Sequence[Arm]) -> Injection | None:
    if injection is not None:
        find_base(arms, injection.arm)
    return injection


def folder_name(created: datetime, label: str | None) -> str:
    """Name of a run's folder: the time it began and what of the label a file name can hold."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", label or "")[:MAX_LABEL_IN_NAME].strip("-.")
    return created.strftime("%Y%m%d-%H%M%S") + (f"-{name}" if name else "")
