"""make gpu-check itself: some checks for real on the CPU, and others that go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from sweeping import alive, run, wait_until

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks" / "gpu"
sys.path.insert(0, str(FOLDER))

import gpu_check.__main__ as gpu_check  # noqa: E402
from gpu_check.checks import CHECKS, NCCLBENCH, Check  # noqa: E402
from gpu_check.child import Ended  # noqa: E402
from gpu_check.judging import UNAVAILABLE, WORKS, WRONG, judge_command, judge_direct  # noqa: E402
from gpu_check.machine import excerpt, scrubbed  # noqa: E402
from gpu_check.place import Place, numbers  # noqa: E402

from ncclbench.cli.app import group  # noqa: E402

CPU = Place("cpu", 0, (2, 15), None)
ONE_GPU = Place("cuda", 1, (2, 15), (2, 30, 7))
TOLD = {"verdict": "works", "reason": "it does"}


def checked(only: str, file: Path) -> dict[str, Any]:
    """What the checker writes of these checks on the CPU; none is wrong."""
    words = ("--device", "cpu", "--only", only, "--out", file)
    outcome = run(sys.executable, "-m", "gpu_check", *words, env={"PYTHONPATH": f"{ROOT}:{FOLDER}"})
    assert outcome.code == 0, outcome.out + outcome.err
    written: dict[str, Any] = json.loads(file.read_text())
    assert f"; {file} can be sent back" in outcome.out
    machine = written["machine"]
    assert machine["torch"]["torch"].startswith(machine["packages"]["torch"])
    return {line["name"]: line["verdict"] for line in written["checks"]}


def test_some_checks_for_real(tmp_path: Path) -> None:
    found = checked("list,plan,events", tmp_path / "back.json")
    assert found == {"list": WORKS, "plan": WORKS, "events": UNAVAILABLE}


@pytest.mark.full
def test_more_checks_for_real(tmp_path: Path) -> None:
    found = checked("counting,sweep-gloo,flight", tmp_path / "back.json")
    names = ("counting", "sweep-gloo x2", "flight x2")
    assert found == dict.fromkeys(names, WORKS)


def made(name: str, code: str, **more: Any) -> Check:
    return Check(
        name, "", ((sys.executable, "-c", code.replace("{", "{{").replace("}", "}}")),), judge_direct, **more
    )


def is_there(pid: int) -> bool:
    try:
        return alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "place_of", lambda device: (CPU, {}))
    monkeypatch.setattr(gpu_check, "describe", lambda told: {"told": told})


@pytest.mark.usefixtures("here")
def test_what_is_wrong_hangs_crashes_or_leaves_processes_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = tmp_path / "pids"
    # In a session of its own and adopted by init: only its environment tells whose it is.
    start = "import os, subprocess, time; p = subprocess.Popen(['sleep', '300'], start_new_session=True); "
    start += f"open({str(pids)!r}, 'a').write(f'{{p.pid}} {{os.getpid()}} '); "
    told = f"print({json.dumps(TOLD)!r}, flush=True)"
    wrong = "import json; print(json.dumps(dict(verdict='wrong', reason='2 is 3'))); exit(1)"
    hanging = f"{start}print('waiting for a peer', flush=True); time.sleep(300)"
    checks = {
        "good": made("good", told),
        "wrong": made("wrong", wrong),
        "hangs": made("hangs", hanging, timeout_s=1.5),
        "crashes": made("crashes", "import os; os.abort()"),
        "leaves": made("leaves", start + told),
        "silent": made("silent", ""),
        "absent": made("absent", told, gpu=True),
    }
    file = tmp_path / "back.txt"
    assert gpu_check.main(["--out", str(file)], checks) == 1
    lines = {words[0]: words[1:] for words in (line.split() for line in capsys.readouterr().out.splitlines())}
    assert {name: lines[name][0] for name in checks} == {
        "good": WORKS,
        **dict.fromkeys(("wrong", "hangs", "crashes", "leaves", "silent"), WRONG),
        "absent": UNAVAILABLE,
    }
    text = file.read_text()
    assert "1 works, 5 wrong, 1 unavailable" in text
    for words in (
        "2 is 3",
        "waiting for a peer",
        "ended by signal 6",
        "left 1 process behind",
        "nothing was printed",
    ):
        assert words in text, words
    assert len(pids.read_text().split()) == 4
    assert not [pid for pid in map(int, pids.read_text().split()) if is_there(pid)]


def test_a_check_dies_with_a_checker_that_is_killed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from gpu_check import child; "
    code += "child.run([sys.executable, '-c', 'import time; time.sleep(300)'], Path(sys.argv[1]), 300)"
    paths = {**os.environ, "PYTHONPATH": f"{ROOT}:{FOLDER}"}
    checker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=paths)
    try:
        parent = psutil.Process(checker.pid)
        wait_until(
            lambda: bool(parent.children()) and parent.children()[0].cmdline()[-1:] != [str(tmp_path)], "it"
        )
        (checked,) = parent.children()
        checker.kill()
        checker.wait()
        wait_until(lambda: not alive(checked), "the end of the check", within_s=5)
    finally:
        checker.kill()


@pytest.mark.usefixtures("here")
def test_a_step_before_the_last_that_is_wrong_is_the_answer(tmp_path: Path) -> None:
    bad, good = made("bad", "exit(3)"), made("good", f"print({json.dumps(TOLD)!r})")
    assert (
        gpu_check.main(
            ["--out", str(tmp_path / "back.json")], {"both": replace(good, steps=bad.steps + good.steps)}
        )
        == 1
    )


def test_requests_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--only", "event"], ["--time-limit", "0"], ["--out", str(tmp_path / "no" / "file")]):
        with pytest.raises(SystemExit) as ended:
            gpu_check.main(words)
        assert ended.value.code == 2
    assert "no check is called event" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["/proc/nope", "/dev", "a\0b"])
def test_a_file_that_cannot_be_written_is_refused_before_the_checks(
    out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu_check.main(["--device", "cpu", "--only", "plan", "--out", out])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert (said.out, "cannot be written" in said.err) == ("", True)


def ended(document: dict[str, Any], code: int = 0) -> Ended:
    return Ended(code, json.dumps(document), "", 1.0, 0)


@pytest.mark.parametrize(
    ("document", "code", "word"),
    [
        ({"rows": [{"status": "ok"}], "message": "fine"}, 0, WORKS),
        ({"rows": [{"status": "ok", "reason": "a remark"}]}, 0, WORKS),
        ({"rows": [{"status": "ok"}, {"status": "skipped", "reason": "not in place"}]}, 0, WORKS),
        ({"rows": [{"status": "skipped", "reason": "no"}]}, 0, UNAVAILABLE),
        ({"rows": [{"status": "ok"}, {"status": "failed", "reason": "capture"}]}, 0, WRONG),
        ({"rows": [{"status": "ok", "wrong": 3}]}, 0, WRONG),
        ({"trials": [{"outcome": "recovered", "correct": False}]}, 0, WRONG),
        ({"wrong": 1, "rows": []}, 0, WRONG),
        ({"message": "nccl2 needs torch >= 2.15, this is 2.13"}, 2, UNAVAILABLE),
        ({"message": "unknown option '--preset'"}, 2, UNAVAILABLE),
        ({"message": "rank 1 hung in all_reduce"}, 3, WRONG),
        ({"message": "wrong data"}, 1, WRONG),
    ],
)
def test_what_comes_of_a_document(document: dict[str, Any], code: int, word: str) -> None:
    assert judge_command(ended(document, code)).word == word


def test_a_traceback_is_no_answer() -> None:
    verdict = judge_command(Ended(1, "", "Traceback (most recent call last):\n...\nKeyError: 'x'\n", 1.0, 0))
    assert (verdict.word, verdict.reason) == (WRONG, "exit code 1 and no document: KeyError: 'x'")


def test_how_many_ranks_a_check_gets() -> None:
    assert CPU.ranks((1, 2, 4)) == [(2, None)]
    assert ONE_GPU.ranks((1, 2, 4)) == [(1, None), (2, None), (4, None)]
    old = replace(ONE_GPU, nccl=(2, 29, 3))
    assert old.ranks((1, 2)) == [(1, None), (2, "2 ranks on 1 GPU need NCCL 2.30 or later, this is 2.29.3")]
    assert replace(old, gpus=8).ranks((1, 2, 4)) == [(8, None)]
    assert replace(ONE_GPU, gpus=2).ranks((4,)) == [(4, None)]
    assert numbers("2.15.0+cu132") == (2, 15, 0)


def test_ranks_share_a_gpu_only_where_they_must(tmp_path: Path) -> None:
    for place, nranks, shares in (
        (ONE_GPU, 1, False),
        (ONE_GPU, 4, True),
        (replace(ONE_GPU, gpus=4), 4, False),
    ):
        words = gpu_check.command_of(CHECKS["matrix"].steps[0], place, nranks, str(tmp_path))
        assert ("--share-gpu" in words) == shares
        assert words[words.index("--backends") + 1] == "nccl2"
    old = replace(ONE_GPU, torch=(2, 13))
    assert CHECKS["sweep-nccl2"].why_not(old) == "needs torch 2.15, this is 2.13"
    assert CHECKS["sweep-nccl-legacy"].why_not(old) is None


@pytest.mark.parametrize("name", CHECKS)
def test_every_command_of_the_table_is_one(name: str, tmp_path: Path) -> None:
    """Its options are ncclbench's, at one rank and at several that share a GPU."""
    for step in CHECKS[name].steps:
        words = gpu_check.command_of(step, ONE_GPU, 4, str(tmp_path))
        if tuple(words[: len(NCCLBENCH)]) != NCCLBENCH:
            continue
        command = group.get_command(click.Context(group), words[3])
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words[4:] if word.startswith("-")} <= known


def test_what_is_sent_back_tells_no_gpu_from_its_twin() -> None:
    smi = """
    Product Name                          : NVIDIA H200
    Serial Number                         : 1652823054567
    GPU UUID                              : GPU-8932f937-d72c-4106-c12f-20bd9faed9f6
    Bus Id                                : 00000000:3B:00.0
    Clocks
        SM                                : 1980 MHz
        SW Power Cap                      : Not Active
    """
    kept = "\n".join(excerpt(smi))
    assert [line.split(":")[0].strip() for line in kept.splitlines()] == [
        "Product Name",
        "Clocks",
        "SM",
        "SW Power Cap",
    ]
    assert scrubbed(f"at 00000000:3B:00.0 in {Path.home()}/x") == "at (hidden) in ~/x"
