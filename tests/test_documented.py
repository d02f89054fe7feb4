"""Public functions say what they take and give: docstrings of the parts that others build on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_layering import MODULES, ROOT

PARTS = ("tables", "stats", "compare", "plan", "kernels")
FILES = {name: path for name, path in MODULES.items() if name.partition(".")[0] in PARTS}
# A way to send, an order of calling and the like are entries, and their functions the code of one.
USER_ERRORS = {"RequestError", "MeasurementError", "unknown"}


def public(path: Path) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of a module, and methods of its public classes; not those of protocols."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield inner


def raised(node: ast.FunctionDef) -> set[str]:
    """The errors for users that stand behind a ``raise`` in a function, those of inner functions left out."""
    found = set()
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call):
            found.add(ast.unparse(each.exc.func).rpartition(".")[2])
        waiting += ast.iter_child_nodes(each)
    return found & USER_ERRORS


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_public_is_documented(path: Path) -> None:
    # Of a protocol the docstring holds for the classes beside it.
    told = {each.name for each in public(path) if ast.get_docstring(each)}
    silent = [f"{path.name}:{each.lineno} {each.name}" for each in public(path) if each.name not in told]
    assert not silent


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: str(path.relative_to(ROOT)))
def test_errors_for_users_are_told(path: Path) -> None:
    untold = [
        f"{path.name}:{node.lineno} {node.name}"
        for node in public(path)
        if isinstance(node, ast.FunctionDef)
        and raised(node)
        and not re.search(r"Raises:|RequestError|MeasurementError|[Rr]efuse", ast.get_docstring(node) or "")
    ]
    assert not untold


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: str(path.relative_to(ROOT)))
def test_times_sizes_and_rates_have_their_unit_in_the_name(path: Path) -> None:
    """A parameter that is called time, size or bandwidth and is a number must say of what."""
    bare = [
        f"{path.name}:{argument.lineno} {node.name}({argument.arg})"
        for node in public(path)
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if re.fullmatch(r"(\w+_)?(time|times|duration|latency|bandwidth|timeout|budget)", argument.arg)
        and argument.annotation is not None
        and re.search(r"\b(float|int|Floats)\b", ast.unparse(argument.annotation))
    ]
    assert not bare
