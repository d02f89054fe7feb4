"""What an emulated cluster refuses, and where it cannot be: a test that needs it is skipped there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from emulated import Cluster
from emulated_launchers import Launcher
from sweeping import run
from tools import require_tool


@pytest.mark.parametrize("mbit", [0, -1, 1001])
def test_rates_that_would_be_no_truth_are_refused(mbit: float) -> None:
    with Cluster(2) as cluster, pytest.raises(ValueError, match="cannot be emulated"):
        cluster.set_pair(0, 1, mbit)


@pytest.mark.parametrize("switches", [((0,),), ((0, 1), (1,)), ((0,), (1, 2))])
def test_every_host_has_one_switch(switches: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="every one of 2 hosts needs one switch"):
        Cluster(2, switches=switches)


def test_without_root_the_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("NCCLBENCH_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"), Cluster(2):
        pass


@pytest.mark.parametrize(
    ("launcher", "tool", "package"),
    [("mpirun", "mpirun", "openmpi-bin"), ("srun", "slurmctld", "slurm-wlm"), ("srun", "munged", "munge")],
)
def test_without_a_launchers_programs_the_test_is_skipped(
    launcher: Launcher, tool: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == tool else which(name, **more))
    monkeypatch.delenv("NCCLBENCH_REQUIRE_ALL", raising=False)
    with (
        Cluster(2) as cluster,
        pytest.raises(pytest.skip.Exception, match=f"^{tool} is missing: apt install {package}$"),
    ):
        cluster.start(1, ("-c", "pass"), launcher=launcher)


_SKIP = """
import os, pytest
from emulated import Cluster
os.environ.pop("NCCLBENCH_REQUIRE_ALL", None)
try:
    with Cluster(2):
        pass
except pytest.skip.Exception as skipped:
    print(skipped)
"""


def test_where_root_may_not_make_namespaces_the_test_is_skipped() -> None:
    as_in_a_container = (require_tool("setpriv"), "--bounding-set", "-sys_admin")
    done = run(
        *as_in_a_container, sys.executable, "-c", _SKIP, env={"PYTHONPATH": str(Path(__file__).parent)}
    )
    assert done.out.startswith("no host can be emulated here: unshare"), done.err
