"""Environment variables worth recording: those that change how collectives run, without secrets."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping

HIDDEN = "(not recorded)"

_PREFIXES = (
    "NCCL_",
    "TORCH_",
    "PYTORCH_",
    "CUDA_",
    "GLOO_",
    "UCX_",
    "UCC_",
    "FI_",
    "NVSHMEM_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
)
# Of launchers only what is the same for all ranks of a job: who is which rank is known anyway.
_NAMES = frozenset(
    (
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "TP_SOCKET_IFNAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_USE_AGENT_STORE",
        "SLURM_JOB_ID",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_NUM_NODES",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_CPU_BIND",
        "SLURM_GPUS_PER_TASK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_SIZE",
        "MPI_LOCALNRANKS",
    )
)

# Of keys, an InfiniBand partition key (NCCL_IB_PKEY, UCX_IB_PKEY) is a number and no secret.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|AUTH|BEARER|COOKIE|PRIVATE|SIGNATURE|CERT|(?<!_P)KEY"
    r"|_PASS(?:_|$)"
)
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@"  # a URL with a user in it
    r"|\beyJ[\w-]+\.[\w-]+"  # a JSON web token
    r"|-----BEGIN|\b(?:bearer|basic)\s+\S{8}"
    r"|\b(?:hf|ghp|gho|ghu|ghs|ghr|github_pat|sk|pk|rk|pypi|npm|glpat|xox[a-z]|dop_v1|wandb)[_-]\w"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12}"
    r"|(?:token|secret|passw\w*|api_?key|access_?key|sig|signature|credential)s?=",
    re.IGNORECASE,
)
_GPU_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
# What base64, hexadecimal and most key formats have between separators.
_RUN = re.compile(r"[A-Za-z0-9+]{20,}")
# With separators of base64url inside; file names look alike, so that more is asked of these.
_LONG_RUN = re.compile(r"[A-Za-z0-9+_-]{32,}")
_RUN_BITS = 3.0
_LONG_RUN_BITS = 4.0


def recorded_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that matter for communication, by name; what looks like a secret reads "(not recorded)"."""
    everything = os.environ if environ is None else environ
    return {
        name: HIDDEN if is_secret(name, everything[name]) else everything[name]
        for name in sorted(everything)
        if name.startswith(_PREFIXES) or name in _NAMES
    }


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret, by its name or by its value. Rather once too often."""
    if _SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value):
        return True
    rest = _GPU_UUID.sub("", value)
    return any(_is_random(run, _RUN_BITS) for run in _RUN.findall(rest)) or any(
        _is_random(run, _LONG_RUN_BITS) and run.lower() != run for run in _LONG_RUN.findall(rest)
    )


def _is_random(run: str, bits: float) -> bool:
    """Letters and digits mixed, and more than ``bits`` of entropy per character."""
    if run.isalpha() or not any(char.isalpha() for char in run):
        return False
    counts = Counter(run).values()
    return -sum(n / len(run) * math.log2(n / len(run)) for n in counts) > bits
