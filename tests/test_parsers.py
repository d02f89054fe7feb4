"""Whatever is given to a parser: it gives a value or refuses in one line, in little time and memory."""

from __future__ import annotations

import ast
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutating import WORDS, damaged
from parsers import PARSERS
from parsers_found import FOUND
from parsers_typed import TYPED
from parsing import Parser, bounded

import ncclbench
from ncclbench.cli.app import COMMANDS, group
from ncclbench.importing import IMPORTERS
from ncclbench.store.lines import Line

# More of them: PARSER_EXAMPLES=500 make test PYTEST_ARGS=tests/test_parsers.py
EXAMPLES = int(os.environ.get("PARSER_EXAMPLES", "0"))
_FEW, _FEWER = 25, 4
# A machine that does other things as well is slower.
_PATIENCE_S = 10.0

PACKAGE = Path(ncclbench.__file__).parent
_READS = re.compile(
    r"(parse|read|load|decode|decoded|expand|place|scan|unpacked|looks|recorded|without)(_|$)"
)
# Packages whose processes read only what processes of the same command wrote to them.
_WITHIN = ("cells", "faults", "supervise", "worker", "terminal", "report", "stats", "cli")
# Functions called like readers of foreign text that are none, and what they read.
_OTHERS = {
    "environment/gpu.py read_gpu": "NVML itself",
    "environment/gpu_links.py read_gpus": "NVML itself",
    "environment/counters.py read_counters": "NVML itself",
    "environment/nvml.py read_each": "NVML itself",
    "environment/health.py read_health": "NVML itself",
    "environment/counters.py _read": "NVML itself",
    "environment/throttle.py Gauge.read": "NVML itself",
    "environment/preflight.py _load": "no text: how busy hosts are",
    "compare/forecast.py _looks": "no text: after how many epochs a run looks",
    "flight/apart.py _read": "a pipe of our own process",
    "flight/apart.py _read_block": "a pipe of our own process",
    "flight/apart.py _unpacked": "a pipe of our own process",
    "flight/apart.py _unpacked_dump": "a pipe of our own process",
    "plan/packed.py unpacked_plan": "the store that ranks of one run meet at",
    "hardware/parts.py read_table": "a file of the package",
    "environment/topology.py read_topology": "the functions of job, nics and gpu_links",
}


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_are_taken(name: str) -> None:
    parser = PARSERS[name]
    assert parser.seeds
    for seed in parser.seeds:
        assert parser.refusal(seed) is None


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    for content in FOUND[name]:
        with bounded(_PATIENCE_S):
            PARSERS[name].refusal(content)


def examples(parser: Parser) -> int:
    return (
        max(1, EXAMPLES // (6 if parser.is_slow else 1)) if EXAMPLES else _FEWER if parser.is_slow else _FEW
    )


@pytest.mark.parametrize("name", PARSERS)
def test_any_input_is_taken_or_refused_in_a_line(name: str) -> None:
    parser = PARSERS[name]

    @settings(
        max_examples=examples(parser),
        deadline=None,
        database=None,
        derandomize=not EXAMPLES,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32), which=st.integers(0, 9), text=st.text(max_size=60))
    def tried(seed: int, which: int, text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        if which:
            content = damaged(random.Random(seed), parser.seeds[seed % len(parser.seeds)])
        with bounded(_PATIENCE_S):
            parser.refusal(content)

    tried()


@pytest.mark.parametrize("name", [name for name, parser in PARSERS.items() if not parser.is_slow])
def test_odd_words_are_taken_or_refused_in_a_line(name: str) -> None:
    """All of them, alone and behind a seed: most faults of parsers are of these."""
    parser = PARSERS[name]
    with bounded(3 * _PATIENCE_S):
        for word in WORDS:
            content = word.encode("utf-8", "surrogatepass")
            parser.refusal(content)
            parser.refusal(parser.seeds[0] + content)
            if name in TYPED:
                parser.refusal(content + parser.seeds[0])


# Nothing is forgotten.


def readers() -> Iterator[str]:
    """ "file function" of whatever is called like a reader, methods as Class.method."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in _WITHIN and place.as_posix() not in ("supervise/launcher.py", "cli/values.py"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for scope in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
            owner = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
            for node in scope.body:
                if isinstance(node, ast.FunctionDef) and _READS.match(node.name.lstrip("_")):
                    yield f"{place.as_posix()} {owner}{node.name}"


def called_by_seeds() -> set[str]:
    codes: set[CodeType] = set()

    def see(frame: FrameType, event: str, argument: Any) -> None:  # of calls alone, as it returns nothing
        codes.add(frame.f_code)

    for parser in (parser for name, parser in PARSERS.items() if not name.startswith("samples.jsonl")):
        sys.settrace(see)
        try:
            for seed in parser.seeds:
                parser.refusal(seed)
        finally:
            sys.settrace(None)
    inside = ((Path(code.co_filename), code.co_qualname) for code in codes)
    return {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for path, name in inside
        if path.is_relative_to(PACKAGE)
    }


def test_every_reader_of_foreign_text_is_in_the_table() -> None:
    """By what the seeds call: a reader that no entry reaches is one that nobody attacks."""
    named, called = set(readers()), called_by_seeds()
    assert len(named) > 60
    assert sorted(named - called - set(_OTHERS)) == [], "give it an entry in PARSERS"
    assert set(_OTHERS) <= named


def test_every_option_importer_and_line_of_a_store_is_in_the_table() -> None:
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            option = max(parameter.opts, key=len)
            if not (isinstance(parameter, click.Option) and parameter.is_flag):
                assert any(entry.endswith(f" {option}") for entry in PARSERS), f"{name} {option}"
            assert type(parameter.type) in (click.types.StringParamType, click.types.BoolParamType)
    assert {f"import {name}" for name in IMPORTERS} <= set(PARSERS)
    lines = b"".join(
        seed for name, parser in PARSERS.items() if name.startswith("lines of") for seed in parser.seeds
    )
    tags = {kind.__struct_config__.tag for kind in Line.__args__}
    assert {tag for tag in tags if b'"type":"%s"' % str(tag).encode() not in lines} == set()
