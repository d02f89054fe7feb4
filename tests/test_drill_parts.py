"""The parts of a drill on their own: tables, shared memory, what is kept, what counts as left over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil
import pytest

from ncclbench.errors import RequestError
from ncclbench.faults.leftover import children, end_leftovers
from ncclbench.faults.model import MARKER
from ncclbench.faults.stamps import KEPT_WAITS, MARKS, Stamps, common_waits_us
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.drills import PHASES, ContractOutcome, DrillTrial
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import decode_line, encode_line
from ncclbench.store.reader import load_run
from ncclbench.tables.backends import BACKENDS
from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import STRATEGIES

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")


def trial(**changes: Any) -> DrillTrial:
    settings: dict[str, Any] = {
        "number": 0,
        "fault": "kill",
        "victim": 3,
        "step": 20,
        "strategy": "reconfigure",
        "phases_ms": dict.fromkeys(PHASES, 1.5),
        "notices_ms": {"0": 1.0, "1": None},
        "correct": True,
        "recovered": True,
    }
    return DrillTrial(**(settings | changes))


class TestTables:
    @pytest.mark.parametrize("name", STRATEGIES)
    def test_phases_stand_in_their_order(self, name: str) -> None:
        for fault in FAULTS:
            phases = STRATEGIES[name].phases_of(fault)
            assert list(phases) == [phase for phase in PHASES if phase in phases]
        assert set(STRATEGIES[name].backends) <= set(BACKENDS)

    def test_names_are_their_keys(self) -> None:
        assert all(name == entry.name for name, entry in (*STRATEGIES.items(), *FAULTS.items()))


class TestStamps:
    def test_another_process_sees_them(self) -> None:
        stamps = Stamps(2)
        pid = os.fork()
        if pid == 0:
            other = Stamps(2, os.dup(stamps.descriptor)).seat(1)
            other.mark("notice")
            other.stepped(7000)
            other.wrong()
            os._exit(0)
        os.waitpid(pid, 0)
        seat = stamps.seat(1)
        noticed = seat.at_ns("notice")
        assert noticed is not None
        assert abs(time.monotonic_ns() - noticed) < 5e9
        assert (seat.steps, seat.wrong_count, seat.waits_us(0, 1)) == (1, 1, [7.0])
        assert seat.silent_s < 5
        assert all(stamps.seat(0).at_ns(name) is None for name in MARKS)
        stamps.close()

    def test_the_first_mark_stays(self) -> None:
        stamps = Stamps(1)
        seat = stamps.seat(0)
        seat.mark("fault")
        first = seat.at_ns("fault")
        time.sleep(0.002)
        seat.mark("fault")
        assert seat.at_ns("fault") == first
        stamps.close()

    def test_nothing_is_left_open(self) -> None:
        before = len(os.listdir("/proc/self/fd"))
        Stamps(8).close()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_waits_are_of_the_same_steps(self) -> None:
        stamps = Stamps(2)
        ahead, behind = stamps.seat(0), stamps.seat(1)
        for step in range(100):
            ahead.stepped(step * 1000)
            if step < 98:
                behind.stepped(step * 1000)
        waits = common_waits_us({0: ahead, 1: behind})
        assert waits[0] == waits[1]
        assert waits[0][-1] == 97.0
        assert len(waits[0]) == KEPT_WAITS - 3
        # What was before the fault is not looked at.
        assert list(common_waits_us({0: ahead, 1: behind}, since=95)[1]) == [95.0, 96.0, 97.0]
        assert list(common_waits_us({0: ahead, 1: behind}, since=99)[1]) == []
        stamps.close()


class TestSums:
    @pytest.mark.parametrize(("members", "is_right"), [((0,), True), ((0, 3), False), ((3,), False)])
    def test_show_who_has_taken_part(self, tmp_path: Path, members: tuple[int, ...], is_right: bool) -> None:
        """A group of rank 0 alone, and what it should hold."""
        stamps = Stamps(1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _checked_code(members, stamps, tmp_path / "store")
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == (10 if is_right else 11)
        assert stamps.seat(0).steps == 1
        assert stamps.seat(0).wrong_count == (0 if is_right else 1)
        stamps.close()


def _checked_code(members: tuple[int, ...], stamps: Stamps, path: Path) -> int:
    """In a process of its own: 10 where an operation of rank 0 alone has the members' sums, else 11."""
    import torch.distributed as dist

    from ncclbench.faults.loop import Loop
    from ncclbench.faults.talk import Form
    from ncclbench.worker.device import CpuDevice

    store = dist.FileStore(str(path), 1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    ours, _theirs = Pipe()
    loop = Loop(0, 4096, CpuDevice(), ours, stamps.seat(0), blocking=False)
    loop.enter(Form(1, members, (), "start"))
    correct, pauses = loop.checked()
    return 12 if pauses else 10 if correct else 11


class TestKept:
    def test_lines_come_back(self) -> None:
        outcome = ContractOutcome(
            case="reused-uuid",
            outcomes={"0": "refused"},
            seconds={"0": 0.1},
            consistent=False,
            expected="all refused",
            recovered=None,
            command="ncclbench drill --contract reused-uuid",
        )
        for line in (trial(), trial(outcome="no", recovered=False, spare="warm"), outcome):
            assert decode_line(encode_line(line)) == line

    def test_run_holds_them(self, tmp_path: Path) -> None:
        meta = {"schema": 1, "kind": "drill", "plan": unplanned((Arm("gloo", "gloo"),), 4).to_json()}
        with RunFolder.create(tmp_path / "run") as folder:
            folder.write_meta(meta)
            with folder.samples() as samples:
                samples.append(encode_line(trial()) + encode_line(trial(number=1)))
        run = load_run(tmp_path / "run")
        assert run.is_drill
        assert [one.number for one in run.trials] == [0, 1]
        assert run.contract == []

    def test_damage_is_told(self, tmp_path: Path) -> None:
        self.test_run_holds_them(tmp_path)
        samples = tmp_path / "run" / "samples.jsonl"
        samples.write_text(samples.read_text().replace("1.5", "-1.5", 1))
        with pytest.raises(RequestError, match=r"line 1 is damaged"):
            load_run(tmp_path / "run")


class TestLeftover:
    def test_a_child_is_found_and_ended(self) -> None:
        before = children()
        child = subprocess.Popen(SLEEPER)
        assert end_leftovers(before, "no such token") == 1
        assert not psutil.pid_exists(child.pid)
        child.wait(5)

    def test_a_child_from_before_is_left_alone(self) -> None:
        with subprocess.Popen(SLEEPER) as child:
            assert end_leftovers(children(), "no such token") == 0
            assert child.poll() is None
            child.kill()

    def test_an_orphan_is_known_by_its_mark(self) -> None:
        """Its parent is gone, so it is nobody's child here."""
        environment = {**os.environ, MARKER: "token of a test"}
        script = (
            "import subprocess\n"
            f"print(subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL).pid, flush=True)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=30,
            start_new_session=True,
        )
        assert end_leftovers(children(), "another token") == 0
        assert psutil.pid_exists(int(done.stdout))
        assert end_leftovers(children(), "token of a test") == 1

    def test_nothing_is_nothing(self) -> None:
        assert end_leftovers(children(), "no such token") == 0
