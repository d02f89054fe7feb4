"""What started this process and what it is packed in: batch job, container, NCCL's network plugin."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ncclbench.environ import variables as own_variables
from ncclbench.environment.nics import text

_ROOT = Path("/")

# The variable that holds the job's id, by scheduler.
_SCHEDULERS = {
    "slurm": "SLURM_JOB_ID",
    "pbs": "PBS_JOBID",
    "lsf": "LSB_JOBID",
    "sge": "JOB_ID",
    "flux": "FLUX_JOB_ID",
}
# What images and runtimes say of themselves.
_IMAGE_VARIABLES = (
    "APPTAINER_CONTAINER",
    "SINGULARITY_CONTAINER",
    "CONTAINER_IMAGE",
    "NVIDIA_PYTORCH_VERSION",
    "NVIDIA_BUILD_ID",
)
_CONTAINER_ID = re.compile(r"\b[0-9a-f]{64}\b")

_PLUGIN = "libnccl-net*.so*"
_LIBRARY_FOLDERS = (
    "usr/lib",
    "usr/lib64",
    "usr/local/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/hpcx/nccl_rdma_sharp_plugin/lib",
)
# The release that a plugin was built from, as its own log lines hold it.
_PLUGIN_VERSION = re.compile(rb"aws-ofi-nccl v?\d[\w.+-]{0,40}")
# A plugin has a few megabytes; more is not read.
_PLUGIN_BYTES = 64 << 20


def read_job(environ: Mapping[str, str] | None = None, root: Path = _ROOT) -> dict[str, str] | None:
    """``scheduler`` and ``id`` of the batch job, or the pod; None outside of any."""
    variables = own_variables() if environ is None else environ
    for scheduler, name in _SCHEDULERS.items():
        if variables.get(name):
            return {"scheduler": scheduler, "id": variables[name]}
    if "KUBERNETES_SERVICE_HOST" in variables or (root / "var/run/secrets/kubernetes.io").exists():
        return {"scheduler": "kubernetes", "id": variables.get("HOSTNAME") or socket.gethostname()}
    return None


def read_container(environ: Mapping[str, str] | None = None, root: Path = _ROOT) -> dict[str, str] | None:
    """``id`` of the container and a hint at its ``image``; None where neither can be told."""
    variables = own_variables() if environ is None else environ
    # With version 2 of cgroups the path often is "/"; then mounts like /etc/hostname tell.
    known = (text(root / "proc/self/cgroup") or "") + (text(root / "proc/self/mountinfo") or "")
    found = _CONTAINER_ID.search(known)
    image = next((f"{name}={variables[name]}" for name in _IMAGE_VARIABLES if variables.get(name)), None)
    described = {"id": found[0][:12] if found else None, "image": image}
    return {key: value for key, value in described.items() if value} or None


def read_net_plugin(environ: Mapping[str, str] | None = None, root: Path = _ROOT) -> dict[str, Any] | None:
    """NCCL's external network plugin: what is asked for, what lies where it is looked for, what is loaded.

    Returns:
        ``asked`` (NCCL_NET_PLUGIN), ``found`` (files), ``loaded`` (by this process), ``version`` (of the
        one that would be taken, where its name or its text tells); None where there is nothing of it.
    """
    variables = own_variables() if environ is None else environ
    asked = variables.get("NCCL_NET_PLUGIN")
    found = [str(path) for path in _plugins(variables, root)]
    maps = (text(root / "proc/self/maps") or "").splitlines()
    loaded = [line.split()[-1] for line in maps if "/libnccl-net" in line]
    taken = next(iter([*loaded, *_asked_file(asked, found), *found]), None)
    described = {
        "asked": asked,
        "found": found,
        "loaded": loaded[0] if loaded else None,
        "version": None if taken is None else _plugin_version(Path(taken)),
    }
    return {key: value for key, value in described.items() if value} or None


def _plugins(variables: Mapping[str, str], root: Path) -> Iterator[Path]:
    """Plugin libraries in the loader's order, each file once whatever its links are called."""
    listed = [Path(folder) for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder]
    seen: set[Path] = set()
    for folder in [*listed, *(root / each for each in _LIBRARY_FOLDERS)]:
        for path in sorted(folder.glob(_PLUGIN)):
            if (real := path.resolve()) not in seen and real.is_file():
                seen.add(real)
                yield path


def _asked_file(asked: str | None, found: list[str]) -> list[str]:
    """The file that NCCL_NET_PLUGIN means: a path, a library's name, or its last part."""
    if not asked or asked == "none":
        return []
    if "/" in asked:
        return [asked] if Path(asked).is_file() else []
    names = (asked, f"libnccl-net-{asked}.so")
    return [path for path in found if Path(path).name in names]


def _plugin_version(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            inside = _PLUGIN_VERSION.search(file.read(_PLUGIN_BYTES))
    except OSError:
        return None
    if inside:
        return inside[0].decode()
    _, so, version = path.resolve().name.partition(".so.")
    return version if so and version.count(".") else None
