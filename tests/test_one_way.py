"""One way to do each thing: read from the source, with the few exceptions named and each with its reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*(ROOT / "ncclbench").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])

Find = Callable[[ast.AST], bool]


class Way(NamedTuple):
    """Something that is done in one place.

    Attributes:
        what: for the test's name and its message.
        found: whether a node of the source does it.
        home: the file that does it for all others.
        others: files that do it too, each with the reason.
    """

    what: str
    found: Find
    home: str
    others: Mapping[str, str] = MappingProxyType({})


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def places(found: Find) -> Iterator[str]:
    """Files, as ``folder/file.py``, with the line: where the source does it."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if found(node):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def named(*names: str) -> Find:
    """An attribute by its last parts, ``os.environ``, or a name imported from a module."""
    dotted = set(names)
    imported = {tuple(name.rsplit(".", 1)) for name in names}

    def found(node: ast.AST) -> bool:
        if isinstance(node, ast.ImportFrom):
            return any((node.module, alias.name) in imported for alias in node.names)
        return isinstance(node, ast.Attribute) and ast.unparse(node) in dotted

    return found


def imports(*modules: str) -> Find:
    """The import of a module, or of something in it."""

    def found(node: ast.AST) -> bool:
        if isinstance(node, ast.Import):
            return any(alias.name in modules for alias in node.names)
        return isinstance(node, ast.ImportFrom) and node.module in modules

    return found


def opens_for_writing(node: ast.AST) -> bool:
    """open() with a mode that writes, write_text, write_bytes, a temporary file, os.replace."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    if called.rpartition(".")[2] in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile"):
        return True
    if called in ("os.replace", "os.rename", "json.dump", "pickle.dump"):
        return True
    if called.rpartition(".")[2] not in ("open", "fdopen"):
        return False
    words = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    flags = " ".join(map(ast.unparse, node.args))
    return any(re.fullmatch(r"[wxa][bt+]*", text) for text in texts) or "O_CREAT" in flags


def aligns(node: ast.AST) -> bool:
    """ljust, rjust, center, or a width in an f-string."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("ljust", "rjust")
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        return bool(re.match(r"f'.?[<>^]\{?\d*", ast.unparse(node.format_spec)))
    return False


_UNITS = re.compile(r" ?(ns|us|µs|ms|s|[KMGT]i?B)(?![\w/])")
_POWERS = {10.0**power for power in (-9, -6, -3, 3, 6, 9)} | {2.0**power for power in (10, 20, 30, 40)}


def _scales(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.RShift):
        return True
    constants = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
    is_power = any(
        isinstance(side, ast.BinOp) and isinstance(side.op, ast.Pow) for side in (node.left, node.right)
    )
    return isinstance(node.op, ast.Mult | ast.Div) and (is_power or bool(_POWERS.intersection(constants)))


def converts_units(node: ast.AST) -> bool:
    """An f-string that scales a value and puts a unit behind it."""
    if not isinstance(node, ast.JoinedStr):
        return False
    return any(
        isinstance(value, ast.FormattedValue)
        and isinstance(behind, ast.Constant)
        and _UNITS.match(str(behind.value)) is not None
        and any(_scales(part) for part in ast.walk(value.value))
        for value, behind in zip(node.values, node.values[1:], strict=False)
    )


def _names_percentile(node: ast.AST) -> bool:
    """A tail by hand: percentile, or a sorted list that is indexed by a share of its length."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("percentile", "nanpercentile", "quantiles")
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
        share = re.search(r"[*/] *len\(|len\(.*\) *[*/] *[\d.]", ast.unparse(node.slice))
        return ast.unparse(node.value.func) == "sorted" and share is not None
    return False


def _adds_an_s(node: ast.AST) -> bool:
    """One rank, two ranks."""
    return isinstance(node, ast.IfExp) and any(
        isinstance(each, ast.Constant) and each.value in ("s", "es") for each in (node.body, node.orelse)
    )


SUPERVISE = "ncclbench/supervise"
OWN_PROCESS = "is its own process and must not be one of the slots"
WAYS = (
    Way("environment variables", named("os.environ", "os.getenv", "os.putenv"), "ncclbench/environ.py"),
    Way(
        "other programs",
        imports("subprocess"),
        f"{SUPERVISE}/launcher.py",
    ),
    Way("multiprocessing", named("multiprocessing.Process", "multiprocessing.get_context"), ""),
    Way(
        "forked processes",
        named("os.fork", "os.posix_spawn", "os.forkpty"),
        f"{SUPERVISE}/slots.py",
        {
            f"{SUPERVISE}/store_process.py": f"the store {OWN_PROCESS}: it outlives them",
            f"{SUPERVISE}/orphans.py": f"the guard {OWN_PROCESS}: it ends them when their supervisor dies",
            "ncclbench/faults/keeper.py": f"the keeper {OWN_PROCESS}: it ends torchrun's when we die",
            "ncclbench/flight/apart.py": "reads one foreign file with no rights; layers below have no slots",
        },
    ),
    Way(
        "another program in place of this one",
        named("os.execve", "os.execv", "os.execvp", "os.system", "os.popen"),
        f"{SUPERVISE}/elsewhere.py",
        {
            "ncclbench/faults/replacement.py": "the cold start of a replacement, which is what is timed",
            "ncclbench/faults/restart.py": "torchrun in a slot of the drill",
        },
    ),
    Way(
        "files that are replaced",
        opens_for_writing,
        "ncclbench/writing.py",
        {
            "ncclbench/store/writer.py": "samples are appended, line by line",
            "ncclbench/store/folder.py": "the lock of a run folder, which holds no data",
            "ncclbench/faults/restarted.py": "a rank's words are appended as it says them",
            "ncclbench/importing/source.py": "standard input is copied to a file that goes when it is read",
            "ncclbench/worker/footprint.py": "the kernel's switch in /proc",
            f"{SUPERVISE}/elsewhere.py": "memory that no file stands for",
        },
    ),
    Way("columns of text", aligns, "ncclbench/terminal/columns.py"),
    Way("tables of rich", imports("rich.table", "rich.columns", "rich.panel", "tabulate"), ""),
    Way(
        "units behind numbers",
        converts_units,
        "ncclbench/units.py",
        {
            "ncclbench/report/text.py": "the page's times: µs, and zeros that are kept in columns",
            "ncclbench/report/versus/sides.py": "a GPU's memory in decimal GB, as its maker names it",
            "ncclbench/cli/transport.py": "looks for a time as torch has written it, and writes none",
        },
    ),
    # units.noun_text does it, which knows both words.
    Way("plurals", _adds_an_s, ""),
    Way(
        "percentiles by hand",
        _names_percentile,
        "",
        {"ncclbench/report/panels/ranks.py": "the bound of a colour scale, which is no statistic"},
    ),
    Way(
        "Student's t",
        named("scipy.special.stdtr", "scipy.special.stdtrit", "scipy.stats.t"),
        "ncclbench/stats/intervals.py",
        {
            "ncclbench/stats/power.py": "how large a difference such a test finds, its inverse",
            "ncclbench/stats/series.py": "a one-sided test of a mean of shifts, which are no ratios",
        },
    ),
    Way(
        "unpickling",
        named("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"),
        "ncclbench/flight/native.py",
        {"ncclbench/worker/elsewhere.py": "what our own supervisor has handed over in memory"},
    ),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.what)
def test_there_is_one_way(way: Way) -> None:
    found = list(places(way.found))
    allowed = (*filter(None, [way.home]), *way.others)
    second = [place for place in found if not place.startswith(allowed)]
    assert not second, f"{way.what}: {way.home or 'nobody'} does it for all"
    unused = [home for home in allowed if not any(place.startswith(home) for place in found)]
    assert not unused, "nothing of the kind is there any more: take it out of the list"


def test_every_loop_that_sleeps_has_an_end() -> None:
    """``while True`` around a sleep needs a deadline, a count, or somebody's word inside."""
    endless = []
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
                text = ast.unparse(node)
                ends = re.search(r"deadline|timeout|_S\b|monotonic|return|break|raise|_exit", text)
                if "sleep(" in text and not ends:
                    endless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not endless


def test_private_names_stay_in_their_module() -> None:
    crossing = []
    for path in FILES:
        modules = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ncclbench"):
                modules |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
                private = [name.name for name in node.names if re.match(r"_[^_]", name.name)]
                crossing += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in private]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
                # ``module._name``, where the module is ours and no variable hides it.
                own = isinstance(node.value, ast.Name) and node.value.id in modules
                if own and (ROOT / "ncclbench").rglob(f"{ast.unparse(node.value)}.py"):
                    crossing.append(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    assert not crossing


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("os.environ.get('HOME')", named("os.environ")),
        ("from os import environ", named("os.environ")),
        ("import subprocess", imports("subprocess")),
        ("path.open('w')", opens_for_writing),
        ("open(path, mode='ab')", opens_for_writing),
        ("path.write_text('')", opens_for_writing),
        ("name.ljust(9)", aligns),
        ("f'{name:<{width}}'", aligns),
        ("f'{name:>9}'", aligns),
        ("f'{1e3 * seconds:.0f} ms'", converts_units),
        ("f'{nbytes / 2**30:.1f} GiB'", converts_units),
        ("f'{nbytes >> 20} MiB'", converts_units),
        ("sorted(times)[int(0.99 * len(times))]", _names_percentile),
        ("np.percentile(times, 99)", _names_percentile),
        ("f\"{n} rank{'s' if n > 1 else ''}\"", _adds_an_s),
    ],
)
def test_a_second_way_would_be_seen(source: str, found: Find) -> None:
    assert any(found(node) for node in ast.walk(ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("path.open('rb')", opens_for_writing),
        ("f'{seconds:.1f} s'", converts_units),
        ("f'{rate:.2f} GB/s'", converts_units),
        ("f'{share:+.1f}'", aligns),
    ],
)
def test_what_is_no_second_way_is_let_be(source: str, found: Find) -> None:
    assert not any(found(node) for node in ast.walk(ast.parse(source)))
