"""PARSERS of what is typed: every option of every command, and what stands in the environment."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from flying import job
from parsing import Parser, as_typed, command

from ncclbench.cli.app import COMMANDS, group
from ncclbench.environment.gpu import count_gpus
from ncclbench.environment.host import parse_ranges
from ncclbench.environment.variables import looks_secret, recorded_variables, without_secrets
from ncclbench.errors import RequestError
from ncclbench.flight.hosts import place_ranks
from ncclbench.hardware.parts import find_part
from ncclbench.supervise.launcher import expand_nodelist, find_seat

# A job's dump, for the option that names one.
_DUMP = Path(tempfile.mkdtemp(prefix="ncclbench-parsers-")) / "rank0.json"
_DUMP.write_text(json.dumps(job(nranks=2, numbers=4)[0]))
atexit.register(shutil.rmtree, _DUMP.parent, ignore_errors=True)

# Values that options take, of those whose default does not say.
_TAKEN: dict[str, tuple[str, ...]] = {
    "--min-bytes": ("8", "1.5K"),
    "--max-bytes": ("64M", "1GiB"),
    "--step-factor": ("2", "1.5"),
    "--step-bytes": ("1M",),
    "--sizes": ("8,64K,1M", "4"),
    "--in-place": ("no,yes",),
    "--backends": ("gloo", "gloo,gloo"),
    "--arms": ("gloo; gloo hierarchical", "gloo GLOO_SOCKET_IFNAME=lo"),
    "--arm-env": ("new=/bin/sh",),
    "--base": ("gloo",),
    "--statistic": ("p25",),
    "--iters": ("20",),
    "--epochs": ("8",),
    "--precision": ("2%",),
    "--time-budget": ("60s", "500ms", "2min"),
    "--inject": ("gloo:all:10%", "gloo:0,1:50us"),
    "--nproc-per-node": ("4",),
    "--out": ("folder",),
    "--label": ("a label",),
    "--resume": ("run",),
    "--require": ("90%peak", "all_reduce@1G>=450GB/s", "all_reduce@8<=20us"),
    "--gate": ("slower:5%",),
    "--fail-on": ("slower:5%",),
    "--victim": ("1",),
    "--slow-rank": ("2:1.9",),
    "--expect": ("pass",),
    "--topologies": ("world,mesh:dp=2,tp=4", "strided:2", "world"),
    "--kind": ("world", "singleton"),
    "--hosts": ("gpu[1-2]",),
    "--deadline": ("2s",),
    "--budget": ("10s",),
    "--op": ("all_reduce",),
    "--passes": ("10",),
    "--preset": ("quick",),
    "--cases-from": (str(_DUMP),),
    "section": ("settings",),
}
_FALLBACK = ("1", "2", "10s", "name", "all", "world", "pass", "host", "last", "all_reduce", "1G", "gloo")
# Their text is looked at where their command makes its plan, as ``plan`` does.
_READ_BY_PLAN = ("--min-bytes", "--max-bytes", "--step-factor", "--step-bytes", "--sizes", "--backends")


def _parse_of(parameter: click.Parameter) -> Any:
    """The function that makes an option's value of its text."""
    callback = parameter.callback
    names = getattr(getattr(callback, "__code__", None), "co_freevars", ())
    cells = getattr(callback, "__closure__", None) or ()
    inside = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    return inside.get("parse", callback)


def _through_click(owner: click.Command, parameter: click.Parameter) -> Callable[[bytes], Any]:
    def call(content: bytes) -> Any:
        many = parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs == -1
        text = as_typed(content)
        given = {str(parameter.name): (text,) if many else text}
        return parameter.handle_parse_result(click.Context(owner), given, [])

    return call


def _through_plan(name: str) -> Callable[[bytes], Any]:
    few = [] if name in (*_READ_BY_PLAN[:5], "--cases-from") else ["--sizes=8"]
    arms = ["--backends=gloo,gloo"] if name == "--base" else []

    def call(content: bytes) -> Any:
        text = as_typed(content)
        # Whole folders are searched for dumps: "/" and ".." would be this machine, processes and all.
        if name == "--cases-from" and os.path.isdir(text.partition("\0")[0] or "."):
            raise RequestError("a folder of this machine")
        return command("plan", *few, *arms, f"{name}={text}")

    return call


def _seeds_of(name: str, parameter: click.Parameter, call: Callable[[bytes], Any]) -> tuple[bytes, ...]:
    if name in _TAKEN:
        return tuple(text.encode() for text in _TAKEN[name])
    if isinstance(parameter.default, str):
        return (parameter.default.encode(),)
    for text in _FALLBACK:
        try:
            call(text.encode())
        except Exception:  # refused, or a fault that the tests of this entry find
            continue
        return (text.encode(),)
    return ()


def _options() -> dict[str, Parser]:
    """Every option and argument of every command that takes a value, each way of reading it once."""
    found: dict[str, Parser] = {}
    known: set[Any] = set()
    context = click.Context(group)
    for command_name in sorted(COMMANDS, key=lambda name: name != "plan"):
        owner = group.get_command(context, command_name)
        assert owner is not None
        for parameter in owner.params:
            if isinstance(parameter, click.Option) and parameter.is_flag:
                continue
            option = max(parameter.opts, key=len)
            parse = _parse_of(parameter)
            if (option, parse) in known or (command_name != "plan" and parse is None):
                # Without a function of their own: those of plan, under the same name.
                assert parse is not None or (option, None) in known, f"{command_name} {option} is not read"
                continue
            known.add((option, parse))
            is_plan = command_name == "plan" and option not in ("--out", "--machine", "--world-size")
            call = _through_plan(option) if is_plan else _through_click(owner, parameter)
            name = f"{command_name} {option}"
            found[name] = Parser(name, call, _seeds_of(option, parameter, call))
    return found


def _environ(content: bytes) -> Mapping[str, str]:
    lines = as_typed(content).split("\n")
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def _seat(content: bytes) -> Any:
    # Where a store lies is asked of the network unless it is told.
    return find_seat({"MASTER_ADDR": "node1", **_environ(content)}, None)


_SEATS = (
    b"TORCHELASTIC_RUN_ID=x\nRANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_PORT=29500\n"
    b"GROUP_RANK=0\nTORCHELASTIC_RESTART_COUNT=1",
    b"OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
    b"OMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_MCA_ess_base_jobid=77",
    b"PMI_RANK=0\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2",
    b"SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=4\nSLURM_NODEID=1\nSLURM_STEP_TASKS_PER_NODE=2(x2)\n"
    b"SLURM_JOB_ID=9\nSLURM_PROCID=3\nSLURM_LOCALID=1\nSLURM_STEP_NODELIST=n[1-2]",
    b"RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=1\nMASTER_PORT=1234",
)
_NODES = (b"n[0-1,7],m1", b"gpu[001-016]", b"login1", b"r[1-2]n[1-2]")


def _typed(function: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda content: function(as_typed(content))


_TEXTS = (
    Parser("launcher variables", _seat, _SEATS),
    Parser("Slurm node list", _typed(expand_nodelist), _NODES),
    Parser(
        "hosts of ranks",
        _typed(lambda text: place_ranks(text, None, 8)),
        (b"a slots=4\nb slots=4\n", b"gpu[001-004]", b"a:4\nb:4", b"# ours\nn1\nn2\n"),
    ),
    Parser(
        "hosts of so many ranks each",
        _typed(lambda text: place_ranks(text, 4, 8)),
        (b"a\nb\n", b"gpu[1-2]"),
    ),
    Parser(
        "CUDA_VISIBLE_DEVICES",
        _typed(lambda text: count_gpus({"CUDA_VISIBLE_DEVICES": text})),
        (b"0,1", b"GPU-8c3e,1", b"MIG-1", b""),
        refuses=False,
    ),
    Parser("list of processors", _typed(parse_ranges), (b"0-3,8", b"", b"7"), refuses=False),
    Parser(
        "secrets in variables",
        lambda content: recorded_variables(_environ(content)),
        (b"NCCL_ALGO=Ring\nTORCH_LOGS=+x", b"NCCL_TOKEN=hf_abcdefgh"),
        refuses=False,
    ),
    Parser(
        "secrets in a command line",
        _typed(lambda text: [without_secrets(text.split("\n")), looks_secret(text)]),
        (b"--password\nx", b"https://user:pw@host/x", b"AKIAABCDEFGHIJKLMNOP"),
        refuses=False,
    ),
    Parser("name of a GPU", _typed(find_part), (b"NVIDIA H200", b"NVIDIA B200", b"Tesla T4"), refuses=False),
)

TYPED: dict[str, Parser] = {**_options(), **{entry.name: entry for entry in _TEXTS}}
