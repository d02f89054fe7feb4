"""Arms with settings in real sweeps: workers in turns, other Pythons and libraries, and what runs say."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from searching import under_launcher
from sweeping import SWEEP, Running, alive, lines, sweep, wait_until

from ncclbench.store.reader import load_run

QUICK = ("--sizes", "64", "--modes", "isolated", "-n", "12")


def meta_of(folder: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return meta


def other_python(folder: Path, sitecustomize: str) -> Path:
    """This Python with something of its own: a script, as users write one."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(sitecustomize)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def _named(running: Running, name: str) -> int:
    """Processes of that name below the command."""
    return sum(alive(process) and process.name() == name for process in running.descendants())


SLOW = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "ncclbench.worker.operation":
            sys.meta_path.remove(self)
            import time
            import torch.distributed as dist
            plain = dist.all_reduce
            def slow(*args, **kwargs):
                time.sleep(0.005)
                return plain(*args, **kwargs)
            dist.all_reduce = slow

sys.meta_path.insert(0, Finder())
"""


def test_a_variable_has_workers_of_its_own_and_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arms = "gloo; gloo GLOO_SOCKET_IFNAME=lo; gloo TORCH_GLOO_LAZY_INIT=1"
    done = sweep("--arms", arms, *QUICK, "--epochs", "2", "--out", folder, "--json")
    assert done.code == 0, done.err
    rows = done.document["rows"]
    assert [(row["arm"], row["status"], row["epochs"]) for row in rows] == [
        ("gloo", "ok", 2),
        ("gloo-lo", "ok", 2),
        ("gloo-lazy_init1", "ok", 2),
    ]
    assert all("in processes of their own" in each["note"] for each in done.document["comparisons"])
    (interface,), (lazy,) = (
        meta_of(folder)["arms"][arm]["settings"] for arm in ("gloo-lo", "gloo-lazy_init1")
    )
    assert (interface["found"], interface["in_force"]) == ("lo", True)
    assert lazy["in_force"] is None
    assert "gloo-lo: GLOO_SOCKET_IFNAME=lo in force" in done.err
    assert "Settings of arms" in (folder / "report.html").read_text()
    # One epoch of the case over all arms: nobody's visit has another's place.
    units = load_run(folder).units
    turns = [turn for each in units.values() for unit in each if unit.epoch == 0 for turn in unit.turns]
    assert sorted(turns) == list(range(len(turns)))


def test_arms_of_one_process_need_no_launch_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = sweep("--arms", "gloo; gloo", *QUICK, "--epochs", "2", "--out", folder, "--json")
    assert done.code == 0, done.err
    assert all("processes" not in (each["note"] or "") for each in done.document["comparisons"])
    assert "settings" not in meta_of(folder)["arms"]["gloo"]


@pytest.mark.full
def test_another_python_is_found_slower_where_it_is(tmp_path: Path) -> None:
    python = other_python(tmp_path / "slow", SLOW)
    folder = tmp_path / "run"
    options = ("--arms", "gloo; gloo @slow", "--arm-env", f"slow={python}", "--epochs", "8")
    done = sweep(*options, *QUICK[:-1], "80", "--out", folder, "--json")
    assert done.code == 0, done.err
    (comparison,) = done.document["comparisons"]
    assert (comparison["new"], comparison["verdict"]) == ("gloo-slow", "slower")
    (reading,) = meta_of(folder)["arms"]["gloo-slow"]["settings"]
    assert reading["in_force"] is True
    assert reading["found"].startswith("torch ")
    # Where it is stands nowhere in the run but in the command line.
    assert str(python) not in json.dumps({**meta_of(folder), "command": []})


@pytest.mark.full
def test_a_folder_of_libraries_is_loaded_or_the_arm_is_not_measured(tmp_path: Path) -> None:
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    library = next(path for path in mapped if "/libm.so" in path or "/libm-" in path)
    loaded, idle = tmp_path / "loaded", tmp_path / "idle"
    for folder, name in ((loaded, "libnccl.so.2"), (idle, "libnobody-asks.so")):
        folder.mkdir()
        shutil.copy(library, folder / name)
    arms = "gloo; gloo @loaded; gloo @idle"
    where = f"loaded={loaded}; idle={idle}"
    done = sweep(
        "--arms", arms, "--arm-env", where, *QUICK, "--epochs", "2", "--out", tmp_path / "run", "--json"
    )
    assert done.code == 0, done.err
    statuses = {row["arm"]: row["status"] for row in done.document["rows"]}
    assert statuses == {"gloo": "ok", "gloo-loaded": "ok", "gloo-idle": "unavailable"}
    arms_meta = meta_of(tmp_path / "run")["arms"]
    assert arms_meta["gloo-loaded"]["settings"][0]["found"].endswith("libraries libnccl.so.2")
    assert "@idle NOT in force" in arms_meta["gloo-idle"]["reason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--arms", "gloo; gloo @new"), "say where it is with --arm-env new=PATH"),
        (("--arm-env", "new=/usr/bin/true"), "--arm-env new is of no arm"),
        (("--arms", "gloo; gloo @new", "--arm-env", "new=/no/such/python"), "there is no /no/such/python"),
        (("--arms", "gloo GLOO_API_TOKEN=abc"), "looks like a secret"),
        (("--arms", "gloo", "--arm-env", "a=/usr/bin/true; a=/bin"), "names a twice"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_anything_starts(
    options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = sweep(*options, *QUICK, "--out", tmp_path / "run")
    assert done.code == 2
    assert words in done.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_a_python_without_torch_ends_with_its_own_words(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = sweep(
        "--arms", "gloo; gloo @bare", "--arm-env", f"bare={python}", *QUICK, "--out", tmp_path / "run"
    )
    assert done.code == 3
    last = done.err.splitlines()[-1]
    assert "rank 0" in last or "rank 1" in last
    assert "No module named" in last


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\nexit 0\n", "exited with code 0 (it left no word) while starting with @bad"),
        ("not a program", "cannot be executed: Exec format error (a script begins with #!"),
        (
            "#!/bin/sh\necho '<b>bad</b>' >&2; exit 7\n",
            "exited with code 7 (<b>bad</b>) while starting with @bad",
        ),
    ],
)
def test_a_program_that_is_no_python_is_told_of(script: str, words: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(script)
    python.chmod(0o755)
    done = sweep("--arms", "gloo; gloo @bad", "--arm-env", f"bad={python}", *QUICK, "--out", tmp_path / "run")
    assert done.code == 3
    assert words in done.err.splitlines()[-1]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_script_that_starts_its_python_as_a_child_leaves_none_behind(number: int, tmp_path: Path) -> None:
    python = tmp_path / "python"
    # What it starts hears of no signal to the script, and would wait for an hour.
    python.write_text("#!/bin/sh\nsleep 3601\nexit $?\n")
    python.chmod(0o755)
    arms = ("--arms", "gloo; gloo @child", "--arm-env", f"child={python}", *QUICK)
    with Running(*SWEEP, *arms, "--out", tmp_path / "run") as running:
        wait_until(lambda: _named(running, "sleep") >= 2, "what the scripts start")
        running.signal(signal.Signals(number))
        running.wait()
        assert running.left_behind(within_s=2.0) == []


@pytest.mark.full
def test_a_script_that_stays_beside_its_python_is_as_good_and_a_hang_in_it_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ -e {tmp_path}/hang ] && sleep 3602\n{sys.executable} "$@"\nexit $?\n')
    python.chmod(0o755)
    arms = ("--arms", "gloo; gloo @child", "--arm-env", f"child={python}", *QUICK, "--epochs", "2")
    done = sweep(*arms, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert [(row["arm"], row["epochs"]) for row in done.document["rows"]] == [("gloo", 2), ("gloo-child", 2)]
    (tmp_path / "hang").touch()
    with Running(*SWEEP, *arms, "--timeout", "3", "--out", tmp_path / "other") as running:
        wait_until(lambda: _named(running, "sleep") >= 2, "what the scripts start")
        hung = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert hung.code == 3
    assert "nothing moved for 3 s, while starting with @child" in hung.err.splitlines()[-1]


@pytest.mark.full
def test_arms_that_cannot_be_had_stand_beside_those_that_can(tmp_path: Path) -> None:
    arms = "gloo; nccl2 NCCL_ALGO=Ring; gloo GLOO_SOCKET_IFNAME=nosuch; gloo GLOO_SOCKET_IFNAME=lo"
    done = sweep("--arms", arms, *QUICK, "--epochs", "2", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    rows = {row["arm"]: row for row in done.document["rows"]}
    statuses = [row["status"] for row in rows.values()]
    assert statuses == ["ok", "unavailable", "unavailable", "ok"]
    assert "needs a CUDA device" in rows["nccl2-ring"]["reason"]
    assert "Unable to find address for: nosuch" in rows["gloo-nosuch"]["reason"]


@pytest.mark.full
def test_another_python_does_not_go_on_with_a_run(tmp_path: Path) -> None:
    other = "import sys\nsys.version = sys.version.replace(sys.version.split()[0], '3.11.99')\n"
    first, second = other_python(tmp_path / "first", ""), other_python(tmp_path / "second", other)
    folder = tmp_path / "run"
    arms = ("--arms", "gloo; gloo @new", "--arm-env", f"new={first}", *QUICK, "--epochs", "2")
    assert sweep(*arms, "--out", folder).code == 0
    (folder / "run.json").write_text(json.dumps({**meta_of(folder), "status": "interrupted"}))
    refused = sweep("--resume", folder, "--arm-env", f"new={second}")
    assert refused.code == 2
    assert "Python 3.11.99 now: name with --arm-env the one it began with" in refused.err.splitlines()[-1]
    assert sweep("--resume", folder, "--arm-env", f"new={first}").code == 0


@pytest.mark.full
def test_what_was_measured_of_an_epoch_is_kept_and_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arms = ("--arms", "gloo; gloo GLOO_SOCKET_IFNAME=lo", *QUICK, "--epochs", "6")
    with Running(*SWEEP, *arms, "--out", folder) as running:
        # A whole epoch of both, and one of the next: a group and samples of each rank and arm.
        wait_until(lambda: lines(folder) >= 12, "the third unit")
        running.signal(signal.SIGINT)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 130
    kept = {arm: len(units) for (_, arm), units in load_run(folder).units.items()}
    assert sum(kept.values()) >= 3
    again = sweep("--resume", folder, "--json")
    assert again.code == 0, again.err
    assert [(row["arm"], row["epochs"]) for row in again.document["rows"]] == [("gloo", 6), ("gloo-lo", 6)]


@pytest.mark.full
def test_a_run_that_asks_for_code_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert sweep("--arms", "gloo; gloo", *QUICK, "--epochs", "2", "--out", folder).code == 0
    meta = meta_of(folder)
    meta["plan"]["arms"][1]["settings"] = {"LD_PRELOAD": "/tmp/evil.so"}
    meta["status"] = "interrupted"
    (folder / "run.json").write_text(json.dumps(meta))
    done = sweep("--resume", folder)
    assert done.code == 2
    assert "LD_PRELOAD is not read when a process group is made" in done.err.splitlines()[-1]


@pytest.mark.full
def test_under_a_launcher_all_supervisors_take_turns_alike(tmp_path: Path) -> None:
    python = other_python(tmp_path / "other", "")
    options = ("--arms", "gloo; gloo GLOO_SOCKET_IFNAME=lo; gloo @other", "--arm-env", f"other={python}")
    first, second = under_launcher(
        2, "sweep", *options, *QUICK, "--epochs", "2", "--json", "--out", tmp_path / "run"
    )
    assert (first.code, second.code) == (0, 0), first.err
    assert [(row["arm"], row["epochs"]) for row in first.document["rows"]] == [
        ("gloo", 2),
        ("gloo-lo", 2),
        ("gloo-other", 2),
    ]
