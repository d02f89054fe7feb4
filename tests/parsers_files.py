"""PARSERS of files: run folders, plans, presets, machines, groups, logs of other tools, and dumps."""

from __future__ import annotations

import atexit
import gzip
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import drill_fixtures
import groups_fixtures
import overlap_fixtures
import p2p_fixtures
import test_search_damage
import test_store
import transport_fixtures
from calibrating import document_of, entry
from flying import job
from importing import make_printed, write_imported
from parsers_kernel import KERNEL
from parsing import Parser, command
from report_fixtures import make_calibration
from searching_fixtures import make_search

from ncclbench.cli import cases
from ncclbench.cli.env import _former
from ncclbench.environment.against import changes, side_text
from ncclbench.flight.dumps import read_bytes
from ncclbench.importing import IMPORTERS
from ncclbench.plan.weights import parse_weights
from ncclbench.stats.rows import run_rows
from ncclbench.store import calibrations
from ncclbench.store.lines import ColdLine, StatusLine, StopLine, encode_line
from ncclbench.store.plans import load_plan
from ncclbench.store.reader import load_run

FOLDER = Path(tempfile.mkdtemp(prefix="ncclbench-parsers-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
SAMPLES = Path(__file__).parent / "data" / "import"

# Lines of one type are much alike.
_MOST_OF_A_TYPE = 8


def _sweep(path: Path) -> Path:
    run = test_store.small_run(calibration=make_calibration(("all_reduce", 8, "isolated", 0.02)))
    case = run.plan.cases[0].case.key
    return test_store.written(
        path,
        run,
        encode_line(ColdLine("gloo", 0, 0, 1, 1250.5, None)),
        encode_line(StatusLine(run.plan.cases[1].case.key, "gloo#2", "failed", "rank 1 died")),
        encode_line(StopLine(case=case, epochs=2, why="precision", half_width=0.01)),
    )


def _imported(path: Path) -> Path:
    return write_imported(path, [make_printed(8, 10.0), make_printed(1024, 12.0)])


# By the kind of its command, a run folder with every type of line that it can hold.
RUNS: dict[str, Callable[[Path], Path]] = {
    "sweep": _sweep,
    "import": _imported,
    "matrix": lambda path: test_search_damage.written(path, make_search(kind="matrix", hosts=2, passes=3)),
    "suspects": lambda path: test_search_damage.written(path, make_search(hosts=3, passes=3)),
    "drill": lambda path: drill_fixtures.written(path, drill_fixtures.make_drill()),
    "overlap": lambda path: overlap_fixtures.written(
        path,
        overlap_fixtures.make_overlap([*overlap_fixtures.over_epochs(), overlap_fixtures.make_skip()]),
    ),
    "p2p": lambda path: p2p_fixtures.written(path, p2p_fixtures.make_p2p()),
    "transport": lambda path: transport_fixtures.written(path, transport_fixtures.make_transport()),
    "groups": lambda path: groups_fixtures.written(path, groups_fixtures.make_groups()),
}
_made: dict[str, Path] = {}


def run_of(kind: str) -> Path:
    """A small run folder, made once."""
    if kind not in _made:
        _made[kind] = RUNS[kind](FOLDER / f"run-{kind}")
    return _made[kind]


run_of("import")
write_imported(FOLDER / "other", [make_printed(8, 11.0), make_printed(1024, 13.0)])


def _put(content: bytes, name: str) -> Path:
    path = FOLDER / name
    path.write_bytes(content)
    return path


def _of_run(kind: str, file: str, *words: str) -> Parser:
    """A file of a run folder, the others whole, through a command that reads it."""

    def call(content: bytes) -> Any:
        folder = run_of(kind)
        whole = (folder / file).read_bytes()
        try:
            (folder / file).write_bytes(content)
            places = {"run": folder, "out": FOLDER / "page.html", "other": FOLDER / "other"}
            return command(*(word.format(**places) for word in words))
        finally:
            (folder / file).write_bytes(whole)

    name = f"{file} of {kind}, {words[0]}"
    return Parser(name, call, ((run_of(kind) / file).read_bytes(),), is_slow=True)


def _against(content: bytes) -> Any:
    """What changed since a run, as ``env --against`` tells it."""
    folder = FOLDER / "against"
    if not folder.exists():
        shutil.copytree(run_of("sweep"), folder)
    (folder / "run.json").write_bytes(content)
    former = _former(str(folder))
    assert former is not None
    here = json.loads((run_of("matrix") / "run.json").read_text())["environment"]
    return json.dumps([[side_text(one, "base"), side_text(one, "new")] for one in changes(former, here)])


def _numbers_of(kind: str) -> Parser:
    """Lines alone, without a page: many more of them in the same time."""

    def call(content: bytes) -> Any:
        folder = FOLDER / f"lines-{kind}"
        if not folder.exists():
            shutil.copytree(run_of(kind), folder)
        (folder / "samples.jsonl").write_bytes(content)
        return json.dumps(run_rows(load_run(folder)), allow_nan=False)

    of_type: dict[str, list[bytes]] = {}
    for line in (run_of(kind) / "samples.jsonl").read_bytes().splitlines(keepends=True):
        of_type.setdefault(json.loads(line)["type"], []).append(line)
    few = [line for lines in of_type.values() for line in lines[:_MOST_OF_A_TYPE]]
    return Parser(f"lines of {kind}", call, (b"".join(few),))


def _in_file(
    name: str, words: Sequence[str], *seeds: bytes, file: str = "given", slow: bool = False
) -> Parser:
    """A file that is named on a command line; ``{file}`` stands for it."""

    def call(content: bytes) -> Any:
        path = _put(content, file)
        return command(*(word.format(file=path, out=FOLDER / "page.html") for word in words))

    return Parser(name, call, seeds, is_slow=slow)


def _importer(name: str, files: Sequence[str]) -> Parser:
    def call(content: bytes) -> Any:
        path = _put(content, f"log{Path(files[0]).suffix}")
        shutil.rmtree(FOLDER / "imported", ignore_errors=True)
        return command("import", str(path), "--format", name, "--out", str(FOLDER / "imported"), "--json")

    return Parser(
        f"import {name}", call, tuple((SAMPLES / file).read_bytes() for file in files), is_slow=True
    )


_LOGS = {
    "nccl-tests": ("nccl-tests-1.0.txt", "nccl-tests-broken-rows.txt", "rccl-tests-cycles.txt"),
    "nccl-tests-json": ("nccl-json-v1.json", "nccl-json-v3-per-iter.json"),
    "rccl-tests-json": ("rccl-lines.json", "rccl-list.json"),
    "rccl-tests-csv": ("rccl.csv", "rccl-gpus.csv"),
    "param": ("param.txt", "param-first.txt"),
    "osu": ("osu-collectives.txt", "osu-pt2pt.txt", "osu-xccl.txt"),
}


def _any_log(content: bytes) -> Any:
    shutil.rmtree(FOLDER / "imported", ignore_errors=True)
    path = str(_put(content, "log"))
    return command("import", path, "--out", str(FOLDER / "imported"), "--op", "all_reduce")


def _dumps() -> tuple[bytes, ...]:
    frames = [("step", "train.py", 7)]
    stuck = job(nranks=2, numbers=4, absent=[1], frames=frames)
    texts = tuple(json.dumps(content).encode() for content in stuck.values())
    pickles = [pickle.dumps(stuck[0], protocol=protocol) for protocol in (0, 2)]
    return (*texts, *pickles, gzip.compress(texts[0], mtime=0))


def _dump_of_run(content: bytes) -> Any:
    folder = FOLDER / "hung"
    if not folder.exists():
        shutil.copytree(run_of("sweep"), folder)
        (folder / "flight").mkdir()
    (folder / "flight" / "rank0-gloo.json").write_bytes(content)
    command("report", str(folder), "--out", str(FOLDER / "page.html"))
    return command("flight", str(folder), "--json")


def _cases(content: bytes, *words: str) -> Any:
    cases._job.cache_clear()  # a command reads each file once
    return command("plan", "--cases-from", str(_put(content, "rank0.json")), *words)


def _presets() -> tuple[bytes, ...]:
    own = files("ncclbench.plan") / "presets"
    return tuple((own / f"{name}.toml").read_bytes() for name in ("quick", "acceptance"))


_PRESET_JSON = json.dumps(
    {
        "schema": 1,
        "ncclbench": "0.1.0",
        "preset": "acceptance",
        "decision": "acceptance",
        "command": ["ncclbench", "sweep", "--preset", "acceptance"],
        "nranks": 2,
        "local_ranks": 2,
        "steps": [
            {"name": "sweep", "command": ["ncclbench", "sweep"], "folder": "sweep", "status": "done"},
            {"name": "matrix", "command": ["ncclbench", "matrix"], "folder": "matrix", "reason": "no"},
        ],
    }
).encode()


def _preset_json(content: bytes) -> Any:
    folder = FOLDER / "preset"
    if not folder.exists():
        folder.mkdir()
        shutil.copytree(run_of("sweep"), folder / "sweep")
    (folder / "preset.json").write_bytes(content)
    return command("report", str(folder), "--json")


def _hosts(content: bytes) -> Any:
    folder = FOLDER / "dumps"
    if not folder.exists():
        folder.mkdir()
        for rank, dump in job(nranks=4, absent=[2]).items():
            (folder / f"rank{rank}.json").write_text(json.dumps(dump))
    return command("flight", str(folder), "--hosts", str(_put(content, "hosts.txt")))


def _plan(content: bytes) -> Any:
    return load_plan(_put(content, "plan.json"))


def _plan_seed() -> bytes:
    path = FOLDER / "seed-plan.json"
    command("plan", "--sizes=8,64", "--backends=gloo,gloo", "--out", str(path))
    return path.read_bytes()


def _calibration(content: bytes) -> Any:
    """Kept ones are never refused: what cannot be used is left out, in one line."""
    told: list[str] = []
    hosts = {"hosts": [{"name": "node-00"}]}
    calibrations.keep(document_of(entry()))
    (path,) = calibrations.kept_folder().glob("node-00-1-hosts-2-*.json")
    path.write_bytes(content)
    found = calibrations.find(hosts, 2, "gloo", told.append)
    assert len(told) == (found is None)
    assert all("\n" not in line for line in told)
    return found


_ENTRIES = (
    *(_of_run(kind, "run.json", "report", "{run}", "--out", "{out}") for kind in RUNS),
    *(_of_run(kind, "samples.jsonl", "report", "{run}", "--out", "{out}", "--redact") for kind in RUNS),
    *(_numbers_of(kind) for kind in RUNS),
    _of_run("sweep", "run.json", "compare", "{run}:gloo", "{run}:gloo#2"),
    _of_run("import", "samples.jsonl", "compare", "{run}", "{other}", "--json"),
    _of_run("sweep", "run.json", "plan", "--machine", "{run}", "--sizes", "8"),
    Parser("run.json of sweep, env --against", _against, ((run_of("sweep") / "run.json").read_bytes(),)),
    *(_importer(name, files) for name, files in _LOGS.items()),
    Parser("import", _any_log, ((SAMPLES / "osu-xccl.txt").read_bytes(),), is_slow=True),
    _in_file("dump", ("flight", "{file}", "--json"), *_dumps(), file="nccl_trace_rank_0"),
    _in_file(
        "page of a dump", ("flight", "{file}", "--out", "{out}"), *_dumps(), file="rank1.json", slow=True
    ),
    Parser(
        "dump in memory", lambda content: read_bytes(content, "nccl_trace_rank_0"), _dumps(), refuses=False
    ),
    Parser("dump, cases of", _cases, _dumps()),
    Parser("dump, a group of", lambda content: _cases(content, "--topologies=dump:default_pg"), _dumps()[:1]),
    _in_file("preset", ("plan", "--preset", "{file}"), *_presets(), file="mine.toml"),
    Parser("preset.json", _preset_json, (_PRESET_JSON,), is_slow=True),
    Parser("dump in a run folder", _dump_of_run, _dumps()[:1], is_slow=True),
    Parser("hostfile", _hosts, (b"a slots=2\nb slots=2\n", b"n[1-2]\n")),
    Parser("plan file", _plan, (_plan_seed(),)),
    _in_file(
        "machine",
        ("plan", "--sizes=8", "--machine", "{file}"),
        b'name = "big"\ndevice = "cpu"\nranks_per_host = 8\nmemory = "512G"\n',
        b'{"environment": {"hosts": [{"name": "a"}], "ranks": [{"rank": 0, "host": 0, "device": "cpu"}]}}',
    ),
    _in_file(
        "file of groups",
        ("plan", "--sizes=8", "--world-size=4", "--topologies", "file:{file}"),
        b"0-1\n2,3 # ours\n",
        file="groups.txt",
    ),
    Parser(
        "file of tensors",
        lambda content: parse_weights(str(_put(content, "tensors.txt")), "--weights"),
        (b"16M\n4096x4096 # a layer\n8x8 float32\n",),
    ),
    Parser("kept calibration", _calibration, (json.dumps(document_of(entry())).encode(),), refuses=False),
    *KERNEL,
)

FILES: dict[str, Parser] = {entry.name: entry for entry in _ENTRIES}
assert len(FILES) == len(_ENTRIES)
assert set(_LOGS) == set(IMPORTERS), "every importer has its logs here"
