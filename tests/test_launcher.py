"""Which rank a process is, from the variables that each launcher really sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import require_tool

from ncclbench.errors import RequestError
from ncclbench.supervise.launcher import LAST_NORMAL_STEP, Seat, expand_nodelist, find_seat

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29400",
}
SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "localhost,n[08-09]",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-1@1",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def seat_of(environ: dict[str, str], nproc_per_node: int | None = None) -> Seat:
    seat = find_seat(environ, nproc_per_node)
    assert seat is not None
    return seat


def place(seat: Seat) -> tuple[int, int, int, int]:
    return seat.rank, seat.world_size, seat.local_rank, seat.local_size


def test_no_launcher_means_no_seat() -> None:
    assert find_seat({"PATH": "/bin", "MASTER_ADDR": "n0"}, 4) is None


def test_torchrun() -> None:
    seat = seat_of(TORCHRUN)
    assert place(seat) == (5, 8, 1, 4)
    assert (seat.launcher, seat.master_addr, seat.master_port) == ("torchrun", "n0", 29400)
    assert (seat.node_rank, seat.uses_agent_store, seat.attempt) == (1, True, 2)


def test_torchrun_under_srun_counts_as_torchrun() -> None:
    assert seat_of({**SRUN, **TORCHRUN}).launcher == "torchrun"


def test_srun_on_several_hosts() -> None:
    seat = seat_of(SRUN)
    assert place(seat) == (4, 5, 0, 1)
    assert (seat.launcher, seat.master_addr, seat.node_rank) == ("srun", "localhost", 2)
    assert 20000 <= seat.master_port < 30000


def test_all_ranks_of_a_step_derive_one_port_and_other_steps_another() -> None:
    others = {**SRUN, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    assert seat_of(others).master_port == seat_of(SRUN).master_port
    assert seat_of({**SRUN, "SLURM_STEP_ID": "1"}).master_port != seat_of(SRUN).master_port


@pytest.mark.parametrize("step", [str(LAST_NORMAL_STEP), str(LAST_NORMAL_STEP + 11), "", "batch"])
def test_batch_scripts_and_shells_of_slurm_are_no_step(step: str) -> None:
    assert find_seat({**SRUN, "SLURM_STEP_ID": step}, None) is None


def test_an_interactive_shell_under_srun_is_any_machine() -> None:
    shell = {**SRUN, "SLURM_PTY_PORT": "40001", "SLURM_STEP_NUM_TASKS": "1"}
    assert find_seat(shell, None) is None


def test_srun_whose_first_host_is_unknown_asks_for_its_address() -> None:
    nowhere = {**SRUN, "SLURM_STEP_NODELIST": "no-such-host-[1-3].invalid"}
    with pytest.raises(RequestError, match=r"no-such-host-1\.invalid.*export MASTER_ADDR"):
        find_seat(nowhere, None)
    assert seat_of({**nowhere, "MASTER_ADDR": "10.0.0.1"}).master_addr == "10.0.0.1"


def test_srun_whose_first_host_only_slurm_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "NodeName=$3 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=h"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    unresolved = {**SRUN, "SLURM_STEP_NODELIST": "no-such-host-[1-3].invalid"}
    assert seat_of(unresolved).master_addr == "10.1.2.3"


def test_open_mpi_on_one_host_needs_no_address() -> None:
    seat = seat_of(OPEN_MPI)
    assert place(seat) == (1, 2, 1, 2)
    assert (seat.launcher, seat.master_addr) == ("mpirun", "127.0.0.1")


def test_open_mpi_on_several_hosts_says_how_to_give_the_address() -> None:
    several = {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"}
    with pytest.raises(RequestError, match="mpirun -x MASTER_ADDR"):
        find_seat(several, None)
    assert seat_of({**several, "MASTER_ADDR": "n0", "MASTER_PORT": "3000"}).master_port == 3000


def test_open_mpi_in_a_slurm_job_is_not_srun() -> None:
    assert seat_of({**SRUN, **OPEN_MPI}).launcher == "mpirun"


def test_mpich_and_intel_mpi() -> None:
    seat = seat_of({**HYDRA, "MASTER_ADDR": "n0"})
    assert (*place(seat), seat.launcher) == (3, 4, 1, 2, "mpirun")


def test_pmi_variables_of_srun_are_srun() -> None:
    assert seat_of({**SRUN, "PMI_RANK": "4", "PMI_SIZE": "5"}).launcher == "srun"


def test_variables_set_by_hand() -> None:
    hand = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    with pytest.raises(RequestError, match="LOCAL_RANK"):
        find_seat(hand, None)
    assert place(seat_of(hand, 2)) == (3, 4, 1, 2)
    assert place(seat_of({**hand, "MASTER_ADDR": "localhost"})) == (3, 4, 3, 4)


@pytest.mark.parametrize(
    ("environ", "nproc", "words"),
    [
        ({**TORCHRUN, "RANK": ""}, None, "RANK is not set, though other variables of torchrun are"),
        ({**TORCHRUN, "RANK": "five"}, None, "RANK='five' .* is not a whole number"),
        ({**TORCHRUN, "RANK": "8"}, None, "rank 8 of world size 8"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, None, "local rank 4 of local world size 4"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "9"}, None, "9 ranks on this host but 8 in all"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, None, "MASTER_PORT=70000 is not a port"),
        (TORCHRUN, 8, "--nproc-per-node 8 but torchrun placed 4"),
        ({**SRUN, "WORLD_SIZE": "8", "RANK": "4"}, None, "WORLD_SIZE=8 in the environment but srun says 5"),
        ({**SRUN, "SLURM_NODEID": "3"}, None, "contradict each other: SLURM_NODEID=3"),
        ({**SRUN, "SLURM_STEP_NODELIST": "n[1-"}, None, "node list 'n.1-' is not understood"),
        ({"RANK": "0", "MASTER_ADDR": "n0"}, None, "WORLD_SIZE is not set, though"),
    ],
)
def test_what_is_wrong_is_one_line(environ: dict[str, str], nproc: int | None, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        find_seat(environ, nproc)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[0-1,7],m1", ["n0", "n1", "n7", "m1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[0-1]c[1,3]-x", ["r0c1-x", "r0c3-x", "r1c1-x", "r1c3-x"]),
    ],
)
def test_node_lists(text: str, hosts: list[str]) -> None:
    assert expand_nodelist(text) == hosts


@pytest.mark.parametrize("text", ["", "n[1", "n1]", "n[a-b]", "n[]", "n[[1]]"])
def test_what_is_no_node_list(text: str) -> None:
    with pytest.raises(RequestError, match="export MASTER_ADDR"):
        expand_nodelist(text)


# The real launchers, each starting two processes that write down their seats.
_TELL = """
import json, os, pathlib, sys
from dataclasses import asdict
from ncclbench.supervise.launcher import find_seat
seat = asdict(find_seat(os.environ, None))
pathlib.Path(sys.argv[1], str(seat["rank"])).write_text(json.dumps(seat))
"""


def launched(folder: Path, *launcher: str) -> list[dict[str, Any]]:
    """What each rank under a real launcher reads; all are told to write into ``folder``."""
    script = folder / "tell.py"
    script.write_text(_TELL)
    seats = folder / "seats"
    seats.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run([*launcher, script, seats], check=True, timeout=60, env=environ, capture_output=True)
    return [json.loads(path.read_text()) for path in sorted(seats.iterdir())]


def test_under_a_real_torchrun(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    seats = launched(tmp_path, *command)
    assert [(seat["rank"], seat["local_rank"], seat["world_size"]) for seat in seats] == [
        (0, 0, 2),
        (1, 1, 2),
    ]
    assert {(seat["launcher"], seat["uses_agent_store"]) for seat in seats} == {("torchrun", True)}
    assert len({seat["master_port"] for seat in seats}) == 1


def test_under_a_real_mpirun(tmp_path: Path) -> None:
    mpirun = require_tool("mpirun")
    command = (mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable)
    seats = launched(tmp_path, *command)
    assert [(seat["rank"], seat["local_rank"], seat["local_size"]) for seat in seats] == [
        (0, 0, 2),
        (1, 1, 2),
    ]
    assert {seat["launcher"] for seat in seats} == {"mpirun"}
    assert len({seat["master_port"] for seat in seats}) == 1


def test_a_bad_request_is_said_though_rank_0_is_the_last_to_find_out(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(
        "import os, sys, time\n"
        "time.sleep(1.0 if os.environ['RANK'] == '0' else 0.0)\n"
        "from ncclbench.cli.app import main\n"
        "sys.argv = ['ncclbench', 'sweep', '--ops', 'no_such_thing']\n"
        "main()\n"
    )
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [*torchrun, script], capture_output=True, text=True, timeout=100, env=environ, check=False
    )
    assert done.returncode == 1, "torchrun's own, whatever the ranks' is"
    assert done.stderr.count("no_such_thing") == 1, done.stderr
    assert "ncclbench: error: " in done.stderr
