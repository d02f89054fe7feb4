"""Inputs that once broke a parser, by its entry in PARSERS: they are tried first, and for ever."""

from __future__ import annotations

# int() and float() do not take away what strip() does.
_SEPARATED = b"2\x1c"
# In a pattern that ignores case an s, but in no table.
_LONG_S = "60\u017f".encode()

FOUND: dict[str, tuple[bytes, ...]] = {
    "plan --step-factor": (_SEPARATED,),
    "plan --iters": (_SEPARATED, b"1" * 5000),
    "plan --time-budget": (_LONG_S,),
    "plan --timeout": (_LONG_S,),
    "plan --arm-env": (b"name=/" + b"a" * 300,),
    "suspects --slow-rank": (b"1" * 5000 + b":2",),
    "Slurm node list": (b"n[0-99999999999]", b"n" + b"[1-999]" * 9, b"n[" + b"1" * 5000 + b"]"),
    "launcher variables": (
        b"SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=1\nSLURM_NODEID=1\n"
        b"SLURM_STEP_TASKS_PER_NODE=2(x99999999999)\nSLURM_JOB_ID=1\nSLURM_PROCID=0\nSLURM_LOCALID=0",
        b"OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_LOCAL_RANK=0\n"
        b"OMPI_COMM_WORLD_LOCAL_SIZE=1\nPMIX_NAMESPACE=\xff",
    ),
    "list of processors": (b"0-99999999999", b"\0", b"1-2-3", b"0-99999," * 2000),
    "cgroup of version 2": (b"no colon\n",),
    "quota of a cgroup": (b"1" * 400 + b" 1", b"1 0"),
    "memory and caches": (b"\xed\xff",),
    "processor, governor, driver": (b"\xed\xff",),
    "sysfs of NICs": (b"1.2.3",),
}
