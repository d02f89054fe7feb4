"""What the machine is, for the file that is sent back: versions, settings, and nvidia-smi."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ncclbench
from gpu_check.place import Place, installed, numbers
from ncclbench.environment.gpu import count_gpus
from ncclbench.environment.variables import recorded_variables

_PACKAGES = ("torch", "numpy", "numba", "numba-cuda", "nvidia-ml-py", "nixl", "cuda-bindings", "triton")
_ASK_S = 120.0
# torch is asked in a process of its own: this one must stay without CUDA, and a broken torch must not end it.
_ASKED = """
import json, torch
def tried(ask):
    try:
        return ask()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
count = torch.cuda.device_count()
print(json.dumps({
    "torch": torch.__version__, "git": torch.version.git_version, "cuda": torch.version.cuda,
    "nccl": tried(lambda: ".".join(map(str, torch.cuda.nccl.version()))), "gpus": count,
    "devices": [tried(lambda: [torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)])
                for i in range(count)],
    "architectures": tried(torch.cuda.get_arch_list),
}))
"""
# Of nvidia-smi -q: sections that say what a GPU is and how it is. Identities are in none of the lines kept.
_KEPT = re.compile(
    r"\s*(driver version|cuda version|attached gpus|product (name|architecture)|persistence mode|mig mode"
    r"|current|pending|addressing mode|compute mode|performance state|clocks .*|idle|sw .*|hw .*|sync boost"
    r"|fb memory usage|bar1 memory usage|total|reserved|used|free|ecc (mode|errors)|volatile|aggregate"
    r"|sram .*|dram .*|remapped rows|(un)?correctable error|temperature|gpu current temp|gpu power readings"
    r"|average power draw|(current|default) power limit|(max )?clocks|graphics|sm|memory|video|gpu link info"
    r"|pcie generation|max|link width|fabric|state|status)\s*(:.*)?",
    re.IGNORECASE,
)
_IDENTITY = re.compile(
    r"(GPU-|MIG-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\b",
    re.IGNORECASE,
)


def place_of(device: str | None) -> tuple[Place, dict[str, Any]]:
    """This machine as a place for checks, and what torch says of it.

    Args:
        device: "cuda" or "cpu"; None: a GPU where there is one.
    """
    told = _torch()
    gpus = int(told.get("gpus", 0)) or count_gpus()
    device = device or ("cuda" if gpus else "cpu")
    nccl = numbers(str(told.get("nccl", ""))) or None
    return Place(device, gpus, numbers(str(told.get("torch", installed("torch") or "")))[:2], nccl), told


def _torch() -> dict[str, Any]:
    text = _output([sys.executable, "-c", _ASKED])
    try:
        found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": (text.strip().splitlines() or ["torch does not answer"])[-1]}
    return found


def describe(told: dict[str, Any]) -> dict[str, Any]:
    """Versions, settings, and of nvidia-smi -q what names no GPU."""
    return {
        "ncclbench": ncclbench.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "packages": {name: installed(name) for name in _PACKAGES},
        "torch": told,
        "variables": recorded_variables(),
        "nvidia_smi": excerpt(_output(["nvidia-smi", "-q"])),
        "topology": _output(["nvidia-smi", "topo", "-m"]).splitlines(),
    }


def excerpt(text: str) -> list[str]:
    """Lines of nvidia-smi -q about kind and state of the GPUs; none with a serial number, UUID or address."""
    lines = [line.rstrip() for line in text.splitlines()]
    return [line for line in lines if _KEPT.fullmatch(line) and not _IDENTITY.search(line)]


def scrubbed(text: str) -> str:
    """Without the names of this host and home, and without what tells a GPU from its twin."""
    text = text.replace(str(Path.home()) + "/", "~/")
    for name in {platform.node(), platform.node().partition(".")[0]}:
        if len(name) > 1:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "(host)", text)
    return _IDENTITY.sub("(hidden)", text)


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return done.stdout or done.stderr
