"""The main job for real: process groups of gloo, every collective, arms, resume, launchers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from sweeping import by_status, run, sweep
from tools import require_tool

from ncclbench.store.reader import load_run
from ncclbench.tables.collectives import COLLECTIVES

_BRIEF = ("-n", "4", "--epochs", "2", "--timeout", "30s")


@pytest.mark.parametrize("nranks", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 4))])
def test_every_collective_gives_right_data(nranks: int, tmp_path: Path) -> None:
    dtypes = "float32,bfloat16,int64" if nranks == 2 else "float32"
    outcome = sweep(
        *("--ops", "all", "--in-place", "no,yes", "--async", "no,yes", "--sizes", "56,100K"),
        *("-d", dtypes, "--modes", "isolated", "--nproc-per-node", str(nranks)),
        *("--json", "--out", tmp_path / "run", *_BRIEF),
    )
    document = outcome.document
    assert outcome.code == 0, document["message"]
    measured = [row for row in document["rows"] if row["status"] == "ok"]
    assert set(by_status(document["rows"])) == {"ok", "skipped"}
    assert all(row["reason"] for row in document["rows"] if row["status"] == "skipped")
    expected = {name for name, entry in COLLECTIVES.items() if entry.least_ranks <= nranks}
    assert {row["op"] for row in measured} == expected
    assert all(row["wrong"] == 0 for row in measured if COLLECTIVES[row["op"]].has_data)
    assert all(row["median_us"] > 0 and row["nranks"] == nranks for row in measured)
    forms = Counter((row["op"], row["in_place"], row["async"]) for row in measured)
    for name in expected:
        for in_place in COLLECTIVES[name].in_place_forms:
            assert forms[name, in_place, False] == forms[name, in_place, True] > 0


def test_dtypes_and_operators_that_gloo_lacks_are_skipped_in_its_own_words(tmp_path: Path) -> None:
    outcome = sweep(
        *("--ops", "all_reduce,broadcast", "-d", "float16,int16,float8_e4m3fn,complex64,int32"),
        *("-o", "all", "--sizes", "64", "--modes", "isolated", "--json", "--out", tmp_path / "run", *_BRIEF),
    )
    rows = outcome.document["rows"]
    assert outcome.code == 0
    found = {(row["op"], row["dtype"], row["redop"]): row for row in rows}
    assert found["all_reduce", "int32", "bxor"]["status"] == "ok"
    assert found["all_reduce", "float16", "avg"]["status"] == "ok"
    assert found["broadcast", "complex64", None]["status"] == "ok"
    assert found["broadcast", "int16", None]["reason"] == "Invalid scalar type"
    assert found["all_reduce", "float8_e4m3fn", "sum"]["status"] == "skipped"
    assert "result type Float" in found["all_reduce", "int32", "avg"]["reason"]
    assert found["all_reduce", "float16", "band"]["reason"] == "band is not defined on float16"
    assert all(row["status"] in ("ok", "skipped") for row in rows)


def test_two_equal_arms_interleave_and_are_compared(tmp_path: Path) -> None:
    outcome = sweep(
        *("--backends", "gloo,gloo", "--sizes", "4K", "--modes", "isolated,back-to-back"),
        *("--epochs", "6", "-n", "48", "--json", "--out", tmp_path / "run"),
    )
    document = outcome.document
    assert outcome.code == 0
    assert [row["arm"] for row in document["rows"]] == ["gloo", "gloo#2"] * 2
    assert {row["implementation"] for row in document["rows"]} == {"ProcessGroupGloo (gloo)"}
    assert [row["new"] for row in document["comparisons"]] == ["gloo#2"] * 2 or document["comparisons"]
    for row in document["comparisons"]:
        assert row["ci_low"] <= row["ratio"] <= row["ci_high"]
        assert row["verdict"] in ("same", "faster", "slower", "unclear")
        assert row["epochs"] == 6
    loaded = load_run(tmp_path / "run")
    orders = set()
    for (_, arm), units in loaded.units.items():
        assert [unit.epoch for unit in units] == list(range(6))
        if arm == "gloo":
            orders |= {unit.turns for unit in units}
    assert orders == {(0, 3), (1, 2)}, "both orders of the pair come up"
    by_epoch = {
        (unit.case, unit.epoch): unit.turns
        for (_, arm), units in loaded.units.items()
        if arm == "gloo#2"
        for unit in units
    }
    for (_, arm), units in loaded.units.items():
        for unit in units:
            if arm == "gloo":
                assert sorted(unit.turns + by_epoch[unit.case, unit.epoch]) == [0, 1, 2, 3]


def test_an_arm_that_is_not_here_says_why_and_the_rest_is_measured(tmp_path: Path) -> None:
    outcome = sweep(
        *("--backends", "gloo,nccl2", "--sizes", "64", "--modes", "isolated"),
        *("--json", "--out", tmp_path / "run", *_BRIEF),
    )
    document = outcome.document
    assert outcome.code == 0
    status = {row["arm"]: (row["status"], row["reason"]) for row in document["rows"]}
    assert status["gloo"] == ("ok", None)
    assert status["nccl2"][0] == "unavailable"
    assert "needs" in status["nccl2"][1]


def test_wrong_data_voids_the_row_and_ends_with_1(tmp_path: Path) -> None:
    """An all_reduce that spoils one element on one rank, added to the table from outside."""
    script = tmp_path / "spoiled.py"
    script.write_text(
        "from dataclasses import replace\n"
        "from ncclbench.cli import main\n"
        "from ncclbench.tables.collectives import COLLECTIVES\n"
        "right = COLLECTIVES['all_reduce']\n"
        "def bind(b):\n"
        "    call = right.bind(b)\n"
        "    def spoiled():\n"
        "        works = call()\n"
        "        if b.rank == 1:\n"
        "            b.send[5] += 1\n"
        "        return works\n"
        "    return spoiled\n"
        "COLLECTIVES['spoiled_all_reduce'] = replace(right, name='spoiled_all_reduce', bind=bind)\n"
        "main()\n"
    )
    outcome = run(
        *(sys.executable, script, "sweep", "--ops", "all_reduce,spoiled_all_reduce", "--sizes", "1K"),
        *("--modes", "isolated", "--json", "--exit-zero", "--out", tmp_path / "run", *_BRIEF),
    )
    assert outcome.code == 1
    right, spoiled = outcome.document["rows"]
    assert (right["status"], right["wrong"]) == ("ok", 0)
    assert (spoiled["status"], spoiled["wrong"]) == ("wrong", 4), "two passes in each of two epochs"
    assert "WRONG" in outcome.document["message"]
    assert outcome.document["ok"] is False


def test_samples_hold_every_iteration_of_every_rank(tmp_path: Path) -> None:
    outcome = sweep(
        *("--sizes", "4K,64K", "--nproc-per-node", "3", "-n", "11", "--epochs", "3"),
        *("--out", tmp_path / "run"),
    )
    assert outcome.code == 0
    loaded = load_run(tmp_path / "run")
    assert loaded.problems == []
    for (case, _), units in loaded.units.items():
        assert [unit.total_us.shape[0] for unit in units] == [3, 3, 3]
        if "isolated" in case:
            assert sum(unit.total_us.shape[1] for unit in units) == 11
            assert {unit.k for unit in units} == {1}
        else:
            assert len({unit.k for unit in units}) == 1
            assert units[0].k > 1
        assert all((unit.launch_us <= unit.total_us + 1e-3).all() for unit in units)
    assert {(entry["arm"], entry["epoch"], entry["rank"]) for entry in loaded.cold} == {
        ("gloo", epoch, rank) for epoch in range(3) for rank in range(3)
    }
    places = loaded.meta["environment"]["ranks"]
    assert [place["rank"] for place in places] == [0, 1, 2]
    assert loaded.meta["fence"]["median_us"] >= 0


@pytest.mark.full
def test_epochs_can_be_processes_of_their_own(tmp_path: Path) -> None:
    outcome = sweep(
        *("--sizes", "4K", "--modes", "isolated,back-to-back", "--epoch-kind", "process"),
        *("--json", "--out", tmp_path / "run", *_BRIEF),
    )
    assert outcome.code == 0
    assert [row["epochs"] for row in outcome.document["rows"]] == [2, 2]
    back_to_back = next(
        units for (case, _), units in load_run(tmp_path / "run").units.items() if "back-to-back" in case
    )
    assert len({unit.k for unit in back_to_back}) == 1


def test_a_time_budget_ends_a_case_and_the_row_stays(tmp_path: Path) -> None:
    outcome = sweep(
        *("--sizes", "1M", "--modes", "isolated", "-n", "2000", "--epochs", "1000"),
        *("--time-budget", "1s", "--json", "--out", tmp_path / "run"),
    )
    (row,) = outcome.document["rows"]
    assert outcome.code == 0
    assert row["status"] == "ok"
    assert 1 < row["epochs"] < 1000


def test_a_complete_run_resumes_to_the_same_rows_at_once(tmp_path: Path) -> None:
    first = sweep("--sizes", "64", "--json", "--out", tmp_path / "run", *_BRIEF)
    again = sweep("--resume", tmp_path / "run", "--json")
    assert again.code == 0
    assert again.document["rows"] == first.document["rows"]
    shown = sweep("--resume", tmp_path / "run").out.splitlines()
    assert shown[0] == f"# nothing is missing in {tmp_path / 'run'}: all its cases were measured"
    assert len(json.loads((tmp_path / "run" / "run.json").read_text())["attempts"]) == 1


def test_torchrun_places_the_ranks_and_rank_0_speaks_alone(tmp_path: Path) -> None:
    outcome = run(
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "-m", "ncclbench", "sweep"),
        *("--ops", "all_reduce,all_to_all", "--sizes", "4K", "--json", "--out", tmp_path / "run", *_BRIEF),
    )
    document = outcome.document
    assert outcome.code == 0, outcome.err
    assert by_status(document["rows"]) == {"ok": 4}
    assert {row["nranks"] for row in document["rows"]} == {3}
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert meta["attempts"][0]["launcher"] == "torchrun"
    assert len(meta["environment"]["ranks"]) == 3


def test_mpirun_places_the_ranks(tmp_path: Path) -> None:
    mpirun = require_tool("mpirun")
    outcome = run(
        *(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-m", "ncclbench"),
        *("sweep", "--sizes", "4K", "--json", "--out", tmp_path / "run", *_BRIEF),
    )
    assert outcome.code == 0, outcome.err
    assert by_status(outcome.document["rows"]) == {"ok": 2}
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert meta["attempts"][0]["launcher"] == "mpirun"


def test_a_process_group_of_another_package_is_an_arm(tmp_path: Path) -> None:
    """A backend that registers with torch through its entry point, as such packages do."""
    package = tmp_path / "site" / "toy_backend-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[torch.distributed.backends]\ntoy = toy_backend:register\n")
    (tmp_path / "site" / "toy_backend.py").write_text(
        "import torch.distributed as dist\n"
        "def create(store, rank, size, timeout):\n"
        "    return dist.ProcessGroupGloo(store, rank, size, timeout)\n"
        "def register():\n"
        "    dist.Backend.register_backend('toy', create, devices=['cpu'])\n"
    )
    outcome = sweep(
        *("--backends", "gloo,toy", "--sizes", "4K", "--modes", "isolated"),
        *("--json", "--out", tmp_path / "run", *_BRIEF),
        env={"PYTHONPATH": str(tmp_path / "site")},
    )
    assert outcome.code == 0, outcome.err
    gloo, toy = outcome.document["rows"]
    assert (gloo["status"], toy["status"]) == ("ok", "ok")
    assert "toy" in toy["implementation"] or "Gloo" in toy["implementation"]


def test_the_supervisor_makes_no_cuda_nvml_or_tensor_call(tmp_path: Path) -> None:
    """A fork of a process with a CUDA context is broken, so whatever would make one fails in it here."""
    script = tmp_path / "watched.py"
    script.write_text(
        "import os, pynvml, torch\n"
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "supervisor = os.getpid()\n"
        "def watched(name, call):\n"
        "    def run(*args, **kwargs):\n"
        "        assert os.getpid() != supervisor, f'{name} in the supervisor'\n"
        "        return call(*args, **kwargs)\n"
        "    return run\n"
        "for name in ('device_count', 'is_available', 'init', '_lazy_init', 'set_device'):\n"
        "    setattr(torch.cuda, name, watched(name, getattr(torch.cuda, name)))\n"
        "pynvml.nvmlInit = watched('nvmlInit', pynvml.nvmlInit)\n"
        "class NoTensors(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        assert os.getpid() != supervisor, f'{func} in the supervisor'\n"
        "        return func(*args, **(kwargs or {}))\n"
        "from ncclbench.cli.app import run\n"
        "with NoTensors():\n"
        "    code = run(['sweep', '--sizes', '4K', '-n', '4', '--epochs', '2', '--out', os.environ['OUT']])\n"
        "assert not torch.cuda.is_initialized()\n"
        "raise SystemExit(code)\n"
    )
    outcome = run(sys.executable, script, env={"OUT": str(tmp_path / "run")})
    assert outcome.code == 0, outcome.err
    assert load_run(tmp_path / "run").units
