"""The way of the data is the way of the imports: read from the source, not from running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400

# From the bottom to the top. A module imports from its own layer and from those below it.
LAYERS = (
    ("errors",),
    ("environ", "names", "units", "writing", "kernels"),
    ("tables",),
    ("plan",),
    (
        "store.bounds",
        "store.printed",
        "store.probes",
        "store.drills",
        "store.overlaps",
        "store.p2p",
        "store.groups",
        "store.transfers",
    ),
    ("store.model",),
    ("store", "environment", "stats"),
    ("compare", "importing", "hardware", "attribution", "flight"),
    ("worker",),
    ("supervise",),
    ("faults",),
    ("cells",),
    ("terminal", "report"),
    ("cli",),
    ("__main__",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
TORCH_PARTS = ("worker", "supervise", "faults", "cells")
# Kernels run on torch's stream and memory, and so import it when one is made.
TORCH_MODULES = ("kernels.cuda",)
# Too slow for `ncclbench --help` (milliseconds each: torch 1800, pandas 320, numba 270, plotly 60).
SLOW_TO_IMPORT = ("torch", "pandas", "numba", "plotly", "scipy")


def module_files() -> dict[str, Path]:
    """Every module of the package by its dotted name without ``ncclbench.``, kernels included."""
    files = [*(ROOT / "ncclbench").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    modules = {}
    for path in files:
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        if parts[0] == "ncclbench":
            del parts[0]
        if parts and parts[-1] == "__init__":
            del parts[-1]
        if parts:
            modules[".".join(parts)] = path
    return modules


MODULES = module_files()


def part_of(module: str) -> str:
    """The part of LAYERS a module belongs to: the longest that fits."""
    return max((part for part in LEVEL if f"{module}.".startswith(f"{part}.")), key=len, default=module)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, functions' bodies included, but for what only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child):
            for other in child.orelse:
                yield other
                yield from running_nodes(other)
        else:
            yield child
            yield from running_nodes(child)


def imported_names(path: Path) -> Iterator[str]:
    """Dotted names that a file imports anywhere; ``from a import b`` gives ``a.b``."""
    for node in running_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    found = set()
    for name in imported_names(MODULES[module]):
        parts = name.split(".")
        if parts[0] != "ncclbench":
            continue
        inside = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
        found.add(next((candidate for candidate in inside if candidate in MODULES), ""))
    return found - {"", module}


def import_all(names: list[str], watched: tuple[str, ...]) -> str:
    """Import the modules in a fresh process; a line for each after which a watched package is loaded."""
    script = (
        "import importlib, sys\n"
        f"watched = set({watched!r})\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    for package in watched & set(sys.modules):\n"
        "        print(name, 'loads', package)\n"
        "        watched.remove(package)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_part_has_a_layer() -> None:
    homeless = sorted(module for module in MODULES if part_of(module) not in LEVEL)
    assert not homeless, "add it to LAYERS where it belongs"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    level = LEVEL[part_of(module)]
    upwards = [other for other in own_imports(module) if LEVEL[part_of(other)] > level]
    assert not upwards


def test_parts_import_each_other_one_way() -> None:
    graph: dict[str, set[str]] = {part: set() for part in LEVEL}
    for module in MODULES:
        graph[part_of(module)] |= {part_of(other) for other in own_imports(module)} - {part_of(module)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_module_imports_itself_over_others() -> None:
    try:
        TopologicalSorter({module: own_imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize(
    "module", sorted(m for m in MODULES if part_of(m) not in TORCH_PARTS and m not in TORCH_MODULES)
)
def test_only_worker_and_supervise_name_torch(module: str) -> None:
    roots = {name.partition(".")[0] for name in imported_names(MODULES[module])}
    assert "torch" not in roots


def test_everything_else_loads_without_torch() -> None:
    names = [f"ncclbench.{m}" for m in sorted(MODULES) if part_of(m) not in (*TORCH_PARTS, "__main__")]
    assert import_all(names, ("torch",)) == ""


def test_command_line_starts_without_slow_packages() -> None:
    assert import_all(["ncclbench.cli"], SLOW_TO_IMPORT) == ""


def test_help_of_no_command_loads_slow_packages() -> None:
    """Each in its turn in one process: the first that loads one is told."""
    script = (
        "import contextlib, io, sys\n"
        "from ncclbench.cli.app import COMMANDS, run\n"
        "for name in COMMANDS:\n"
        "    text = io.StringIO()\n"
        "    with contextlib.redirect_stdout(text):\n"
        "        assert run([name, '--help']) == 0\n"
        "    assert 'Example: ' in text.getvalue(), name\n"
        f"    loaded = set({(*SLOW_TO_IMPORT, 'numpy', 'rich', 'jinja2')!r}) & set(sys.modules)\n"
        "    assert not loaded, (name, loaded)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_workers_load_no_analysis_packages() -> None:
    """Thousands of ranks start from one file server: each package they load is paid for by all."""
    names = [f"ncclbench.{module}" for module in sorted(MODULES) if part_of(module) in TORCH_PARTS]
    assert import_all(names, ("pandas", "plotly", "numba", "scipy", "jinja2", "rich")) == ""


SOURCES = sorted(
    path
    for folder in ("ncclbench", "kernels", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_hold(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "the first line says what lives here"
    assert docstring.splitlines()[0].strip()
