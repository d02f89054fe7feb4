"""Tricks with names and files of run folders: one line and exit 2, or right numbers; nothing hangs."""

from __future__ import annotations

import ast
import json
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parsers_files import FOLDER, RUNS, run_of
from parsing import Said, bounded, command, said_by

import ncclbench
from ncclbench.errors import RequestError
from ncclbench.store.reader import load_run

PACKAGE = Path(ncclbench.__file__).parent
NOBODY = 65534
NAMES = (
    "..", ".", "/dev/zero", "/dev/null", "/proc/self/mem", "/proc/x", "a\nb", "a\x1b[31mb", "x" * 300,
    "/" + "y/" * 2500, "-n", " ends in space ", "é\u202e\u2028😀", "\udcff", "a\0b", "~", "$(id)", "%s",
    "'\"", "results/../../..", "file/below", "C:\\x", "*", "run.json", "run.json/x", ":", "::", "a:gloo", "",
)  # fmt: skip

# Commands that read what is given in place of {}; none of them measures.
READERS: tuple[tuple[str, ...], ...] = (
    ("report", "--out", "{out}", "--", "{}"),
    ("report", "--json", "--out", "{out}", "--", "{}"),
    ("compare", "--", "{}", "{good}"),
    ("compare", "--", "{good}", "{}:gloo"),
    ("compare", "--base", "last", "--", "{}"),
    ("report", "{good}", "--out", "{out}", "--compare-with={}"),
    ("sweep", "--resume={}"),
    ("sweep", "--plan={}"),
    ("plan", "--sizes=8", "--machine={}"),
    ("plan", "--sizes=8", "--topologies=file:{}"),
    ("env", "--against={}"),
    ("flight", "--", "{}"),
    ("import", "--out", "{folder}", "--", "{}"),
)


def tried(path: str | Path, folder: Path, readers: tuple[tuple[str, ...], ...] = READERS) -> list[Said]:
    """What each command says of it, each in little time."""
    said = []
    for words in readers:
        places = {"{}": str(path), "{good}": str(run_of("sweep")), "{out}": str(folder / "page.html")}
        places["{folder}"] = str(folder / "imported")
        line = list(words)
        for place, text in places.items():
            line = [word.replace(place, text) for word in line]
        with bounded(20.0):
            said.append(said_by(line))
        shutil.rmtree(folder / "imported", ignore_errors=True)
    return said


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_are_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"  # so that ".." is a folder of this test, too
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "file").write_text("")
    for said in tried(name, here):
        assert said.code == 2
    assert sorted(path.name for path in here.iterdir()) == ["file"], "nothing was made"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("/dev/null", "/proc/x")], ids=ascii)
def test_outputs_that_cannot_be(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages go into files, and into no folder, device or run's own file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    run = str(run_of("sweep"))
    with bounded(20.0):
        for words in (
            ["report", run, f"--out={name}"],
            ["compare", f"{run}:gloo", f"{run}:gloo#2", f"--out={name}"],
            ["compare", f"{run}:gloo", f"{run}:gloo#2", f"--csv={name}"],
            ["plan", "--sizes=8", f"--out={name}"],
        ):
            said_by(words)
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path.parent / "x").exists()


@pytest.mark.parametrize("label", NAMES, ids=ascii)
def test_labels_stay_in_results(label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label is part of a folder's name, whatever it holds."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.txt"
    log.write_bytes((Path(__file__).parent / "data/import/osu-xccl.txt").read_bytes())
    said = said_by(["import", str(log), f"--label={label}"])
    if said.code == 2:
        assert not (tmp_path / "results").exists()
    else:
        (folder,) = (tmp_path / "results").iterdir()
        assert (folder / "run.json").is_file()
        assert len(folder.name) < 90
    assert {path.name for path in tmp_path.iterdir()} <= {"log.txt", "results"}


# Files of a run folder that are something else.


def _link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "zeros": _link_to("/dev/zero"),
    "nothing": _link_to("/dev/null"),
    "terminal": _link_to("/dev/tty"),
    "memory": _link_to("/proc/self/mem"),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": _link_to("nowhere"),
    "empty": lambda path: path.write_bytes(b""),
    "huge": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
}
RUN_READERS = tuple(words for words in READERS if words[0] not in ("import",))


@pytest.mark.parametrize("name", REPLACEMENTS)
@pytest.mark.parametrize(
    "file", ["run.json", "samples.jsonl", ".lock", "flight", "summary.csv", "report.html"]
)
def test_what_is_no_file_is_not_read(file: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run_of("sweep"), folder)
    (folder / file).unlink(missing_ok=True)
    if file == ".lock":  # asked after only then
        meta = (folder / "run.json").read_text().replace('"status": "complete"', '"status": "running"')
        (folder / "run.json").write_text(meta)
    REPLACEMENTS[name](folder / file)
    readers = tuple(words for words in RUN_READERS if file != ".lock" or words[0] != "sweep")
    if file not in ("run.json", "samples.jsonl"):
        readers = tuple(words for words in readers if words[0] in ("report", "compare", "flight"))
    elif file == "samples.jsonl":  # the others read run.json alone
        readers = tuple(words for words in readers if words[0] in ("report", "compare"))
    for said in tried(folder, tmp_path, readers):
        assert said.code in ((2,) if file == "run.json" else (0, 1, 2))


def test_links_to_runs_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run_of("sweep"))
    for said in tried(tmp_path / "link", tmp_path, READERS[:2]):
        assert said.code == 0
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for name in ("one", "one/run.json", "one/../one"):
        for said in tried(tmp_path / name, tmp_path):
            assert said.code == 2
    with pytest.raises(RequestError):
        command("report", str(run_of("sweep")), "--out", str(tmp_path / "one"))


def test_a_run_beside_a_pipe_is_compared(tmp_path: Path) -> None:
    """Where a baseline is looked for among neighbours, one of them may be anything."""
    shutil.copytree(run_of("sweep"), tmp_path / "run")
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "run.json")
    with bounded(20.0):
        said_by(["compare", str(tmp_path / "run"), "--base", "last"])


def test_what_may_not_be_read_is_refused_in_a_line(tmp_path: Path) -> None:
    """As somebody who is not root: to root every file is open."""
    top = Path("/tmp") / f"ncclbench-tricks-{os.getpid()}"
    shutil.copytree(run_of("sweep"), top / "run")
    shutil.copytree(run_of("sweep"), top / "shut" / "run")
    (top / "run" / "samples.jsonl").chmod(0)
    (top / "shut").chmod(0)
    child = os.fork()
    if not child:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.chdir("/")
            for path in (top / "run", top / "shut" / "run", top / "shut"):
                for said in tried(path, tmp_path, tuple(words for words in READERS[:6] if words[0] != "env")):
                    assert said.code == 2
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    (top / "shut").chmod(0o700)
    shutil.rmtree(top)
    assert os.waitstatus_to_exitcode(status) == 0


# Half written.


def cuts(content: bytes) -> Iterator[int]:
    """Where a writer may have been stopped: line borders, a byte beside each of them, and inside."""
    borders = [0, *(place + 1 for place, byte in enumerate(content) if byte == ord("\n"))]
    for border in borders[:: max(1, len(borders) // 25)]:
        yield from {max(0, border - 1), border, min(len(content), border + 1)}
    yield from range(0, len(content), max(1, len(content) // 15))


@pytest.mark.parametrize("kind", RUNS)
def test_half_written_runs(kind: str, tmp_path: Path) -> None:
    """Of samples.jsonl what is whole is there; half a run.json is refused."""
    folder = tmp_path / "run"
    shutil.copytree(run_of(kind), folder)
    whole = load_run(folder)
    for name in ("samples.jsonl", "run.json"):
        content = (folder / name).read_bytes()
        for number, cut in enumerate(sorted(set(cuts(content)))):
            (folder / name).write_bytes(content[:cut])
            try:
                run = load_run(folder)
            except RequestError as error:
                refused = str(error)
                run = None
            if run is None:
                assert "\n" not in refused
                assert name == "run.json"
                continue
            assert name == "samples.jsonl" or not content[cut:].strip()
            assert bool(run.problems) or content[:cut].endswith((b"\n", b"}")) or not cut
            for key, units in run.units.items():
                told = {unit.epoch: unit.total_us.tolist() for unit in whole.units[key]}
                assert all(told[unit.epoch] == unit.total_us.tolist() for unit in units)
            if not number % 12:
                assert said_by(["report", str(folder), "--out", str(tmp_path / "page.html")]).code in (0, 1)
        (folder / name).write_bytes(content)


def test_files_that_users_name_are_looked_up_without_raising() -> None:
    """Path.exists() and its kin raise on names too long and on folders that are shut; os.path's do not."""
    kin = ("exists", "is_dir", "is_file", "is_symlink", "resolve")
    found = []
    for part in ("cli", "compare", "store", "importing", "plan", "report", "tables", "attribution", "stats"):
        for path in (PACKAGE / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr in kin
                    and ast.unparse(node.value) != "os.path"
                ):
                    found.append(f"{path.relative_to(PACKAGE)} {ast.unparse(node)}")
    assert found == ["plan/weights.py Path(name).exists"], "that one looks at the error"


def test_run_folders_of_other_tests_stay_whole() -> None:
    assert json.loads((run_of("sweep") / "run.json").read_text())["kind"] == "sweep"
    assert FOLDER.is_dir()
