"""Docs that cannot go stale: every command and option is there, links lead somewhere, examples run.

The comment above a block says what a test does with it: ``<!-- run -->`` runs it with bash; the others put
it into a copy of the checkout that all runnable blocks of the page then use: ``<!-- file F -->`` as a new
file, ``<!-- above ENTRIES in F -->`` and ``<!-- inside ENTRIES in F -->`` at that table in F. Blocks of one
page are run in their order in one folder, so that later ones may use what earlier ones made.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from docs_running import Preloaded, run_in_bash

from ncclbench.cli.app import COMMANDS, group

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "results" / "README.md",
    ROOT / "results" / "reference" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
REFERENCE = ROOT / "docs" / "commands.md"
INDEX = ROOT / "docs" / "README.md"


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    action: str  # what the comment above it says; empty without one


def blocks(page: Path) -> list[Block]:
    found = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            text = "\n".join(lines[start + 1 : number]) + "\n"
            comment = re.fullmatch(r"<!-- (.+) -->", lines[start - 1])
            found.append(Block(page, start + 1, lines[start][3:], text, comment[1] if comment else ""))
            start = None
    assert start is None, f"{page.name}: the block of line {start} does not end"
    return found


def commands() -> dict[str, click.Command]:
    context = click.Context(group, info_name="ncclbench")
    found = {name: group.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command)
    return {
        name for parameter in command.get_params(context) for name in parameter.opts if name.startswith("-")
    }


# The reference: docs/commands.md.


def section(title: str) -> str:
    """The text under a second-level heading of the reference, to the next one."""
    parts = re.split(r"^## (.+)$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")


def table_rows(text: str) -> list[tuple[str, str]]:
    """(option, default) of each line of a section's tables of options."""
    lines = [line for line in text.splitlines() if line.startswith("| `-")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    return [(row[1].replace("\\|", "|").strip("`"), row[2].replace("\\|", "|").strip("`")) for row in cells]


def described(command: click.Command) -> list[tuple[str, str]]:
    """The same from the command itself, as its help has it."""
    context = click.Context(command)
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[0].startswith("-"):
            default = re.search(r"\[default: (.*)\]$", record[1], re.DOTALL)
            rows.append((record[0], default[1] if default else ""))
    return rows


@pytest.mark.parametrize("name", COMMANDS)
def test_reference_has_every_option_with_its_default(name: str) -> None:
    assert table_rows(section(f"ncclbench {name}")) == described(commands()[name])


def test_reference_has_no_other_command() -> None:
    titles = re.findall(r"^## ncclbench (.+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == list(COMMANDS)


# Examples.


def examples(page: Path) -> list[str]:
    """Every line that begins or contains an ncclbench command: in sh blocks, and as code within text."""
    shell = "".join(block.text for block in blocks(page) if block.language == "sh").replace("\\\n", " ")
    lines = [line for line in shell.splitlines() if not line.startswith("#")]
    lines += re.findall(r"(?<!`)`(ncclbench [^`]+)`", page.read_text(encoding="utf-8"))
    return [line for line in lines if "ncclbench" in line]


EXAMPLES = [(page, line) for page in PAGES for line in examples(page)]


@pytest.mark.parametrize(("page", "line"), EXAMPLES, ids=lambda value: getattr(value, "name", None))
def test_examples_use_commands_and_options_that_exist(page: Path, line: str) -> None:
    words = shlex.split(line, comments=True)
    name, *rest = words[words.index("ncclbench") + 1 :]
    if name.startswith("-"):
        assert name in ("--help", "--version")
        return
    known = options_of(commands()[name])
    used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert used <= known


def acted_on(page: Path) -> list[Block]:
    """The blocks that are run or put somewhere."""
    return [block for block in blocks(page) if block.action and not block.action.startswith("live ")]


# The first page that anybody reads is run each time, the others by make test-full.
RUNNABLE = [
    pytest.param(page, marks=[] if page.name == "README.md" else [pytest.mark.full], id=page.name)
    for page in PAGES
    if acted_on(page)
]


def put_in(block: Block, checkout: Path) -> None:
    """Put an example into a copy of the checkout."""
    match = re.fullmatch(r"(?:file|(above|inside) ([A-Z]+) in) (\S+)", block.action)
    assert match, f"line {block.line}: nothing can be done with {block.action!r}"
    where, table, file = match[1], match[2], checkout / match[3]
    if where is None:
        file.write_text(block.text, encoding="utf-8")
        return
    text = file.read_text(encoding="utf-8")
    before, begin, after = re.split(rf"^(_?{table}\b[^=\n]*= [({{]\n?)", text, flags=re.MULTILINE)
    parts = [block.text, "\n\n", begin] if where == "above" else [begin, block.text]
    file.write_text("".join([before, *parts, after]), encoding="utf-8")


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as process:
        yield process


# Some pages run a dozen commands.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUNNABLE)
def test_examples_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    checkout, here = tmp_path / "checkout", tmp_path / "here"
    here.mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if any(block.action != "run" for block in acted_on(page)):
        for folder in ("ncclbench", "kernels"):
            shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
        environment["PYTHONPATH"] = str(checkout)
    # The README as it stands, from bash on, since the others are run with less between.
    run = run_in_bash if page.name == "README.md" else request.getfixturevalue("preloaded").run
    for block in acted_on(page):
        if block.action == "run":
            done = run(block.text, here, environment)
            assert done.returncode == 0, f"line {block.line}:\n{done.stdout}"
        else:
            put_in(block, checkout)


def test_a_failing_example_fails(preloaded: Preloaded, tmp_path: Path) -> None:
    """Also in a fork of the process that the pages share, with what the command has said."""
    done = preloaded.run(
        "ncclbench list dtypes\nncclbench report nowhere\nncclbench --help\n", tmp_path, os.environ
    )
    assert done.returncode == 2
    assert "float32" in done.stdout
    assert done.stdout.endswith("nowhere is not a run: no such file or folder\n")


# Links and paths.


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.is_relative_to(ROOT), target
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def test_every_page_can_be_found() -> None:
    """From the README, by links alone."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8"))
            waiting += [(page.parent / target).resolve() for target in targets]
    assert set(PAGES) <= reached


def test_the_index_has_a_row_for_every_page_and_a_command_for_every_command() -> None:
    text = INDEX.read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|*]+\? \| \[[^]]+\]\(([\w-]+\.md)\) \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(page.name for page in INDEX.parent.glob("*.md") if page != INDEX)
    asked = re.findall(r"^\| [^|]+\? \| `ncclbench (\w+)[^`]*` \|$", text, re.MULTILINE)
    assert set(asked) >= set(COMMANDS)
    # What the README asks is asked here too.
    for row in re.findall(r"^\| .+\? \| `.+$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE):
        assert row in text


# What docs/faults.md quotes, as the code has it.
SAID = (
    "does not react (stopped, or stuck in the kernel)",
    "was killed by ",
    "memory ran out: see dmesg",
    "cannot meet the others at ",
    "two processes claim rank ",
    "did not come within ",
    "differs between ranks: ",
    ": install one version on all hosts",
    "does not fit into the ",
    "disk full at ",
    " is in use by ",
)


def test_messages_in_the_guide_to_faults_are_those_of_the_code() -> None:
    guide = " ".join((ROOT / "docs" / "faults.md").read_text("utf-8").replace("`", "").split())
    code = "".join(path.read_text("utf-8") for path in (ROOT / "ncclbench").rglob("*.py"))
    for words in SAID:
        assert words in code, words
        assert words.strip() in guide, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_path_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert not re.findall(r"(?<![\w.])/(?:root|home|Users|work)/\S*", text)
