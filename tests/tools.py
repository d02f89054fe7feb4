"""Programs that tests need and Python packages do not bring: found, skipped without, or insisted on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

# Debian's package for each program, for the line that tells how to get it.
_DEBIAN_PACKAGES = {
    "chromium": "chromium",
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "make": "make",
    "git": "git",
    "mpirun": "openmpi-bin",
    **dict.fromkeys(("slurmctld", "slurmd", "srun", "sbatch", "scancel"), "slurm-wlm"),
    "munged": "munge",
}


def require_tool(name: str) -> str:
    """The path of a program; without it the calling test is skipped.

    Where NCCLBENCH_REQUIRE_ALL is 1, as under ``.ci/run``, the test fails instead: there a missing
    program means that tests would silently stop testing.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return path or miss(f"{name} is missing: apt install {_DEBIAN_PACKAGES.get(name, name)}")


def miss(message: str) -> NoReturn:
    """Skip the calling test, or fail it where everything must be there."""
    if os.environ.get("NCCLBENCH_REQUIRE_ALL") == "1":
        pytest.fail(f"{message} (NCCLBENCH_REQUIRE_ALL=1)")
    pytest.skip(message)


@contextlib.contextmanager
def require_mount(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of that size at ``folder``; without the right to mount one the test is skipped."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "ncclbench-test", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        miss(f"cannot mount a small file system: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
