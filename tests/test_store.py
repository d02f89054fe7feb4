"""The run folder: what is written survives, and whatever is read gives right numbers or one clear line."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixtures import make_run

from ncclbench.errors import MeasurementError, RequestError
from ncclbench.stats.rows import run_rows
from ncclbench.store.files import disk_error
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import ColdLine, StatusLine, encode_line, encode_unit
from ncclbench.store.model import Run, Unit
from ncclbench.store.reader import load_run
from ncclbench.store.writer import SampleWriter


def small_run(**options: Any) -> Run:
    """Two arms, two sizes, two epochs, two ranks: 16 lines."""
    chosen = {"ops": ["all_reduce"], "sizes": [8, 1024], "modes": ["isolated"], "arms": ["gloo", "gloo#2"]}
    return make_run(**(chosen | {"epochs": 2, "iters": 6} | options))


def units_of(run: Run) -> list[Unit]:
    return [unit for units in run.units.values() for unit in units]


def written(path: Path, run: Run, *extra: bytes) -> Path:
    """The run in a folder at ``path``, through the real writer, one append for each unit."""
    with RunFolder.create(path) as folder, folder.samples() as samples:
        folder.write_meta(run.meta)
        for lines in (*map(encode_unit, units_of(run)), *extra):
            samples.append(lines)
    return path


def assert_same(found: Unit, expected: Unit) -> None:
    for field in fields(Unit):
        value, wanted = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(wanted, np.ndarray):
            np.testing.assert_allclose(value, wanted, rtol=0, atol=0.000501)
        else:
            assert value == wanted, field.name


# What is written comes back.


@pytest.mark.parametrize("name", ["", "run.json"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    run = small_run()
    case, arm = next(iter(run.units))
    on_device = [
        replace(unit, device_us=unit.total_us / 2, k=4, visits=(2, 1), turns=(0, 3), wrong=None)
        for unit in run.units[case, arm]
    ]
    run.units[case, arm] = on_device
    status = StatusLine(run.plan.cases[1].case.key, "gloo#2", "failed", "rank 1 on node-00 died")
    cold = ColdLine("gloo", 0, 0, 1, 1250.5, None)
    folder = written(tmp_path / "run", run, encode_line(cold), encode_line(status))
    found = load_run(folder / name)
    assert found.folder == folder
    assert found.plan == run.plan
    assert found.meta == json.loads(json.dumps(run.meta))
    assert found.problems == []
    assert found.units.keys() == run.units.keys()
    for key, units in run.units.items():
        for one, other in zip(found.units[key], units, strict=True):
            assert_same(one, other)
    assert found.statuses == {(status.case, "gloo#2"): ("failed", "rank 1 on node-00 died")}
    place = {"arm": "gloo", "topology": "world", "epoch": 0, "attempt": 0, "rank": 1}
    expected = {**place, "init_us": 1250.5, "first_op_us": None}
    assert found.cold == [expected]


def test_samples_may_be_missing(tmp_path: Path) -> None:
    """A run that was interrupted before its first unit."""
    with RunFolder.create(tmp_path / "run") as folder:
        folder.write_meta(small_run().meta)
    run = load_run(tmp_path / "run")
    assert run.units == {}
    assert {row["status"] for row in run_rows(run)} == {"failed"}


# The folder: made, refused, locked.


def test_create_refuses_a_folder_with_a_run(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", small_run())
    with pytest.raises(RequestError, match=r"already holds a run .*--resume"):
        RunFolder.create(folder)
    with RunFolder.reopen(folder):  # the refusal did not keep the lock
        pass


@pytest.mark.parametrize(
    ("below", "words"), [("file", "is a file"), ("file/run", "is a file"), ("proc", "cannot write")]
)
def test_create_refuses_what_cannot_be_a_folder(tmp_path: Path, below: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    path = Path("/proc/ncclbench") if below == "proc" else tmp_path / below
    with pytest.raises(RequestError, match=words):
        RunFolder.create(path)


def test_reopen_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no run"):
        RunFolder.reopen(tmp_path)


HOLDER = """
    import os, sys, time
    from pathlib import Path
    from ncclbench.store.folder import RunFolder
    folder = RunFolder.reopen(Path(sys.argv[1]))
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, flush=True)
    time.sleep(60)
"""


def test_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", small_run())
    script = [sys.executable, "-c", textwrap.dedent(HOLDER), str(folder)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            words = f"in use by process {holder.pid} on {socket.gethostname()}"
            with pytest.raises(RequestError, match=words):
                RunFolder.reopen(folder)
            holder.kill()
            holder.wait()
            os.kill(child, 0)  # its child lives on, and does not hold the lock
            with RunFolder.reopen(folder):
                pass
        finally:
            holder.kill()
            os.kill(child, signal.SIGKILL)


# A full disk: the file size limit makes real short writes.


def in_child_with_file_limit(limit_bytes: int, action: Callable[[], None]) -> int:
    """The exit code of ``action`` in a forked process whose files cannot grow beyond the limit."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
            action()
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_does_not_fit_leaves_whole_units(tmp_path: Path) -> None:
    run = small_run()
    folder = written(tmp_path / "run", run)
    samples = folder / "samples.jsonl"
    before = samples.read_bytes()
    lines = encode_unit(units_of(run)[0])

    def append() -> None:
        with RunFolder.reopen(folder) as reopened, reopened.samples() as writer:
            writer.append(lines)
            with pytest.raises(MeasurementError, match=r"samples\.jsonl.*is kept.*--resume") as caught:
                writer.append(lines)
            assert "\n" not in str(caught.value)

    assert in_child_with_file_limit(len(before) + len(lines) + 10, append) == 0
    assert samples.read_bytes() == before + lines
    assert load_run(folder).problems == []


def test_full_disk_says_so() -> None:
    with (
        SampleWriter(Path("/dev/full")) as writer,
        pytest.raises(MeasurementError, match="disk full at /dev/full: make room"),
    ):
        writer.append(b"{}\n")


@pytest.mark.parametrize(
    ("kind", "mend"),
    [
        ("sweep", "resume with ncclbench sweep --resume {folder}"),
        ("overlap", "what was measured is shown by ncclbench report {folder}; measure again elsewhere"),
        ("import", "import again into another folder, or remove {folder} first"),
        (None, "give the command again, or write elsewhere"),
    ],
)
def test_only_a_sweep_is_told_to_be_resumed(tmp_path: Path, kind: str | None, mend: str) -> None:
    if kind is not None:
        (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "kind": kind}), encoding="utf-8")
    for name in ("run.json", "samples.jsonl"):
        told = disk_error(tmp_path / name, OSError(errno.EFBIG, "File too large"))
        assert str(told).endswith(mend.format(folder=tmp_path))


def test_meta_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    run = small_run()
    folder = written(tmp_path / "run", run)

    def write() -> None:
        with RunFolder.reopen(folder) as reopened, pytest.raises(MeasurementError, match=r"run\.json"):
            reopened.write_meta(run.meta | {"message": "x" * 100_000})

    names = sorted(path.name for path in folder.iterdir())
    assert in_child_with_file_limit(50_000, write) == 0
    assert load_run(folder).meta == json.loads(json.dumps(run.meta))
    assert sorted(path.name for path in folder.iterdir()) == names
    with RunFolder.reopen(folder) as reopened:
        reopened.write_meta(run.meta | {"message": "better"})
    assert load_run(folder).meta["message"] == "better"


WRITER = """
    import sys
    from pathlib import Path
    from ncclbench.store.folder import RunFolder
    line = sys.stdin.buffer.readline()
    with RunFolder.reopen(Path(sys.argv[1])) as folder, folder.samples() as samples:
        for count in range(1, 1_000_000):
            samples.append(line.replace(b'"epoch":0', b'"epoch":%d' % count))
            print(count, flush=True)
"""


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path) -> None:
    run = small_run(nranks=1)
    folder = written(tmp_path / "run", run)
    script = [sys.executable, "-c", textwrap.dedent(WRITER), str(folder)]
    for delay_s in (0.05, 0.12):
        with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(encode_unit(units_of(run)[0]))
            writer.stdin.flush()
            acknowledged = [int(writer.stdout.readline())]
            time.sleep(delay_s)
            writer.kill()
            acknowledged += [int(line) for line in writer.stdout.read().split(b"\n")[:-1]]
        found = load_run(folder)
        first = units_of(run)[0]
        assert set(acknowledged) <= {unit.epoch for unit in found.units[first.case, first.arm]}


# What a crash leaves behind.


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1))
def test_any_cut_leaves_the_units_before_it(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    run = small_run()
    folder = written(tmp_path_factory.mktemp("cut") / "run", run)
    samples = folder / "samples.jsonl"
    whole = samples.read_bytes()
    kept = int(cut * len(whole))
    samples.write_bytes(whole[:kept])
    lengths = [len(encode_unit(unit)) for unit in units_of(run)]
    complete = int(np.searchsorted(np.cumsum(lengths), kept, side="right"))
    found = load_run(folder)
    assert len(units_of(found)) == complete
    torn = kept > 0 and not whole[:kept].endswith(b"\n")
    assert any("torn" in problem for problem in found.problems) == torn
    # Appending goes on after the last whole line.
    again = encode_unit(units_of(run)[-1])
    with RunFolder.reopen(folder) as reopened, reopened.samples() as writer:
        writer.append(again)
    assert samples.read_bytes() == whole[: whole.rfind(b"\n", 0, kept) + 1] + again
    last = units_of(run)[-1]
    assert_same(load_run(folder).units[last.case, last.arm][-1], last)


def test_incomplete_units_are_told_unless_measured_again(tmp_path: Path) -> None:
    run = small_run()
    unit = units_of(run)[0]
    half = encode_unit(replace(unit, epoch=7)).split(b"\n")[0] + b"\n"
    folder = written(tmp_path / "run", run, half)
    found = load_run(folder)
    assert [unit.epoch for unit in found.units[unit.case, unit.arm]] == [0, 1]
    assert len(found.problems) == 1
    assert "epoch 7: 1 of 2 ranks" in found.problems[0]
    with RunFolder.reopen(folder) as reopened, reopened.samples() as writer:
        writer.append(encode_unit(replace(unit, epoch=7, attempt=1)))
    found = load_run(folder)
    assert [unit.epoch for unit in found.units[unit.case, unit.arm]] == [0, 1, 7]
    assert found.problems == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_latest_attempt_counts(tmp_path: Path, order: tuple[int, int]) -> None:
    run = small_run(arms=["gloo"], sizes=[8], epochs=1)
    unit = units_of(run)[0]
    attempts = [replace(unit, attempt=attempt, total_us=unit.total_us + attempt) for attempt in order]
    run.units = {(unit.case, unit.arm): attempts}
    found = units_of(load_run(written(tmp_path / "run", run)))
    assert [unit.attempt for unit in found] == [1]
    np.testing.assert_allclose(found[0].total_us, unit.total_us + 1, atol=0.001)


def test_measured_after_all_clears_a_failure(tmp_path: Path) -> None:
    run = small_run()
    unit = units_of(run)[0]
    failed = encode_line(StatusLine(unit.case, unit.arm, "failed", "rank 1 hung"))
    later = encode_unit(replace(unit, epoch=2, attempt=1))
    assert load_run(written(tmp_path / "failed", run, failed)).statuses
    assert load_run(written(tmp_path / "cleared", run, failed, later)).statuses == {}


def test_strangers_are_left_out_and_counted(tmp_path: Path) -> None:
    run = small_run()
    strangers = [encode_unit(replace(units_of(run)[0], arm=f"nccl{number}")) for number in range(9)]
    found = load_run(written(tmp_path / "run", run, *strangers))
    assert found.units.keys() == run.units.keys()
    assert len(found.problems) == 6
    assert "nccl0 is not in the plan" in found.problems[0]
    assert found.problems[-1] == "and 13 more like that"
