"""Programs that tests need and Python packages do not bring: found, skipped without, or insisted on."""

from __future__ import annotations

import os
import shutil

import pytest

# Debian's package for each program, for the line that tells how to get it.
_DEBIAN_PACKAGES = {
    "chromium": "chromium",
    "ip": "iproute2",
    "make": "make",
    "git": "git",
    "mpirun": "openmpi-bin",
    "slurmd": "slurm-wlm",
    "munged": "munge",
}


def require_tool(name: str) -> str:
    """The path of a program; without it the calling test is skipped.

    Where NCCLBENCH_REQUIRE_ALL is 1, as under ``.ci/run``, the test fails instead: there a missing
    program means that tests would silently stop testing.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if path is not None:
        return path
    message = f"{name} is missing: apt install {_DEBIAN_PACKAGES.get(name, name)}"
    if os.environ.get("NCCLBENCH_REQUIRE_ALL") == "1":
        pytest.fail(f"{message} (NCCLBENCH_REQUIRE_ALL=1)")
    pytest.skip(message)
