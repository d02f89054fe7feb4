"""docs/nccl-tests.md: each option of theirs has its row, and each option of ours that it names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from ncclbench.cli.app import _OF_NCCL_TESTS, COMMANDS, group
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import find_dtype
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.topologies import parse_topology

PAGE = Path(__file__).resolve().parent.parent / "docs" / "nccl-tests.md"

# nccl-tests 2.19.6 (commit a0b82b2), src/common.cu: longopts and the letters given to getopt_long.
NCCL_TESTS = {
    "-t": "--nthreads",
    "-g": "--ngpus",
    "-b": "--minbytes",
    "-e": "--maxbytes",
    "-i": "--stepbytes",
    "-f": "--stepfactor",
    "-n": "--iters",
    "-m": "--agg_iters",
    "-w": "--warmup_iters",
    "-N": "--run_cycles",
    "-p": "--parallel_init",
    "-c": "--check",
    "-o": "--op",
    "-d": "--datatype",
    "-r": "--root",
    "-z": "--blocking",
    "-y": "--stream_null",
    "-T": "--timeout",
    "-G": "--cudagraph",
    "-C": "--report_cputime",
    "-S": "--report_timestamps",
    "-J": "--output_file",
    "-a": "--average",
    "-R": "--local_register",
    "-x": "--cta_policy",
    "-D": "--device_implementation",
    "-V": "--device_cta_count",
    "-M": "--memory",
    "-u": "--unalign",
    "-I": "--per_iter_timing",
    "-K": "--per_iter_skip",
    "-h": "--help",
}
# The letters of 2.16.9 and 2.17.10, getopt_long's argument.
LETTERS = ("tgbeifnmwNpcodrzyThGCaR", "tgbeifnmwNpcodrzyThGCaRxDVJSM")
# What src/ asks getenv for.
VARIABLES = {
    "NCCL_TESTS_SPLIT",
    "NCCL_TESTS_SPLIT_MASK",
    "NCCL_TESTS_DEVICE",
    "NCCL_TESTS_MIN_BW",
    "NCCL_TESTS_ALLTOALLV_MATRIX_FILE",
    "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE",
    "NCCL_TESTS_ALLTOALLV_SPREAD",
    "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY",
}
# rccl-tests (commit ae3e635), src/common.cu: what nccl-tests has not, or has with another meaning.
RCCL_TESTS = {
    "-Y": "--memory_type",
    "-s": "--stress_cycles",
    "-u": "--cumask",
    "-O": "--out_of_place",
    "-F": "--cache_flush",
    "-E": "--rotating_tensor",
    "-q": "--delay",
}


class Row(NamedTuple):
    theirs: str
    command: str
    options: list[str]
    words: str


def rows(title: str) -> list[Row]:
    """The table of four columns under a heading."""
    text = PAGE.read_text("utf-8")
    part = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    lines = dict(zip(part[1::2], part[2::2], strict=True))[title].splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]
    assert all(len(row) == 4 for row in cells), title
    return [Row(row[0].strip("`"), row[1], re.findall(r"`([^`]+)`", row[2]), row[3]) for row in cells]


TABLES = {title: rows(title) for title in ("Options", "Environment", "rccl-tests")}
ALL = [row for table in TABLES.values() for row in table]


def options_of(name: str) -> set[str]:
    command = group.get_command(click.Context(group, info_name="ncclbench"), name)
    assert command is not None, name
    return {word for option in command.get_params(click.Context(command)) for word in option.opts}


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("Options", [f"{letter}, {name}" for letter, name in NCCL_TESTS.items()]),
        ("Environment", sorted(VARIABLES)),
        ("rccl-tests", [f"{letter}, {name}" for letter, name in RCCL_TESTS.items()]),
    ],
)
def test_each_of_theirs_has_one_row(title: str, wanted: list[str]) -> None:
    assert sorted(row.theirs for row in TABLES[title]) == sorted(wanted)


@pytest.mark.parametrize("letters", LETTERS)
def test_older_versions_have_no_others(letters: str) -> None:
    assert {f"-{letter}" for letter in letters} <= set(NCCL_TESTS)


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.theirs)
def test_what_a_row_names_is_there(row: Row) -> None:
    assert row.words.endswith(".")
    if row.command == "–":
        assert row.options == []
        return
    assert row.command in COMMANDS
    assert row.options
    assert set(row.options) <= options_of(row.command)
    # And what the words say to type: options of that command, or of the one named before them.
    for code in re.findall(r"`(-[^`]+)`", row.words):
        assert shlex.split(code)[0] in options_of(row.command) | options_of("sweep") | set(NCCL_TESTS), code


def test_the_hint_for_a_letter_of_theirs_is_what_the_page_says() -> None:
    options = {row.theirs.partition(",")[0]: row.options for row in TABLES["Options"]}
    ours = options_of("sweep")
    here = {letter for letter, row in options.items() if letter not in ours | {"-h"} and set(row) & ours}
    assert set(_OF_NCCL_TESTS) == here
    assert [letter for letter, option in _OF_NCCL_TESTS.items() if option not in options[letter]] == []


def test_names_that_it_says_are_understood() -> None:
    text = PAGE.read_text("utf-8")
    for op in ("all_to_all", "all_to_allv", "send_recv", "all_reduce_coalesced", "scatter", "gather"):
        assert f"`{op}`" in text or f"--ops {op}" in text
        assert op in COLLECTIVES
    for dtype in ("half", "float", "double", "f8e4m3", "f8e5m2"):
        assert f"`{dtype}`" in text
        find_dtype(dtype)
    assert {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"} == set(REDOPS)
    for topology in ("strided:8", "cross-node", "node", "strided"):
        assert f"`{topology}`" in text
        parse_topology(topology)
