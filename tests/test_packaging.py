"""What people install: the wheel, the source archive, an editable checkout, and the pinned versions.

Environments made here see this one's packages through a path file, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from test_layering import MODULES, imported_names
from tools import require_tool

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "results"
)


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=100,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def make_environment(folder: Path) -> Path:
    """A virtual environment with everything installed here but ncclbench; its ``python``."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # Path files in the other site-packages, an editable ncclbench among them, are not followed from here.
    (Path(site) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-build-isolation"]
    run(*pip, "--no-index", "--disable-pip-version-check", *what, cwd=cwd)


def packaged_files(tree: Path) -> set[str]:
    """What of a source tree must reach a wheel, by its name there."""
    kept = set()
    for folder, inside in (("ncclbench", "ncclbench"), ("kernels", "ncclbench/kernels")):
        for path in (tree / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                kept.add(f"{inside}/{path.relative_to(tree / folder).as_posix()}")
    return kept


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that building leaves nothing behind in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    (copy / "results").mkdir()
    shutil.copy(ROOT / "results" / "README.md", copy / "results")
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built straight from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, tree, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    python = make_environment(folder / "venv")
    install(python, wheel, cwd=folder)
    return python.parent


def test_wheel_holds_every_file(wheel: Path, tree: Path) -> None:
    assert wheel_files(wheel) == packaged_files(tree)


def test_source_archive_builds_the_same_wheel(wheel: Path, tree: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, tree, cwd=tmp_path)
    (rebuilt,) = tmp_path.glob("*.whl")
    (archive,) = tmp_path.glob("*.tar.gz")
    assert wheel_files(rebuilt) == wheel_files(wheel)
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "README.md", "Makefile", "constraints.txt", "docs/results-format.md"} <= names
    assert "tests/test_packaging.py" in names


def test_installed_wheel_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    script = "import ncclbench, ncclbench.kernels as k; print(ncclbench.__file__); print(k.__file__)"
    for line in run(installed / "python", "-c", script, cwd=tmp_path).split():
        assert Path(line).is_relative_to(installed.parent)


def test_installed_wheel_shows_help_and_tables(installed: Path, tmp_path: Path) -> None:
    assert "sweep" in run(installed / "ncclbench", "--help", cwd=tmp_path)
    assert "sweep" in run(installed / "python", "-m", "ncclbench", "--help", cwd=tmp_path)
    assert json.loads(run(installed / "ncclbench", "list", "--json", cwd=tmp_path))["command"] == "list"


def test_installed_wheel_measures(installed: Path, tmp_path: Path) -> None:
    sizes = ["-b", "8", "-e", "64", "-f", "8", "-n", "3", "--modes", "isolated", "--out", "first run"]
    answer = json.loads(
        run(installed / "ncclbench", "sweep", "--backends", "gloo", *sizes, "--json", cwd=tmp_path)
    )
    assert [(row["nbytes"], row["status"]) for row in answer["rows"]] == [(8, "ok"), (64, "ok")]
    assert (tmp_path / "first run" / "report.html").stat().st_size > 0


@pytest.mark.parametrize("how", ["folder", "editable"])
def test_a_checkout_installs_from_any_folder(how: str, tree: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    install(python, *(["--editable"] if how == "editable" else []), tree, cwd=tmp_path)
    script = "import ncclbench.kernels, ncclbench.cli; print(ncclbench.__file__)"
    home = Path(run(python, "-c", script, cwd=tmp_path).strip())
    assert home.is_relative_to(tree if how == "editable" else tmp_path / "venv")
    assert "sweep" in run(python.parent / "ncclbench", "--help", cwd=tmp_path)


def test_a_checkout_runs_from_its_root_uninstalled(tree: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    script = "import ncclbench.kernels; print(ncclbench.kernels.__file__)"
    assert Path(run(python, "-c", script, cwd=tree).strip()) == tree / "kernels" / "__init__.py"
    assert "sweep" in run(python, "-m", "ncclbench", "--help", cwd=tree)


@pytest.mark.full
def test_demo_ends_with_the_path_of_its_report(installed: Path, tree: Path) -> None:
    """All but the setting up, which the markers say is done: `make test` itself has done it here."""
    for marker in (".installed", ".installed-dev"):
        (installed.parent / marker).touch()
    shown = run(require_tool("make"), f"VENV={installed.parent}", "demo", cwd=tree)
    label, page = shown.splitlines()[-1].split()
    assert label == "report:"
    assert (tree / page).read_text(encoding="utf-8").startswith("<!doctype html>")


# The pinned versions.


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line), line
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(file: str) -> list[Requirement]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def test_every_requirement_is_pinned_to_a_version_it_allows() -> None:
    versions = pinned()
    asked = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    asked += [Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["cuda"]]
    asked += required("requirements.txt") + required("requirements-dev.txt")
    assert len(asked) > 20
    wrong = [str(r) for r in asked if not r.specifier.contains(versions.get(normal(r.name), "0"))]
    assert not wrong


def test_everything_imported_is_asked_for() -> None:
    """Also what another requirement happens to bring."""
    asked = {normal(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    optional = PROJECT["project"]["optional-dependencies"].values()
    asked |= {normal(Requirement(text).name) for texts in optional for text in texts}
    imported = {name.partition(".")[0] for path in MODULES.values() for name in imported_names(path)}
    foreign = imported - sys.stdlib_module_names - {"ncclbench"}
    packages = packages_distributions()
    assert {
        name for name in foreign if not asked & {normal(dist) for dist in packages.get(name, ())}
    } == set()


def test_the_oldest_torch_is_one_number_everywhere() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (oldest,) = re.findall(r"^OLDEST_TORCH := (\S+)$", makefile, re.MULTILINE)
    (torch,) = (r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == "torch")
    (bound,) = torch.specifier
    assert (bound.operator, Version(bound.version)) == (">=", Version(oldest))


def test_make_explains_a_constraint_of_the_machine(tmp_path: Path) -> None:
    """pip cannot succeed here (it may ask no index); what is tested is the line after its own."""
    limit = tmp_path / "limit.txt"
    limit.write_text("torch<2\n", encoding="utf-8")
    settings = {"PIP_CONSTRAINT": str(limit), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = [require_tool("make"), f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}", "demo"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 2
    assert str(limit) in done.stderr
    assert "PIP_CONSTRAINT= for a variable" in done.stderr
    assert not (tmp_path / "venv" / ".installed").exists()
