"""Faults across emulated hosts under each launcher: named with the host, kept, resumable, nothing left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from emulated import Cluster, Job
from emulated_launchers import SLURM_ENV, Launcher
from launchers import LAUNCHERS, LIMIT_S
from sweeping import alive, lines, wait_until
from tools import require_tool

# Two cores carry every host: nothing may run beside these.
pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

NPROC = 2
# Of the second host.
VICTIM = 3
# Epochs end quickly, so that there is something to keep; all of them take minutes.
LONG = (*("--sizes", "64K", "--modes", "isolated", "-n", "600", "--epochs", "150"), "-w", "1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, 1000) as up:
        yield up


def start(cluster: Cluster, out: Path, launcher: Launcher, *options: str) -> Job:
    """A long sweep, of which some units are on disk."""
    job = cluster.start(
        NPROC, ("-m", "ncclbench", "sweep", *LONG, *options, "--out", str(out)), None, launcher
    )
    try:
        wait_until(lambda: lines(out) >= 8, "the first units", LIMIT_S)
    except AssertionError:
        cluster.kill_all()
        print("\n".join(job.texts()))
        raise
    return job


def nothing_left(job: Job) -> bool:
    return not any(map(alive, job.processes()))


def goes_on(cluster: Cluster, out: Path, launcher: Launcher) -> None:
    """The run as it was left can be read, and resumed under the same launcher for a moment."""
    kept = lines(out)
    assert kept >= 8
    again = ("-m", "ncclbench", "sweep", "--resume", str(out))
    job = cluster.start(NPROC, again, None, launcher)
    wait_until(lambda: lines(out) > kept + 4, "more units", LIMIT_S)
    cluster.kill_all()
    job.reap()


def supervisor_of(job: Job, rank: int) -> psutil.Process:
    """The oldest process that has the rank's number."""
    return min(job.processes(rank), key=lambda process: float(process.create_time()))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_killed_rank_of_the_second_host_is_named(
    launcher: Launcher, cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = start(cluster, out, launcher)
    (worker,) = job.processes_of(VICTIM)
    worker.kill()
    done = job.wait(60)
    assert set(done.codes) == {3} if launcher != "torchrun" else 0 not in done.codes
    said = [line for line in done.err.splitlines() if "was killed by SIGKILL" in line]
    assert len(said) == 1, done.err
    assert f"rank {VICTIM} on node-01 was killed by SIGKILL" in said[0]
    wait_until(lambda: nothing_left(job), "the end of all processes", 10)
    goes_on(cluster, out, launcher)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_stopped_rank_of_the_second_host_is_named(
    launcher: Launcher, cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = start(cluster, out, launcher, "--timeout", "5")
    (worker,) = job.processes_of(VICTIM)
    worker.suspend()
    done = job.wait(60)
    assert 0 not in done.codes
    assert f"rank {VICTIM} on node-01 does not react" in done.err, done.err
    wait_until(lambda: nothing_left(job), "the end of all processes", 10)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_supervisor_of_the_second_host_is_killed(
    launcher: Launcher, cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = start(cluster, out, launcher, "--timeout", "5")
    supervisor_of(job, VICTIM).kill()
    done = job.wait(60)
    assert 0 not in done.codes
    wait_until(lambda: nothing_left(job), "the end of all processes", 10)
    goes_on(cluster, out, launcher)


def _scancel(cluster: Cluster, job: Job) -> None:
    done = cluster.run(0, (require_tool("scancel"), "--state=RUNNING"), 30, env=SLURM_ENV)
    assert done.code == 0, done.err


_ENDS = {
    "scancel": ("srun", _scancel),
    "Ctrl-C on mpirun": ("mpirun", lambda cluster, job: job.signal(signal.SIGINT)),
    "SIGTERM on mpirun": ("mpirun", lambda cluster, job: job.signal(signal.SIGTERM)),
    "SIGTERM on torchrun": ("torchrun", lambda cluster, job: job.signal(signal.SIGTERM)),
    "SIGTERM on torchrun of the second host": (
        "torchrun",
        lambda cluster, job: job.signal(signal.SIGTERM, process=1),
    ),
    "SIGKILL on mpirun": ("mpirun", lambda cluster, job: job.signal(signal.SIGKILL)),
    "SIGKILL on torchrun": ("torchrun", lambda cluster, job: job.signal(signal.SIGKILL)),
}


@pytest.mark.parametrize("name", _ENDS)
def test_what_ends_the_job_leaves_a_run_to_resume_and_no_process(
    name: str, cluster: Cluster, tmp_path: Path
) -> None:
    launcher, end = _ENDS[name]
    out = tmp_path / "run"
    job = start(cluster, out, launcher)
    end(cluster, job)
    done = job.wait(90)
    assert 0 not in done.codes, done.err
    wait_until(lambda: nothing_left(job), "the end of all processes", 20)
    goes_on(cluster, out, launcher)


def test_the_second_host_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    """All its processes at once, without a word: the others notice by themselves."""
    out = tmp_path / "run"
    job = start(cluster, out, "env", "--timeout", "5")
    for process in [*job.processes(2), *job.processes(3)]:
        process.kill()
    done = job.wait(60)
    assert done.codes[:2] == (3, 3), done.err
    assert "rank 2 on node-01 (and 1 more) is gone with its supervisor without a word" in done.err, done.err
    wait_until(lambda: nothing_left(job), "the end of all processes", 10)
    goes_on(cluster, out, "env")


# What this one file is about, on a host of its own: another version, clock or setting than the others have.
_SITE = """
import os, socket, sys, time
sys.path.insert(0, os.getcwd())
if socket.gethostname() == "node-01":
    {change}
"""


def changed_on_the_second_host(folder: Path, change: str) -> dict[str, str]:
    """Variables that make Python there another."""
    folder.joinpath("sitecustomize.py").write_text(_SITE.format(change=change))
    return {"PYTHONPATH": str(folder)}


QUICK = ("-m", "ncclbench", "sweep", "--sizes", "8", "--modes", "isolated", "-n", "4", "--epochs", "1")


def test_another_ncclbench_on_one_host_is_refused_first(cluster: Cluster, tmp_path: Path) -> None:
    env = changed_on_the_second_host(tmp_path, 'import ncclbench; ncclbench.__version__ = "0.0.9"')
    done = cluster.launch(NPROC, (*QUICK, "--out", str(tmp_path / "run")), LIMIT_S, env, "srun")
    assert done.code == 2
    said = "ncclbench differs between ranks: 0.0.9 on ranks 2-3 (node-01)"
    assert said in done.err, done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_another_clock_on_one_host_is_told_first(cluster: Cluster, tmp_path: Path) -> None:
    env = changed_on_the_second_host(tmp_path, "real = time.time; time.time = lambda: real() + 3.25")
    done = cluster.launch(NPROC, (*QUICK, "--out", str(tmp_path / "run")), LIMIT_S, env, "mpirun")
    assert done.code == 0, done.err
    warnings = [line for line in done.err.splitlines() if line.startswith("warning:")]
    assert "the time of day differs from node-00's: node-01 by 3.2 s ahead (ranks 2-3)" in warnings[0]


def test_another_setting_on_one_rank_is_told_first(cluster: Cluster, tmp_path: Path) -> None:
    change = (
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '3': "
        "os.environ.update(NCCL_ALGO='Ring', OMP_NUM_THREADS='4')"
    )
    env = changed_on_the_second_host(tmp_path, change)
    done = cluster.launch(NPROC, (*QUICK, "--out", str(tmp_path / "run")), LIMIT_S, env, "mpirun")
    assert done.code == 0, done.err
    warnings = [line for line in done.err.splitlines() if line.startswith("warning:")]
    assert warnings[0].startswith(
        "warning: NCCL_ALGO differs between ranks: Ring on rank 3 (node-01), and not set on the others"
    )
    assert warnings[1].startswith(
        "warning: OMP_NUM_THREADS differs between ranks: 4 on rank 3 (node-01), and 1 on the others"
    )
